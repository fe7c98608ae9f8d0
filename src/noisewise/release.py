"""The Release: noisy statistics, the exact law of their noise, and the privacy statement. Safe to publish.

It is the waist of the package: a holder alone and a secure sum both produce it, every method consumes a list of
them. On disk it is a versioned JSON file whose digest shows damage (it is not a signature: who can rewrite the file can
rewrite the digest). What a holder alone may know, such as how many rows were clipped, is not in it.
"""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from noisewise.column import is_finite_number
from noisewise.errors import MismatchError, OutputError, ReleaseError, StudyError
from noisewise.guarantee import BlockStatement, Guarantee
from noisewise.layout import BlockName, Floats, Integers, Layout, Spread, Sufficient
from noisewise.privacy.calibration import NoisePlan
from noisewise.privacy.chain import sync_folder
from noisewise.study import Study

Law = Literal["gaussian", "laplace", "none"]

FORMAT = "noisewise-release"
VERSION = 1


_POOLED = (
    "; a secure sum: this holds as long as one of its compute nodes is honest and no more holders collude than agreed"
)


@dataclass(frozen=True)
class Release:
    """One holder's (or a pooled) noisy statistics. ``values`` are in units of 2^-unit; ``scales`` in scaled units."""

    layout: Layout
    values: tuple[int | float, ...]
    unit: int
    law: Law
    scales: tuple[float, ...]
    study: Study | None = None
    guarantee: Guarantee | None = None
    holder: str = ""
    created: str = ""
    identity: str = ""
    ledger_entry: str | None = None
    insecure: str = ""
    round: Mapping[str, Any] | None = None  # the evidence of a secure sum (protocol/pooled.py)

    def __post_init__(self) -> None:
        expected = len(self.layout.entries)
        if len(self.values) != expected or len(self.scales) != expected:
            raise ReleaseError(
                f"{self._label()}: {len(self.values)} values and {len(self.scales)} noise scales, where "
                f"{expected} entries are released."
            )
        if self.law not in get_args(Law):
            raise ReleaseError(f"{self._label()}: noise law {self.law!r} is not known; it is one of {get_args(Law)}.")
        if not all(is_finite_number(value) for value in self.values):
            raise ReleaseError(f"{self._label()}: a released value is not a finite number.")
        if not all(is_finite_number(scale) and scale >= 0 for scale in self.scales):
            raise ReleaseError(f"{self._label()}: a noise scale is negative or not a finite number.")
        if self.law == "none" and any(self.scales):
            raise ReleaseError(f"{self._label()}: noise law 'none' has scale 0 everywhere.")
        if not isinstance(self.unit, int) or not 0 <= self.unit <= 64:
            raise ReleaseError(f"{self._label()}: unit {self.unit!r} is out of range; it is a number of bits, 0 to 64.")
        if self.study is not None:
            self._check_against(self.study)

    def _check_against(self, study: Study) -> None:
        """What a release says of itself is what its study says."""
        if Layout.of(study) != self.layout:
            raise ReleaseError(f"{self._label()}: the entries are not those that its study releases.")
        if self.law not in ("none", study.mechanism):
            raise ReleaseError(f"{self._label()}: {self.law} noise, where its study says {study.mechanism}.")
        if self.guarantee is not None:
            stated = vars(self.guarantee)
            for key in ("adjacency", "epsilon", "delta", "mechanism", "public_n"):
                if stated[key] != getattr(study, key):
                    raise ReleaseError(
                        f"{self._label()}: the privacy statement has {key} {stated[key]!r}, its study "
                        f"{getattr(study, key)!r}."
                    )
            split = [(block.name, block.share) for block in self.layout.blocks]
            if [block[:2] for block in self.guarantee.blocks] != split:
                raise ReleaseError(
                    f"{self._label()}: the privacy statement splits the budget otherwise than its study."
                )
            noiseless = [scale == 0 for scale in self.scales]
            if self.law == "none" or noiseless[0] != study.public_n or any(noiseless[1:]):
                raise ReleaseError(f"{self._label()}: a guarantee is stated and an entry has no noise.")

    @classmethod
    def from_plan(
        cls,
        study: Study,
        noisy: Integers,
        plan: NoisePlan,
        *,
        holder: str,
        insecure: str = "",
        exact: bool = False,
        ledger_entry: str | None = None,
    ) -> Self:
        """What a holder publishes: integers of the released entries, noise added, under the study's plan."""
        guarantee = Guarantee(
            adjacency=study.adjacency,
            epsilon=study.epsilon,
            delta=cast(float, study.delta),
            mechanism=study.mechanism,
            blocks=tuple(BlockStatement(b.name, b.share, b.sensitivity.value) for b in plan.blocks),
            norm=plan.sensitivity.norm,
            public_n=bool(study.public_n),
        )
        return cls(
            layout=Layout.of(study),
            values=tuple(int(value) for value in noisy),
            unit=2 * study.bits,
            law="none" if exact else plan.law,
            scales=(0.0,) * len(plan.scales) if exact else plan.scales,
            study=study,
            guarantee=None if exact else guarantee,
            holder=holder,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            identity=secrets.token_hex(16),
            ledger_entry=ledger_entry,
            insecure=insecure,
        )

    @classmethod
    def from_statistics(
        cls,
        S: ArrayLike,
        z: ArrayLike,
        n: float,
        sd_S: ArrayLike,
        sd_z: ArrayLike,
        u: float | None = None,
        sd_u: float | None = None,
        noise: Law = "gaussian",
        *,
        holder: str = "",
    ) -> Self:
        """A Release from noisy statistics made elsewhere, in scaled units, with no study and no intercept.

        ``sd_S`` and ``sd_z`` are standard deviations of the noise, one number or one per entry (for Laplace
        noise too: its scale is sd / sqrt 2). To have an intercept, put a column of ones into x yourself.
        """
        S_, z_ = _array("S", S), _array("z", z)
        d = z_.size
        if z_.ndim != 1 or d == 0 or S_.shape != (d, d):
            raise ReleaseError(
                f"S of shape {S_.shape} and z of shape {z_.shape} don't match; they are (d, d) and (d,)."
            )
        if not np.isfinite(S_).all() or not np.isfinite(z_).all():
            raise ReleaseError("S or z has an entry that is not a finite number.")
        if not np.allclose(S_, S_.T, rtol=1e-9, atol=1e-9 * (1 + np.abs(S_).max())):
            raise ReleaseError("S is not symmetric; give (S + S') / 2 and the noise that this has.")
        if not is_finite_number(n) or n < 1:
            raise ReleaseError(f"n is {n!r}; it is the number of rows, at least 1.")
        if (u is None) != (sd_u is None):
            raise ReleaseError("Give u and sd_u together, or neither.")
        for name, value in (("u", u), ("sd_u", sd_u)):
            if value is not None and not is_finite_number(value):
                raise ReleaseError(f"{name} is {value!r}; it is one finite number.")
        sd_S_, sd_z_ = _array("sd_S", sd_S), _array("sd_z", sd_z)
        try:
            sd_S_, sd_z_ = np.broadcast_to(sd_S_, (d, d)), np.broadcast_to(sd_z_, (d,))
        except ValueError:
            raise ReleaseError(f"sd_S and sd_z are one number each, or of shapes {(d, d)} and {(d,)}.") from None
        if not np.allclose(sd_S_, sd_S_.T, equal_nan=True):
            raise ReleaseError("sd_S is not symmetric; an entry of S and its mirror image are one number.")
        layout = Layout(d, intercept=False, release_yy=u is not None)
        matrix, sds = np.zeros((d + 2, d + 2)), np.zeros((d + 2, d + 2))
        y = d + 1
        matrix[0, 0] = n
        matrix[1:y, 1:y], sds[1:y, 1:y] = S_, sd_S_
        matrix[1:y, y], sds[1:y, y] = z_, sd_z_
        matrix[y, y], sds[y, y] = u or 0.0, sd_u or 0.0
        scales = layout.pick(sds) / (math.sqrt(2.0) if noise == "laplace" else 1.0)
        return cls(
            layout=layout,
            values=tuple(float(value) for value in layout.pick(matrix)),
            unit=0,
            law=noise,
            scales=tuple(float(scale) for scale in scales),
            holder=holder,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            identity=secrets.token_hex(16),
        )

    @cached_property
    def _vector(self) -> tuple[Floats, Floats]:
        """The entries in scaled units, and the standard deviations of their noise."""
        values = np.array([math.ldexp(value, -self.unit) for value in self.values])
        return values, np.array(self.scales) * (math.sqrt(2.0) if self.law == "laplace" else 1.0)

    @cached_property
    def sufficient(self) -> Sufficient:
        """n, S, z, u in scaled units with their noise's standard deviations."""
        if self.layout.statistics != "gram":
            raise ReleaseError(
                f"{self._label()}: it has sums and squares of each column and no products of two; a regression needs a "
                "release of a study with statistics = 'gram'."
            )
        return self.layout.sufficient(*self._vector)

    @cached_property
    def spread(self) -> Spread:
        """Mean and standard deviation of every column in scaled units, features first, and what noise does to them."""
        a, sd = (self.layout.place(part) for part in self._vector)
        spread = Spread(float(a[0, 0]), a[0, 1:], np.diag(a)[1:].copy(), float(sd[0, 0]), sd[0, 1:], np.diag(sd)[1:])
        if not (np.isfinite(spread.sums).all() and np.isfinite(spread.squares).all()):
            raise ReleaseError(
                f"{self._label()}: it does not have the sum and the sum of squares of every column. Use a study with "
                "statistics = 'spread', or with an intercept and release_yy = true."
            )
        return spread

    def block(self, name: BlockName) -> tuple[Floats, Floats] | None:
        """The entries of one block in scaled units and the standard deviations of their noise; None if not released."""
        where = self.layout.where(name)
        return None if where is None else (self._vector[0][where], self._vector[1][where])

    @property
    def n(self) -> float:
        """The number of rows: exact where it is public, noisy where the guarantee hides it."""
        return float(self._vector[0][0]) / self.layout.average_rows

    def privacy_statement(self) -> str:
        if self.insecure:
            return self.insecure
        if self.guarantee is None:
            return "made elsewhere: no guarantee is stated here"
        return self.guarantee.in_words() + (_POOLED if self.round else "")

    def to_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "identity": self.identity,
            "holder": self.holder,
            "created": self.created,
            "study_digest": self.study.digest if self.study else None,
            "study": self.study.to_dict() if self.study else None,
            "privacy": self.guarantee.to_dict() if self.guarantee else None,
            "insecure": self.insecure,
            "ledger_entry": self.ledger_entry,
            "round": self.round,
            "layout": asdict(self.layout),
            "unit": self.unit,
            "values": list(self.values),
            "noise": {"law": self.law, "scales": list(self.scales)},
        }
        body["digest"] = _digest(body)
        return body

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return cast(str, self.to_dict()["digest"])

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all."""
        path = Path(path)
        if not path.name:
            raise OutputError(f"{path}: this is a folder; name a file in it.")
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        try:
            with partial.open("x", encoding="utf-8") as file:
                json.dump(self.to_dict(), file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise OutputError(f"{path}: can't be written ({error.strerror}); choose another place.") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file and check all of it."""
        try:
            raw = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise ReleaseError(f"{path}: can't be read ({error.strerror}).") from None
        except (ValueError, RecursionError):
            raise ReleaseError(
                f"{path}: not a JSON file, or cut off before its end; ask its holder for the file again."
            ) from None
        return cls.from_dict(raw, str(path))

    @classmethod
    def from_dict(cls, raw: Any, where: str = "release") -> Self:
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ReleaseError(f"{where}: this is not a noisewise release (format {FORMAT!r} is missing).")
        if raw.get("version") != VERSION:
            raise ReleaseError(
                f"{where}: version {raw.get('version')!r} is not known here; this package reads {VERSION}."
            )
        if missing := sorted({*_SCHEMA} - set(raw)):
            raise ReleaseError(f"{where}: {missing[0]!r} is missing; the file is incomplete.")
        if unknown := sorted(set(raw) - {*_SCHEMA, "format", "version"}):
            raise ReleaseError(f"{where}: unknown key {unknown[0]!r}; the file was made by another program or edited.")
        for key, kinds in _SCHEMA.items():
            if not isinstance(raw[key], kinds) or isinstance(raw[key], bool):
                raise ReleaseError(f"{where}: {key!r} has the wrong type ({type(raw[key]).__name__}).")
        if raw["layout"].get("d") not in range(1, 1 + len(raw["values"])):
            raise ReleaseError(f"{where}: the layout does not fit {len(raw['values'])} values.")
        if raw["digest"] != _digest(raw, f"{where}: "):
            raise ReleaseError(
                f"{where}: the content does not match its digest; the file was changed or damaged after it was "
                "written. Ask its holder for the file again."
            )
        try:
            study = None if raw["study"] is None else Study.from_dict(raw["study"], where)
            release = cls(
                layout=Layout(**raw["layout"]),
                values=tuple(raw["values"]),
                unit=raw["unit"],
                law=raw["noise"]["law"],
                scales=tuple(raw["noise"]["scales"]),
                study=study,
                guarantee=None if raw["privacy"] is None else Guarantee(**raw["privacy"]),
                **{key: raw[key] for key in ("holder", "created", "identity", "ledger_entry", "insecure", "round")},
            )
        except (StudyError, ReleaseError) as error:
            raise ReleaseError(f"{where}: {error}") from None
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise ReleaseError(f"{where}: the file is malformed ({type(error).__name__}: {error}).") from None
        if (study.digest if study else None) != raw["study_digest"]:
            raise ReleaseError(f"{where}: the study inside is not the one that its study_digest names.")
        if release.digest != raw["digest"]:
            raise ReleaseError(f"{where}: the file holds other things than a release does; another program made it.")
        return release

    def _label(self) -> str:
        return f"Release of {self.holder!r}" if self.holder else "Release"

    def __repr__(self) -> str:
        who = f" by {self.holder!r}" if self.holder else ""
        return f"<Release{who}: n {self.n:.0f}, {self.layout.d} features, {self.law} noise; {self.privacy_statement()}>"


