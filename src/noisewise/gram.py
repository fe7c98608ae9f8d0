"""The secret sums of one holder: the augmented Gram matrix, and where a study asks for them the fourth moments.

A row is w = (1, x, y) in scaled units: the constant, d features, the target. A = sum of w w' over the rows has
the blocks  n, sum x, sum y / S = X'X, z = X'y / u = y'y.  A holder keeps A as exact integers in units of
2^-2q (with 2q + log2(rows of a chunk) <= 53 a float64 product of integers is exact, and chunks add up in
int64 while 2q + log2 n <= 62), so A does not depend on the engine, the chunks or the order of the rows.

**Fourth moments.** Of each row the products b_i b_j of b = (1, x), or of x without an intercept, are truncated towards
zero to units of 2^-q; their Gram matrix has the fourth moments, in the same units and with the same exactness as A.
Truncation makes numbers smaller in size and keeps their signs, so what bounds the products bounds these.

**Averaged rows.** With groups of k rows, w is the sum of a group, at most k 2^q in size: 2 log2 k more bits.
"""

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from noisewise.errors import DataError
from noisewise.layout import CONSTANT, Floats, Integers, Layout, Sufficient
from noisewise.study import Study

# Values in the buffer for products of two columns, 8 bytes each.
BUFFER_VALUES = 1 << 20


def max_chunk_rows(bits: int, average_rows: int = 1) -> int:
    """The most rows (or groups) whose integer Gram matrix a float64 product holds exactly."""
    return (1 << (53 - 2 * bits)) // average_rows**2


def max_rows(bits: int, average_rows: int = 1) -> int:
    """The most rows (or groups) whose integer Gram matrix fits int64 with room for noise."""
    return (1 << (62 - 2 * bits)) // average_rows**2


@dataclass(frozen=True, eq=False, repr=False)
class Gram:
    """The exact integer sums of one holder. They are as secret as the rows: they can't be printed or pickled.

    ``pairs`` is the Gram matrix of the products of two, or None where the study does not release fourth moments.
    """

    matrix: Integers
    bits: int
    average_rows: int = 1
    first: int = 0
    pairs: Integers | None = None

    @classmethod
    def empty(cls, study: Study) -> "Gram":
        order, first = study.d + 2, 0 if study.intercept else 1
        p = order - 1 - first
        size = p * (p + 1) // 2
        pairs = np.zeros((size, size), dtype=np.int64) if study.fourth_moments else None
        return cls(np.zeros((order, order), dtype=np.int64), study.bits, study.average_rows, first, pairs)

    def add_chunk(self, w: Floats) -> "Gram":
        """A with more rows; w is (d+2, rows), integer-valued, at most 2^q in size, constant row first.

        With averaging, w are sums of groups, at most k 2^q in size.
        """
        most = max_chunk_rows(self.bits, self.average_rows)
        if w.shape[1] > most:
            raise ValueError(f"A chunk of {w.shape[1]} rows is not exact; at most {most}.")
        self._check_room_for(w.shape[1])
        pairs = None if self.pairs is None else self.pairs + self._of_products(w[self.first : -1])
        return replace(self, matrix=self.matrix + (w @ w.T).astype(np.int64), pairs=pairs)

    def _of_products(self, b: Floats) -> Integers:
        """The Gram matrix of trunc(b_i b_j / 2^q), i <= j: each a single exact operation on whole numbers."""
        i, j = np.triu_indices(b.shape[0])
        total = np.zeros((i.size, i.size), dtype=np.int64)
        step = max(1, BUFFER_VALUES // i.size)
        for start in range(0, b.shape[1], step):
            part = b[:, start : start + step]
            products = part[i] * part[j]
            np.trunc(np.ldexp(products, -self.bits), out=products)
            total += (products @ products.T).astype(np.int64)
        return total

    def _check_room_for(self, more: int) -> None:
        most = max_rows(self.bits, self.average_rows)
        if self._groups + more > most:
            raise DataError(
                f"The table has more than {most * self.average_rows:,} rows; their sums would overflow 64-bit integers "
                f"at {self.bits} bits a value. Lower 'bits' in the study, or release the table in parts."
            )

    def __add__(self, other: "Gram") -> "Gram":
        mine, theirs = ((g.bits, g.average_rows, g.first, g.matrix.shape, g.pairs is None) for g in (self, other))
        if mine != theirs:
            raise ValueError("Gram matrices of different studies can't be added.")
        self._check_room_for(other._groups)
        pairs = None if self.pairs is None or other.pairs is None else self.pairs + other.pairs
        return replace(self, matrix=self.matrix + other.matrix, pairs=pairs)

    @property
    def _groups(self) -> int:
        return (int(self.matrix[0, 0]) >> (2 * self.bits)) // self.average_rows**2

    @property
    def rows(self) -> int:
        """How many rows are in the sums."""
        return self._groups * self.average_rows

    def entries(self, layout: Layout) -> Integers:
        """The vector that is released, before noise."""
        parts = [layout.pick(self.matrix)]
        for block in layout.blocks[1:]:
            if block.name == "fourth":
                parts.append(self._fourth(block.entries))
            else:
                from noisewise.eigenvalue import smallest_eigenvalue

                parts.append(np.array([smallest_eigenvalue(self.matrix[self.first : -1, self.first : -1], self.bits)]))
        return np.concatenate(parts)

    def _fourth(self, entries: tuple[tuple[int, ...], ...]) -> Integers:
        if self.pairs is None:
            raise ValueError("These sums were made by a study without fourth moments.")
        p = self.matrix.shape[0] - 1 - self.first
        number = np.zeros((p, p), dtype=np.int64)
        rows, columns = np.triu_indices(p)
        number[rows, columns] = np.arange(rows.size)
        i, j, k, l = np.array(entries).T - self.first  # noqa: E741
        return np.asarray(self.pairs[number[i, j], number[k, l]])

    def __repr__(self) -> str:
        return "<Gram: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Gram matrix is secret and is not pickled.")


__all__ = ["CONSTANT", "Floats", "Gram", "Integers", "Layout", "Sufficient", "max_chunk_rows", "max_rows"]
