"""Which numbers a study releases: one vector of entries, made of blocks.

An entry is a multi-index into a row w = (1, x, y), the constant first: (0, 0) is n, (0, i) a sum, (i, j) a sum of
products, (i, j, k, l) one of products of four. A *block* is a set of entries that one sensitivity bounds
(privacy/sensitivity.py) and that has one share of the study's budget:

    gram         the entries of A = sum of ww' that a regression needs           always, unless the study says spread
    spread       n, and of every column its sum and its sum of squares           statistics = "spread"
    fourth       third (beside an intercept) and fourth moments of x             fourth_moments = share
    eigenvalue   the smallest eigenvalue of S                                    smallest_eigenvalue = share

The first block begins with n. All entries are whole numbers in units of 2^-2q, so that noise, shares and sums have one
grid. Where rows are averaged in groups of k, an entry is the sum over groups of products of the groups' *sums*:
k^2 times what it would be for averages.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from noisewise.study import MOST_FEATURES_WITH_FOURTH_MOMENTS, Statistics, Study

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BlockName = Literal["gram", "spread", "fourth", "eigenvalue"]

CONSTANT = "(constant)"
BLOCK_WORDS = {
    "gram": "the Gram matrix",
    "spread": "sums and squares of columns",
    "fourth": "third and fourth moments",
    "eigenvalue": "the smallest eigenvalue",
}
# The weight of a sum of squares beside a sum, squared; privacy/blocks.py proves that it is free.
SPREAD_WEIGHT_SQUARED = ((1 + math.sqrt(5)) / 2) ** 5 / 4


class Sufficient(NamedTuple):
    """Noisy (or exact) statistics in scaled units, with the noise's standard deviation for each entry (0: exact).

    With an intercept S and z include the constant, first: S[0, 0] is n, S[0, 1:] sum x, z[0] sum y. Of averaged rows
    it is all as if the averages were the rows.
    """

    n: float
    S: Floats
    z: Floats
    u: float | None
    sd_n: float
    sd_S: Floats
    sd_z: Floats
    sd_u: float


class Spread(NamedTuple):
    """Sums and sums of squares of every column (features, then the target) in scaled units; noise_* are its sds.

    The spreads of several holders are pooled by ``Spread.of``.
    """

    n: float
    sums: Floats
    squares: Floats
    noise_n: float
    noise_sums: Floats
    noise_squares: Floats

    @classmethod
    def of(cls, spreads: "Sequence[Spread]") -> "Spread":
        """All rows of all holders together: sums add up, and so do the variances of their noise."""
        return cls(
            n=sum(spread.n for spread in spreads),
            sums=np.sum([spread.sums for spread in spreads], axis=0),
            squares=np.sum([spread.squares for spread in spreads], axis=0),
            noise_n=math.hypot(*(spread.noise_n for spread in spreads)),
            noise_sums=np.linalg.norm([spread.noise_sums for spread in spreads], axis=0),
            noise_squares=np.linalg.norm([spread.noise_squares for spread in spreads], axis=0),
        )

    @property
    def mean(self) -> Floats:
        """Within the bounds, whatever the noise says."""
        return np.asarray(np.clip(self.sums / self._rows, -1.0, 1.0))

    @property
    def sd(self) -> Floats:
        """0 where noise has made the variance negative, and at most 1, as in the bounds."""
        return np.sqrt(np.clip(self.squares / self._rows - self.mean**2, 0.0, 1.0))

    @property
    def noise_mean(self) -> Floats:
        return np.asarray(self.noise_sums / self._rows)

    @property
    def noise_sd(self) -> Floats:
        """The noise's standard deviation on ``sd``, to first order; where sd is as small as that, the order of it."""
        variance = np.sqrt((self.noise_squares / self._rows) ** 2 + (2 * self.mean * self.noise_mean) ** 2)
        return np.asarray(variance / np.maximum(2 * self.sd, np.maximum(np.sqrt(variance), 1e-300)))

    @property
    def _rows(self) -> float:
        return max(self.n, 1.0)


class Block(NamedTuple):
    """Entries with one bound and one share of the budget.

    ``weights`` are the coordinates in which Gaussian noise is isotropic: sensitivity and noise are measured after this
    scaling. The entries of an ``additive`` block add up over holders.
    """

    name: BlockName
    share: float
    entries: tuple[tuple[int, ...], ...]
    weights: Floats
    additive: bool = True


