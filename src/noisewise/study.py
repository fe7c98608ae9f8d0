"""The study: the public contract that all parties of one regression agree on before any data is touched.

It names the columns with their public bounds, the target, the adjacency (whom the guarantee protects),
the mechanism and its budget. Nothing in it is ever read off the data. Its canonical form is hashed, and
the digest travels in every Release, so that statistics of different contracts are never mixed.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

from noisewise.column import Column, Feature, is_finite_number, is_text
from noisewise.errors import OutputError, StudyError

Adjacency = Literal["replace-one", "add-remove"]
Mechanism = Literal["gaussian", "laplace"]
Missing = Literal["refuse", "centre", "drop"]
Statistics = Literal["gram", "spread"]

FORMAT = "noisewise-study"
VERSION = 1

# What these cost in time and numbers grows with the fourth power of the features, or worse.
MOST_FEATURES_WITH_FOURTH_MOMENTS = 30
MOST_FEATURES_WITH_EIGENVALUE = 100
SMALLEST_SHARE, LARGEST_SHARES = 0.01, 0.9
# k 2^bits at most this: chunks of sums of k rows stay exact and large enough to be quick.
LARGEST_SUM_BITS = 22


@dataclass(frozen=True)
class Study:
    """What the parties agree on; see the module's text and docs/study.md for each field."""

    features: tuple[Column, ...]
    target: Column
    epsilon: float
    delta: float | None = None
    adjacency: Adjacency = "replace-one"
    mechanism: Mechanism = "gaussian"
    intercept: bool = True
    radius: float | None = None
    release_yy: bool = True
    missing: Missing = "refuse"
    min_rows: int = 10
    public_n: bool | None = None
    bits: int = 16
    name: str = field(default="study")
    statistics: Statistics = "gram"
    fourth_moments: float = 0.0
    smallest_eigenvalue: float = 0.0
    average_rows: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.features, Column | Iterable):
            raise StudyError(f"features is a list of Columns; got {self.features!r}.")
        features = (self.features,) if isinstance(self.features, Column) else tuple(self.features)
        object.__setattr__(self, "features", features)
        if not is_text(self.name):
            raise StudyError(f"name is a text; got {self.name!r}.")
        self._check_columns()
        self._check_choices()
        self._check_budget()
        self._check_numbers()
        self._check_shares()
        self._check_averaging()

    def _check_columns(self) -> None:
        if not self.features:
            raise StudyError("A study needs at least one feature column.")
        for column in (*self.features, self.target):
            if not isinstance(column, Column):
                raise StudyError(f"Features and target are Columns; got {column!r}. Write Column('age', 0, 120).")
        names = [column.name for column in (*self.features, self.target)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise StudyError(f"Column {repeated[0]!r} is named more than once; every column has one role.")
        if self.target.kind != "numeric":
            raise StudyError(
                f"Target {self.target.name!r} is {self.target.kind}; a linear regression needs a numeric target "
                "with bounds."
            )
        encoded = [feature.name for feature in self.encoded]
        if repeated := sorted({name for name in encoded if encoded.count(name) > 1}):
            raise StudyError(f"Two features would both be called {repeated[0]!r}; rename a column or a level.")

    def _check_choices(self) -> None:
        for key, allowed in (
            ("adjacency", Adjacency),
            ("mechanism", Mechanism),
            ("missing", Missing),
            ("statistics", Statistics),
        ):
            if getattr(self, key) not in get_args(allowed):
                raise StudyError(
                    f"{key} {getattr(self, key)!r} is not known; use one of {', '.join(get_args(allowed))}."
                )
        for key in ("intercept", "release_yy"):
            if not isinstance(getattr(self, key), bool):
                raise StudyError(f"{key} is true or false; got {getattr(self, key)!r}.")
        if self.missing == "drop" and self.adjacency == "replace-one":
            raise StudyError(
                "missing = 'drop' needs adjacency 'add-remove': dropping rows makes n depend on the data, and under "
                "'replace-one' n is published exactly. Use missing = 'centre', or adjacency = 'add-remove'."
            )
        if self.public_n is None:
            object.__setattr__(self, "public_n", self.adjacency == "replace-one")
        if not isinstance(self.public_n, bool):
            raise StudyError(f"public_n is true or false; got {self.public_n!r}.")
        if not self.public_n and self.adjacency == "replace-one":
            raise StudyError("Under adjacency 'replace-one' n is public by definition; leave public_n out.")
        if self.public_n and self.missing == "drop":
            raise StudyError("missing = 'drop' makes n depend on the data, so n can't be public; leave public_n out.")

    def _check_budget(self) -> None:
        epsilon, delta = self.epsilon, self.delta
        if not is_finite_number(epsilon) or not 0 < epsilon <= 100:
            raise StudyError(f"epsilon {epsilon!r} is out of range; it is above 0 and at most 100 (typical: 0.1 to 5).")
        if self.mechanism == "laplace":
            if delta not in (None, 0):
                raise StudyError(
                    f"The Laplace mechanism has no delta (it gives pure epsilon); got delta {delta!r}. Leave delta "
                    "out, or use mechanism = 'gaussian'."
                )
            delta = 0.0
        elif delta is None:
            raise StudyError("The Gaussian mechanism needs a delta; a common choice is well below 1/n, such as 1e-6.")
        elif not is_finite_number(delta) or not 1e-12 <= delta < 0.5:
            raise StudyError(f"delta {delta!r} is out of range; it is at least 1e-12 and below 0.5 (typical: 1e-6).")
        object.__setattr__(self, "epsilon", float(epsilon))
        object.__setattr__(self, "delta", float(delta))

    def _check_numbers(self) -> None:
        if not isinstance(self.bits, int) or isinstance(self.bits, bool) or not 8 <= self.bits <= 20:
            raise StudyError(f"bits {self.bits!r} is out of range; values keep 8 to 20 bits (16 by default).")
        if not isinstance(self.min_rows, int) or isinstance(self.min_rows, bool) or self.min_rows < 1:
            raise StudyError(f"min_rows {self.min_rows!r} is out of range; it is a whole number of at least 1.")
        if self.radius is None:
            object.__setattr__(self, "radius", self.full_radius)
        elif not is_finite_number(self.radius) or not 0 < self.radius <= self.full_radius * (1 + 1e-12):
            raise StudyError(
                f"radius {self.radius!r} is out of range; it is above 0 and at most {self.full_radius:.6g}, the "
                "largest norm that a row of these columns can have in scaled units."
            )
        object.__setattr__(self, "radius", min(float(cast(float, self.radius)), self.full_radius))

    def _check_shares(self) -> None:
        """What is released beside the Gram matrix has a share of the budget each, and the Gram matrix the rest."""
        asked = {
            "fourth_moments": MOST_FEATURES_WITH_FOURTH_MOMENTS,
            "smallest_eigenvalue": MOST_FEATURES_WITH_EIGENVALUE,
        }
        for key, most in asked.items():
            share = getattr(self, key)
            if not is_finite_number(share) or (share != 0 and not SMALLEST_SHARE <= share <= LARGEST_SHARES):
                raise StudyError(
                    f"{key} {share!r} is out of range; it is the share of the budget that goes to them, "
                    f"{SMALLEST_SHARE} to {LARGEST_SHARES}, or 0 to leave them out."
                )
            object.__setattr__(self, key, float(share))
            if share and self.statistics == "spread":
                raise StudyError(
                    f"statistics = 'spread' releases sums and squares of each column alone; leave {key} out, or use "
                    "statistics = 'gram'."
                )
            if share and self.d > most:
                raise StudyError(f"{key} with {self.d} encoded features is too much; it takes at most {most}.")
        if self.fourth_moments + self.smallest_eigenvalue > LARGEST_SHARES:
            raise StudyError(
                f"fourth_moments {self.fourth_moments:g} and smallest_eigenvalue {self.smallest_eigenvalue:g} leave "
                f"the Gram matrix less than {1 - LARGEST_SHARES:.1g} of the budget; together they are at most "
                f"{LARGEST_SHARES}."
            )

    def _check_averaging(self) -> None:
        k = self.average_rows
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise StudyError(f"average_rows {k!r} is out of range; it is a whole number, 1 to average nothing.")
        if k == 1:
            return
        if self.adjacency != "replace-one":
            raise StudyError(
                "average_rows needs adjacency 'replace-one': a row that is added or removed would move all rows after "
                "it into other groups. Use adjacency = 'replace-one', or average_rows = 1."
            )
        if self.statistics != "gram" or self.fourth_moments or self.smallest_eigenvalue:
            raise StudyError(
                "average_rows goes with the Gram matrix alone; leave fourth_moments, smallest_eigenvalue and "
                "statistics out, or use average_rows = 1."
            )
        if k << self.bits > 1 << LARGEST_SUM_BITS:
            raise StudyError(
                f"average_rows {k} at {self.bits} bits a value is too many for exact sums; it is at most "
                f"{1 << (LARGEST_SUM_BITS - self.bits)}. Lower 'bits', or average fewer rows."
            )

    @cached_property
    def encoded(self) -> tuple[Feature, ...]:
        """The features as the regression sees them."""
        out: list[Feature] = []
        for column in self.features:
            if column.kind == "categorical":
                for level in column.levels:
                    if level != column.baseline:
                        out.append(Feature(f"{column.name}[{level}]", column.name, level, 0.0, 1.0, 0.0))
            else:
                out.append(Feature(column.name, column.name, None, column.centre, column.half_width, -1.0))
        return tuple(out)

    @property
    def d(self) -> int:
        """How many encoded features there are, the intercept not counted."""
        return len(self.encoded)

    @property
    def full_radius(self) -> float:
        """The largest norm of an encoded row: one scaled unit a column (a row has one level a column)."""
        return math.sqrt(len(self.features))

    @property
    def shrinks(self) -> bool:
        """Whether the radius cuts rows that lie within the bounds."""
        return cast(float, self.radius) < self.full_radius

    def to_dict(self) -> dict[str, Any]:
        """The canonical form: every choice, defaults resolved."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("features", "target")},
            "features": [column.to_dict() for column in self.features],
            "target": self.target.to_dict(),
        }

    @classmethod
    def from_dict(cls, raw: Any, where: str = "study") -> Self:
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise StudyError(f"{where}: this is not a study (format = {FORMAT!r} is missing).")
        if raw.get("version") != VERSION:
            raise StudyError(
                f"{where}: version {raw.get('version')!r} is not known here; this package reads {VERSION}."
            )
        known = {f.name for f in fields(cls)} | {"format", "version"}
        if unknown := sorted(set(raw) - known):
            raise StudyError(f"{where}: unknown key {unknown[0]!r}; a study has {', '.join(sorted(known))}.")
        values = {key: value for key, value in raw.items() if key not in ("format", "version")}
        for key in ("features", "target", "epsilon"):
            if key not in values:
                raise StudyError(f"{where}: {key} is missing.")
        if not isinstance(values["features"], list):
            raise StudyError(f"{where}: features is a list of columns; got {values['features']!r}.")
        values["features"] = tuple(Column.from_dict(column, where) for column in values["features"])
        values["target"] = Column.from_dict(values["target"], where)
        return cls(**values)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a study from a TOML file."""
        try:
            raw = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise StudyError(f"{path}: no such file; 'noisewise study new {path}' writes one to start from.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise StudyError(f"{path}: can't be read ({error}).") from None
        except (ValueError, RecursionError) as error:  # also numbers and nesting beyond what Python reads
            raise StudyError(f"{path}: not a TOML file ({error}).") from None
        return cls.from_dict(raw, str(path))

    def save(self, path: str | Path) -> None:
        """Write the study as a TOML file that a person can read and edit."""
        try:
            Path(path).write_text(self.to_toml(), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{path}: can't be written ({error.strerror}); choose another place.") from None

    def to_toml(self) -> str:
        form = self.to_dict()
        columns = form.pop("features")
        target = form.pop("target")
        lines = [f"{key} = {_toml(value)}" for key, value in form.items()]
        lines += ["", "[target]", *(f"{key} = {_toml(value)}" for key, value in target.items())]
        for column in columns:
            lines += ["", "[[features]]", *(f"{key} = {_toml(value)}" for key, value in column.items())]
        return "\n".join(lines) + "\n"

    def difference(self, other: "Study") -> list[str]:
        """What two studies differ in, each as a phrase; of the features only the columns that differ."""
        mine, theirs = (_fields_to_compare(study) for study in (self, other))
        keys = list(dict.fromkeys([*mine, *theirs]))
        return [
            f"{key}: {mine.get(key, 'absent')!r} against {theirs.get(key, 'absent')!r}"
            for key in keys
            if mine.get(key) != theirs.get(key)
        ] or (["the order of the features"] if self != other else [])


def _fields_to_compare(study: Study) -> dict[str, Any]:
    form = study.to_dict()
    return {**{f"feature {column['name']!r}": column for column in form.pop("features")}, **form}


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    # a JSON text, whole number or truth value is a TOML one too, but for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
