"""A column of the holders' tables: its name, its public bounds or levels, and the features that it becomes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal, NamedTuple, Self, get_args

from noisewise.errors import StudyError

Kind = Literal["numeric", "boolean", "categorical"]


@dataclass(frozen=True)
class Column:
    """One column of the holders' tables: its name and what it may hold.

    ``Column("age", 18, 100)`` is numeric with public bounds; values beyond them are clipped.
    ``Column.boolean("smoker")`` holds true/false or 0/1. ``Column.categorical("ward", levels, baseline)``
    becomes one indicator per level but the baseline.
    """

    name: str
    lower: float = math.nan
    upper: float = math.nan
    kind: Kind = "numeric"
    levels: tuple[str, ...] = ()
    baseline: str = ""

    def __post_init__(self) -> None:
        if not is_text(self.name) or not self.name.strip():
            raise StudyError(f"A column needs a name that is not empty and that a file can hold; got {self.name!r}.")
        if self.kind not in get_args(Kind):
            raise StudyError(
                f"Column {self.name!r}: kind {self.kind!r} is not known; use one of {', '.join(get_args(Kind))}."
            )
        if self.kind != "numeric":
            self._fix_bounds()
        if self.kind == "categorical":
            self._check_levels()
        else:
            self._check_bounds()

    def _fix_bounds(self) -> None:
        """0 and 1, which may also be given, since a copy with another name gives them."""
        for side, fixed in (("lower", 0.0), ("upper", 1.0)):
            value = getattr(self, side)
            if value != fixed and value == value:
                raise StudyError(f"Column {self.name!r}: bounds belong to numeric columns only; it is {self.kind}.")
            object.__setattr__(self, side, fixed)

    def _check_levels(self) -> None:
        levels = _levels(self.name, self.levels)
        if not all(is_text(level) for level in levels):
            raise StudyError(f"Column {self.name!r}: levels are texts; write numbers in quotes.")
        if len(levels) < 2 or len(set(levels)) != len(levels):
            raise StudyError(
                f"Column {self.name!r}: a categorical column needs at least two different levels; got {list(levels)}."
            )
        if self.baseline not in levels:
            raise StudyError(
                f"Column {self.name!r}: baseline {self.baseline!r} is not one of its levels {list(levels)}; "
                "name the level that the others are compared with."
            )
        object.__setattr__(self, "levels", levels)

    def _check_bounds(self) -> None:
        if self.levels or self.baseline:
            raise StudyError(f"Column {self.name!r}: levels and baseline belong to categorical columns only.")
        for side in ("lower", "upper"):
            value = getattr(self, side)
            if not is_finite_number(value):
                raise StudyError(
                    f"Column {self.name!r}: {side} bound {value!r} is not a finite number; give public bounds "
                    "that you know without looking at the data, such as Column('age', 0, 120)."
                )
            object.__setattr__(self, side, float(value) + 0.0)  # so that -0.0 is 0.0
        if not self.lower < self.upper:
            raise StudyError(
                f"Column {self.name!r}: lower bound {self.lower:g} is not below upper bound {self.upper:g}; swap them "
                "or widen them."
            )
        if not math.isfinite(self.upper - self.lower) or self.half_width < 1e-300:
            raise StudyError(
                f"Column {self.name!r}: bounds {self.lower:g} to {self.upper:g} are too far apart or too close "
                "for floating-point numbers; change the column's unit."
            )

    @classmethod
    def boolean(cls, name: str) -> Self:
        """A column of true/false or 0/1."""
        return cls(name, kind="boolean")

    @classmethod
    def categorical(cls, name: str, levels: Sequence[str], baseline: str | None = None) -> Self:
        """A column of declared levels; the baseline (by default the first) has no indicator of its own."""
        levels = _levels(name, levels)
        if baseline is None:
            baseline = levels[0] if levels else ""
        return cls(name, kind="categorical", levels=levels, baseline=baseline)

    @property
    def centre(self) -> float:
        """The value that is 0 in scaled units."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def half_width(self) -> float:
        """How many of the user's units are one scaled unit."""
        return (self.upper - self.lower) / 2

    def level_of(self, value: object) -> str | None:
        """The level that a value stands for, as a person would write it (3 and 3.0 are "3"); None if there is none."""
        texts = [str(value)]
        if isinstance(value, bool):
            texts += [str(value).lower(), str(int(value))]
        elif isinstance(value, float) and value.is_integer():
            texts.append(str(int(value)))
        return next((text for text in texts if text in self.levels), None)

    def to_dict(self) -> dict[str, Any]:
        if self.kind == "numeric":
            return {"name": self.name, "lower": self.lower, "upper": self.upper}
        if self.kind == "boolean":
            return {"name": self.name, "kind": "boolean"}
        return {"name": self.name, "kind": "categorical", "levels": list(self.levels), "baseline": self.baseline}

    @classmethod
    def from_dict(cls, raw: Any, where: str) -> Self:
        if not isinstance(raw, dict):
            raise StudyError(f"{where}: a column is a table of name, lower, upper; got {raw!r}.")
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(raw) - known):
            raise StudyError(f"{where}: unknown key {unknown[0]!r}; a column has {', '.join(sorted(known))}.")
        raw = dict(raw)
        if "levels" in raw:
            raw["levels"] = _levels(str(raw.get("name")), raw["levels"])
            raw.setdefault("kind", "categorical")
            raw.setdefault("baseline", raw["levels"][0] if raw["levels"] else "")
        return cls(raw.pop("name", ""), **raw)


class Feature(NamedTuple):
    """One encoded feature: an affine image of a column, or the indicator of one level of it.

    The scaled value is ``(value - centre) / half_width`` and lies in ``[lowest, 1]``: -1 to 1 for numbers
    and booleans, 0 to 1 for indicators (so that a whole categorical column has norm at most 1).
    """

    name: str
    column: str
    level: str | None
    centre: float
    half_width: float
    lowest: float


def is_finite_number(value: object) -> bool:
    """Whether a value is a real, finite number: Python's or NumPy's, no truth value."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond floating point
        return False


def is_text(value: object) -> bool:
    """A text that UTF-8 can hold: no lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _levels(name: str, levels: Any) -> tuple[str, ...]:
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise StudyError(f"Column {name!r}: levels are a list of texts; got {levels!r}.")
    return tuple(levels)
