r"""Rows become integers, exactly as every other holder's do.

A value v of a column with bounds [l, u], centre c and half width h becomes trunc(clip((v - c) * (2^q / h))), where
clip is to the images of l and u, so it is the image of v clipped to its bounds. These are single IEEE operations on one
value each: they give the same bits on every machine, in every chunk, in any order. The image grows with v (each
operation is monotone), so when the smallest and the largest value of a chunk need no clipping, none does.

**The ball.** If the study has a radius R below the full one, rows outside are shrunk before truncation. Rounding must
not carry a row over the edge, because sensitivity counts on it, so rows are shrunk onto r = R (1 - 2^-40), and only
rows beyond r are touched. With u = 2^-53, the computed square norm of d values is at least |x|^2 (1 - (d + 1) u), so
an untouched row has |x| <= r (1 + (d + 4) u). A touched one is multiplied by r / sqrt(square norm), computed within a
factor 1 + 3u, and each product is rounded once more: |x| <= r (1 + (d + 8) u). Both are at most R while
(d + 8) 2^-53 <= 2^-40, that is d <= 8184. Truncation towards zero then only makes every coordinate smaller.

A missing value that the study lets be encoded is the centre of its bounds, 0 in scaled units; for a categorical column
all indicators are 0, so the row counts as the baseline level.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from noisewise.column import Column
from noisewise.errors import DataError, StudyError
from noisewise.gram import Floats
from noisewise.holder.columns import MISSING, level_positions, numbers
from noisewise.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

Flags = NDArray[np.bool_]

SAFETY = 1 - 2.0**-40
MOST_FEATURES = 8184


@dataclass(frozen=True)
class RowReport:
    """What happened to the rows. It is for the holder alone: counts of rows are not private, and in no Release."""

    read: int
    used: int
    dropped: int
    missing: int
    clipped: int
    shrunk: int
    missing_by_column: Mapping[str, int]
    clipped_by_column: Mapping[str, int]
    left_over: int = 0

    def __str__(self) -> str:
        counts = {
            "rows read": self.read,
            "rows used": self.used,
            "rows dropped for a missing value": self.dropped,
            "rows left out at the end, too few for a group": self.left_over,
            "rows with a missing value put at its centre": self.missing - self.dropped,
            "rows with a value clipped to its bounds": self.clipped,
            "rows shrunk onto the radius": self.shrunk,
        }
        lines = [f"{what}: {count:,}" for what, count in counts.items() if count or what.endswith(("read", "used"))]
        for what, columns in (("missing", self.missing_by_column), ("clipped", self.clipped_by_column)):
            lines += [f"  values {what} in {name}: {count:,}" for name, count in columns.items() if count]
        return "\n".join(lines)


class _Affine(NamedTuple):
    """The map of one numeric column to integers, and where clipping starts."""

    column: Column
    centre: float
    factor: float
    low: float
    high: float
    always_clip: bool

    @classmethod
    def of(cls, column: Column, one: float) -> "_Affine":
        factor = one / column.half_width
        low, high = ((bound - column.centre) * factor for bound in (column.lower, column.upper))
        # The centre of very narrow bounds is rounded; then the images of the bounds may be beyond 2^q.
        beyond = bool(np.trunc(max(-low, high)) > one)
        return cls(column, column.centre, factor, max(low, -one), min(high, one), beyond)


class _Marks:
    """Which rows of a chunk had something done to them; made only when something is."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._flags: dict[str, Flags] = {}

    def add(self, what: str, where: Flags) -> None:
        flags = self._flags.setdefault(what, np.zeros(self._rows, dtype=bool))
        np.logical_or(flags, where, out=flags)

    def get(self, what: str) -> Flags | None:
        return self._flags.get(what)

    def count(self, what: str) -> int:
        flags = self._flags.get(what)
        return 0 if flags is None else int(np.count_nonzero(flags))


