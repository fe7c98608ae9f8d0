"""What the archive holds of a cell, and what it says: uniformity of ranks, coverage, divergences."""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from experiments.sbc.cells import LEVEL, RANKED, Cell
from experiments.sbc.fits import ENOUGH
from noisewise.evaluation.calibration import Band, Uniformity, uniformity
from noisewise.evaluation.trials import Archive


@cache
def band_of(trials: int) -> Band:
    """The 99% band for that many trials."""
    return Band.simulate(trials, RANKED)


@dataclass(frozen=True, eq=False)
class Result:
    """``ranks`` and ``held`` are (trials, quantities), v last; ``held`` is for ``LEVEL``."""

    cell: Cell
    ranks: np.ndarray
    held: np.ndarray
    sd: float
    few: int  # fits with fewer effective draws than wanted, even when made longer
    divergences: int
    seconds: float

    @classmethod
    def read(cls, archive: Archive, cell: Cell) -> "Result | None":
        """None where the cell has no trials yet."""
        rows = archive.read(cell)
        if not rows:
            return None
        return cls(
            cell,
            np.array([[int(row[name]) for name in cell.quantities] for row in rows]),
            np.array([[digit == "1" for digit in row["held"]] for row in rows]),
            float(np.mean([float(row["sd"]) for row in rows])),
            sum(int(row["effective"]) < ENOUGH for row in rows),
            sum(int(row["divergences"]) for row in rows),
            float(np.mean([float(row["seconds"]) for row in rows])),
        )

    @property
    def trials(self) -> int:
        return len(self.ranks)

    @cached_property
    def uniformity(self) -> list[Uniformity]:
        return [uniformity(ranks, band_of(self.trials)) for ranks in self.ranks.T]

    @cached_property
    def outside(self) -> list[str]:
        """The quantities whose ranks leave the band."""
        band = band_of(self.trials)
        return [name for name, ranks in zip(self.cell.quantities, self.ranks.T, strict=True) if not band.holds(ranks)]

    @property
    def mean_rank(self) -> np.ndarray:
        """As a share, for each quantity: below a half the posterior is too high."""
        return np.asarray(self.ranks.mean(axis=0) / RANKED)

    def coverage(self, level: float) -> np.ndarray:
        """The share of central intervals that hold the truth, for each quantity.

        With 99 draws, 50 and 90 of the 100 ranks are inside 50% and 90% intervals; 95% ones are from all draws.
        """
        if level == LEVEL:
            return np.asarray(self.held.mean(axis=0))
        cut = round((1.0 - level) / 2.0 * (RANKED + 1))
        return np.asarray(((self.ranks >= cut) & (self.ranks <= RANKED - cut)).mean(axis=0))
