"""The augmented Gram matrix: what a holder computes, which of its entries are released, and where they go.

A row is w = (1, x, y) in scaled units: the constant, d features, the target. A = sum of w w' over the rows has
the blocks  n, sum x, sum y / S = X'X, z = X'y / u = y'y.  A holder keeps A as exact integers in units of
2^-2q (with 2q + log2(rows of a chunk) <= 53 a float64 product of integers is exact, and chunks add up in
int64 while 2q + log2 n <= 62), so A does not depend on the engine, the chunks or the order of the rows.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from noisewise.errors import DataError
from noisewise.study import Study

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CONSTANT = "(constant)"


def max_chunk_rows(bits: int) -> int:
    """The most rows whose integer Gram matrix a float64 product holds exactly."""
    return 1 << (53 - 2 * bits)


def max_rows(bits: int) -> int:
    """The most rows whose integer Gram matrix fits int64 with room for noise."""
    return 1 << (62 - 2 * bits)


@dataclass(frozen=True, eq=False, repr=False)
class Gram:
    """The exact integer matrix A of one holder. It is as secret as the rows: it can't be printed or pickled."""

    matrix: Integers
    bits: int

    @classmethod
    def empty(cls, study: Study) -> "Gram":
        order = study.d + 2
        return cls(np.zeros((order, order), dtype=np.int64), study.bits)

    def add_chunk(self, w: Floats) -> "Gram":
        """A with more rows; w is (d+2, rows), integer-valued, at most 2^q in size, constant row first."""
        if w.shape[1] > max_chunk_rows(self.bits):
            raise ValueError(f"A chunk of {w.shape[1]} rows is not exact; at most {max_chunk_rows(self.bits)}.")
        self._check_room_for(w.shape[1])
        return Gram(self.matrix + (w @ w.T).astype(np.int64), self.bits)

    def _check_room_for(self, more: int) -> None:
        if self.rows + more > max_rows(self.bits):
            raise DataError(
                f"The table has more than {max_rows(self.bits):,} rows; their sums would overflow 64-bit integers "
                f"at {self.bits} bits a value. Lower 'bits' in the study, or release the table in parts."
            )

    def __add__(self, other: "Gram") -> "Gram":
        if self.bits != other.bits or self.matrix.shape != other.matrix.shape:
            raise ValueError("Gram matrices of different studies can't be added.")
        self._check_room_for(other.rows)
        return Gram(self.matrix + other.matrix, self.bits)

    @property
    def rows(self) -> int:
        return int(self.matrix[0, 0]) >> (2 * self.bits)

    def __repr__(self) -> str:
        return "<Gram: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Gram matrix is secret and is not pickled.")


class Sufficient(NamedTuple):
    """Noisy (or exact) statistics in scaled units, with the noise's standard deviation for each entry (0: exact).

    With an intercept S and z include the constant, first: S[0, 0] is n, S[0, 1:] sum x, z[0] sum y.
    """

    n: float
    S: Floats
    z: Floats
    u: float | None
    sd_n: float
    sd_S: Floats
    sd_z: Floats
    sd_u: float


@dataclass(frozen=True)
class Layout:
    """The released entries of A, in row-major order of its upper triangle; n is always the first of them."""

    d: int
    intercept: bool
    release_yy: bool

    @classmethod
    def of(cls, study: Study) -> "Layout":
        return cls(study.d, study.intercept, study.release_yy)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of every released entry."""
        y = self.d + 1
        out = [(0, 0)]
        if self.intercept:
            out += [(0, j) for j in range(1, y + 1)]
        out += [(i, j) for i in range(1, y) for j in range(i, y + 1)]
        if self.release_yy:
            out.append((y, y))
        return tuple(out)

    def pick(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The released entries of A as a vector."""
        i, j = np.array(self.pairs).T
        return np.asarray(matrix[i, j])

    def place(self, values: Floats) -> Floats:
        """The inverse of pick: A with NaN where nothing was released."""
        matrix = np.full((self.d + 2, self.d + 2), np.nan)
        i, j = np.array(self.pairs).T
        matrix[i, j] = matrix[j, i] = values
        return matrix

    def sufficient(self, values: Floats, sds: Floats) -> Sufficient:
        """The blocks of A from its released entries."""
        first, y = (0 if self.intercept else 1), self.d + 1
        a, sd = self.place(values), self.place(sds)
        return Sufficient(
            n=float(a[0, 0]),
            S=a[first:y, first:y].copy(),
            z=a[first:y, y].copy(),
            u=float(a[y, y]) if self.release_yy else None,
            sd_n=float(sd[0, 0]),
            sd_S=sd[first:y, first:y].copy(),
            sd_z=sd[first:y, y].copy(),
            sd_u=float(sd[y, y]) if self.release_yy else 0.0,
        )

    @property
    def weights(self) -> Floats:
        """The coordinates in which noise is isotropic: sensitivity and noise are measured after this scaling.

        They are svec coordinates of the released matrix: 1 on the diagonal, sqrt 2 off it, so that the Euclidean norm
        is the Frobenius norm. Where u is not released, z stands beside svec(S) with weight 1.
        """
        y = self.d + 1
        return np.array([1.0 if i == j or (j == y and not self.release_yy) else math.sqrt(2.0) for i, j in self.pairs])

    def entry_names(self, features: tuple[str, ...], target: str) -> tuple[str, ...]:
        """What each released entry is, in words: 'n', 'sum age', 'age * bmi'."""
        names = (CONSTANT, *features, target)
        return tuple(
            "n" if (i, j) == (0, 0) else f"sum {names[j]}" if i == 0 else f"{names[i]} * {names[j]}"
            for i, j in self.pairs
        )