class Encoder:
    """Turns batches of the study's columns into integer rows, and counts what it had to do to them."""

    def __init__(self, study: Study) -> None:
        if study.d > MOST_FEATURES:
            raise StudyError(f"{study.d} encoded features are too many; a study has at most {MOST_FEATURES}.")
        self._study = study
        self._columns = (*study.features, study.target)
        self._one = float(1 << study.bits)
        self._affine = {
            column.name: _Affine.of(column, self._one) for column in self._columns if column.kind != "categorical"
        }
        self._totals = dict.fromkeys(("read", "used", "missing", "clipped", "shrunk"), 0)
        self._missing = dict.fromkeys((column.name for column in self._columns), 0)
        self._clipped = dict.fromkeys(self._affine, 0)

    def encode(self, batch: "pa.RecordBatch", first_row: int = 0, out: Floats | None = None) -> Floats:
        """The rows of a batch (features in order, then the target) as a (d + 2, rows) array of whole numbers.

        The first row of the array is the constant 2^q, the last the target. ``first_row`` is how many rows came before
        (for messages). ``out`` is a buffer of the same shape to be used instead of a new array; what is returned is a
        view of it, narrower if rows were dropped.
        """
        rows = batch.num_rows
        w = np.empty((self._study.d + 2, rows)) if out is None else out
        marks = _Marks(rows)
        w[0] = self._one
        at = 1
        with np.errstate(over="ignore"):  # values far beyond their bounds; they are clipped
            for position, column in enumerate(self._columns):
                array = batch.column(position)
                if column.kind == "categorical":
                    at = self._indicators(array, column, w, at, first_row, marks)
                else:
                    self._scale(numbers(array, column, first_row), self._affine[column.name], w[at], first_row, marks)
                    at += 1
        if self._study.shrinks:
            self._shrink(w[1:-1], marks)
            np.trunc(w, out=w)
        return self._finish(w, marks)

    def _scale(self, values: NDArray[np.generic], affine: _Affine, out: Floats, first_row: int, marks: _Marks) -> None:
        """One numeric column; two looks at its smallest and largest value tell whether all is in order."""
        column = affine.column
        if values.dtype != np.float64:
            np.copyto(out, values, casting="unsafe")
            values = out
        least, most = np.minimum.reduce(values, initial=np.inf), np.maximum.reduce(values, initial=-np.inf)
        if least != least:  # NaN
            missing = np.isnan(values)
            self._handle_missing(missing, column, first_row, marks)
            np.copyto(out, values)
            out[missing] = affine.centre
            values = out
            least, most = values.min(), values.max()
        clip = affine.always_clip
        if least < column.lower or most > column.upper:
            self._note_clipped(values, column, first_row, marks)
            clip = True
        np.subtract(values, affine.centre, out=out)
        np.multiply(out, affine.factor, out=out)
        if clip:
            np.clip(out, affine.low, affine.high, out=out)
        if not self._study.shrinks:
            np.trunc(out, out=out)

    def _indicators(self, array: "pa.Array", column: Column, w: Floats, at: int, first_row: int, marks: _Marks) -> int:
        positions = level_positions(array, column, first_row)
        missing = positions == MISSING
        if missing.any():
            self._handle_missing(missing, column, first_row, marks)
        for position, level in enumerate(column.levels):
            if level != column.baseline:
                np.multiply(positions == position, self._one, out=w[at])
                at += 1
        return at

    def _handle_missing(self, missing: Flags, column: Column, first_row: int, marks: _Marks) -> None:
        count = int(np.count_nonzero(missing))
        if self._study.missing == "refuse":
            raise DataError(
                f"Column {column.name!r}, row {first_row + int(missing.argmax()) + 1}: the value is missing"
                + (f", and {count - 1} more soon after" if count > 1 else "")
                + ". This study refuses missing values: fill them in before the release, or agree on a study with "
                "missing = 'centre', or with missing = 'drop' and adjacency = 'add-remove'."
            )
        self._missing[column.name] += count
        marks.add("missing", missing)

    def _note_clipped(self, values: NDArray[np.generic], column: Column, first_row: int, marks: _Marks) -> None:
        numbers_ = values.astype(np.float64, copy=False)
        infinite = np.isinf(numbers_)
        if infinite.any():
            raise DataError(
                f"Column {column.name!r}, row {first_row + int(infinite.argmax()) + 1}: the value is infinite. Replace "
                "it by a number, or by a missing value if the study allows them."
            )
        beyond = (numbers_ < column.lower) | (numbers_ > column.upper)
        self._clipped[column.name] += int(np.count_nonzero(beyond))
        marks.add("clipped", beyond)

    def _shrink(self, x: Floats, marks: _Marks) -> None:
        """Rows beyond the ball, onto it; the features are added up in order, so that chunks can't change the sum."""
        edge = (self._study.radius or 0.0) * self._one
        radius = edge * SAFETY
        square = np.multiply(x[0], x[0])
        for row in x[1:]:
            square += row * row
        outside = square > radius * radius
        if outside.any():
            marks.add("shrunk", square > edge * edge)  # a row on the edge loses nothing that matters
            factor = np.ones(x.shape[1])
            np.divide(radius, np.sqrt(square), out=factor, where=outside)
            x *= factor

    def _finish(self, w: Floats, marks: _Marks) -> Floats:
        self._totals["read"] += w.shape[1]
        for what in ("missing", "clipped", "shrunk"):
            self._totals[what] += marks.count(what)
        missing = marks.get("missing")
        if self._study.missing == "drop" and missing is not None:
            kept = w[:, ~missing]
            w = w[:, : kept.shape[1]]
            w[...] = kept
        self._totals["used"] += w.shape[1]
        return w

    def report(self, left_over: int = 0) -> RowReport:
        """What was done to all rows so far; ``left_over`` of them were encoded and not used."""
        totals = self._totals
        return RowReport(
            **{**totals, "used": totals["used"] - left_over},
            left_over=left_over,
            dropped=totals["read"] - totals["used"],
            missing_by_column=dict(self._missing),
            clipped_by_column=dict(self._clipped),
        )

    def __repr__(self) -> str:
        return f"<Encoder of study {self._study.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("An encoder has counts of rows, which are secret, and is not pickled.")