def check_same_study(releases: Sequence[Release]) -> None:
    """Raise unless the releases may be fitted together; say which field differs."""
    first = releases[0]
    seen: dict[str, int] = {}
    for position, release in enumerate(releases):
        if release.identity in seen:
            raise MismatchError(
                f"Release {position + 1} is release {seen[release.identity] + 1} again (identity {release.identity}); "
                "each may be counted once."
            )
        seen[release.identity] = position
        who = f"Release {position + 1}" + (f" ({release.holder})" if release.holder else "")
        if (release.study is None) != (first.study is None):
            raise MismatchError(f"{who}: some releases carry a study and some don't; fit them apart.")
        if release.study and first.study and release.study.digest != first.study.digest:
            fields = "; ".join(first.study.difference(release.study))
            raise MismatchError(f"{who} is of another study than the first. They differ in {fields}.")
        if release.layout != first.layout:
            raise MismatchError(f"{who} has other statistics than the first: {release.layout} against {first.layout}.")


_SCHEMA: Mapping[str, type | tuple[type, ...]] = {
    "identity": str,
    "holder": str,
    "created": str,
    "study_digest": (str, type(None)),
    "study": (dict, type(None)),
    "privacy": (dict, type(None)),
    "insecure": str,
    "ledger_entry": (str, type(None)),
    "round": (dict, type(None)),
    "layout": dict,
    "unit": int,
    "values": list,
    "noise": dict,
    "digest": str,
}


def _digest(body: Mapping[str, Any], where: str = "") -> str:
    content = {key: value for key, value in body.items() if key != "digest"}
    try:
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        raise ReleaseError(f"{where}a released value or noise scale is not a finite number.") from None
    return hashlib.sha256(canonical.encode()).hexdigest()


def _array(name: str, values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ReleaseError(f"{name} is not an array of numbers.") from None


__all__ = ["Floats", "Guarantee", "Law", "Release", "check_same_study"]