@dataclass(frozen=True)
class Layout:
    """The released entries, block after block; n is always the first of them."""

    d: int
    intercept: bool
    release_yy: bool
    statistics: Statistics = "gram"
    fourth_moments: float = 0.0
    smallest_eigenvalue: float = 0.0
    average_rows: int = 1

    def __post_init__(self) -> None:
        """A file may say anything; what it says must at least not take for ever to list."""
        if (
            self.statistics not in get_args(Statistics)
            or not isinstance(self.average_rows, int)
            or self.average_rows < 1
        ):
            raise ValueError(f"no layout has statistics {self.statistics!r} and average_rows {self.average_rows!r}")
        shares = (self.fourth_moments, self.smallest_eigenvalue)
        if not all(isinstance(share, float) and share >= 0.0 for share in shares) or sum(shares) >= 1.0:
            raise ValueError(f"shares of the budget {shares!r} are not numbers from 0 to below 1")
        if self.fourth_moments and self.d > MOST_FEATURES_WITH_FOURTH_MOMENTS:
            raise ValueError(f"{self.d} features are too many for fourth moments")

    @classmethod
    def of(cls, study: Study) -> "Layout":
        return cls(
            study.d,
            study.intercept,
            study.release_yy,
            study.statistics,
            study.fourth_moments,
            study.smallest_eigenvalue,
            study.average_rows,
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        share = 1.0 - (self.fourth_moments + self.smallest_eigenvalue)
        blocks = [Block(self.statistics, share, self.pairs, self._pair_weights())]
        if self.fourth_moments:
            entries = self._fourth_entries()
            often = np.array([orders(entry) for entry in entries], dtype=float)
            blocks.append(Block("fourth", self.fourth_moments, entries, np.sqrt(often)))
        if self.smallest_eigenvalue:
            blocks.append(Block("eigenvalue", self.smallest_eigenvalue, ((),), np.ones(1), additive=False))
        return tuple(blocks)

    @property
    def additive(self) -> bool:
        """Whether the vectors of several holders add up to the vector of their tables put together."""
        return all(block.additive for block in self.blocks)

    @cached_property
    def entries(self) -> tuple[tuple[int, ...], ...]:
        """All entries of the vector, in order."""
        return tuple(entry for block in self.blocks for entry in block.entries)

    @cached_property
    def weights(self) -> Floats:
        """The weights of all entries, in order; see ``Block``."""
        return np.concatenate([block.weights for block in self.blocks])

    def where(self, name: BlockName) -> slice | None:
        """The part of the vector that is this block; None if it is not released."""
        start = 0
        for block in self.blocks:
            if block.name == name:
                return slice(start, start + len(block.entries))
            start += len(block.entries)
        return None

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(row, column) in A of every entry of the first block."""
        y = self.d + 1
        if self.statistics == "spread":
            return (*((0, j) for j in range(y + 1)), *((j, j) for j in range(1, y + 1)))
        out = [(0, 0)]
        if self.intercept:
            out += [(0, j) for j in range(1, y + 1)]
        out += [(i, j) for i in range(1, y) for j in range(i, y + 1)]
        if self.release_yy:
            out.append((y, y))
        return tuple(out)

    def _pair_weights(self) -> Floats:
        """For the Gram matrix svec coordinates: 1 on the diagonal, sqrt 2 off it, so that lengths are Frobenius norms.

        Where u is not released, z stands beside svec(S) with weight 1. For the spread: 1 on sums and on squares the
        weight that costs nothing.
        """
        if self.statistics == "spread":
            return np.sqrt([1.0 if i == 0 else SPREAD_WEIGHT_SQUARED for i, _ in self.pairs])
        y = self.d + 1
        return np.array([1.0 if i == j or (j == y and not self.release_yy) else math.sqrt(2.0) for i, j in self.pairs])

    def _fourth_entries(self) -> tuple[tuple[int, ...], ...]:
        """(i, j, k, l) in ascending order; 0 is the constant. What holds two of it is in the Gram matrix already."""
        features = range(1, self.d + 1)
        third = [(0, *entry) for entry in combinations_with_replacement(features, 3)] if self.intercept else []
        return (*third, *combinations_with_replacement(features, 4))

    def pick(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The first block of the vector, from A."""
        i, j = np.array(self.pairs).T
        return np.asarray(matrix[i, j])

    def place(self, values: Floats) -> Floats:
        """The inverse of pick: A with NaN where nothing was released; later blocks of the vector are left aside."""
        matrix = np.full((self.d + 2, self.d + 2), np.nan)
        i, j = np.array(self.pairs).T
        matrix[i, j] = matrix[j, i] = np.asarray(values)[: len(self.pairs)]
        return matrix / self.average_rows**2

    def sufficient(self, values: Floats, sds: Floats) -> Sufficient:
        """The parts of A that a regression needs, from the vector."""
        if self.statistics != "gram":
            raise ValueError("A layout of the spread has no S and z.")
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

    def entry_names(self, features: tuple[str, ...], target: str) -> tuple[str, ...]:
        """What each released entry is, in words: 'n', 'sum age', 'age * bmi', 'age * age * bmi'."""
        names = (CONSTANT, *features, target)
        return tuple(_in_words(entry, names) for entry in self.entries)


def _in_words(entry: tuple[int, ...], names: tuple[str, ...]) -> str:
    if not entry:
        return "smallest eigenvalue"
    factors = [names[i] for i in entry if i]
    return "n" if not factors else f"sum {factors[0]}" if len(factors) == 1 else " * ".join(factors)


def orders(entry: tuple[object, ...]) -> int:
    """In how many orders the indices can be written: how often the entry stands in the whole symmetric tensor."""
    out = math.factorial(len(entry))
    for times in Counter(entry).values():
        out //= math.factorial(times)
    return out
