"""Simulation-based calibration: does a posterior's uncertainty mean what it says?

Draw parameters from the prior and data given them, fit, and rank the truth among the posterior's draws. If the
posterior is right the rank is uniform on 0..draws (Cook, Gelman & Rubin 2006; Talts et al. 2018). Ranks too often at
both ends: the posterior is too narrow. Too often in the middle: too wide.

The graphical test is that of Saeilynoja, Buerkner & Vehtari (2022): the empirical distribution function of the ranks
minus the uniform one, inside a band that uniform ranks leave nowhere with the stated probability. The band is
pointwise binomial at a level that simulation adjusts for looking everywhere at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from noisewise.errors import DataError
from noisewise.gram import Floats, Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rank_of(truth: Floats, draws: Floats) -> Integers:
    """How many of the draws (draws, quantities) are below the truth (quantities,)."""
    return np.asarray((np.asarray(draws) < np.asarray(truth)).sum(axis=0))


def covered(truth: Floats, draws: Floats, level: float) -> np.ndarray:
    """Whether the central interval of that level, from the draws' quantiles, holds the truth.

    The p-quantile is draw number p (draws + 1) in order, so that a right posterior's interval has its level whatever
    the number of draws (other rules make it too narrow: 0.88 for 0.9 with 99 draws).
    """
    if not 0.0 < level < 1.0:
        raise DataError(f"level is {level!r}; it is a share between 0 and 1, such as 0.9.")
    lower, upper = np.quantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0, method="weibull")
    return np.asarray((lower <= truth) & (truth <= upper))


class Uniformity(NamedTuple):
    """How far ranks are from uniform. ``simultaneous`` is the p-value of the band test, Monte Carlo."""

    chi_square: float
    kolmogorov_smirnov: float
    statistic: float
    simultaneous: float


@dataclass(frozen=True, eq=False)
class Band:
    """Where the distribution function of ``trials`` uniform ranks on 0..draws stays, all at once, with ``probability``.

    At ``points`` (shares of the ranks) the counts of ranks below lie within [lower, upper]. ``extremes`` is the sorted
    null distribution of the smallest pointwise tail probability, whose quantile is the band's level.
    """

    trials: int
    draws: int
    probability: float
    level: float
    points: Floats
    lower: Floats
    upper: Floats
    extremes: Floats

    @classmethod
    def simulate(
        cls, trials: int, draws: int, probability: float = 0.99, *, simulations: int = 10_000, seed: int = 0
    ) -> "Band":
        """Find the pointwise level at which a share ``probability`` of simulated rank sets stays inside everywhere."""
        from scipy.stats import binom

        if not (trials >= 1 and draws >= 1 and 0.0 < probability < 1.0 and simulations >= 100):
            raise DataError(
                f"A band of {trials} trials, {draws} draws, probability {probability} and {simulations} simulations; "
                "it needs at least 1, 1, a share between 0 and 1, and 100."
            )
        rng = np.random.default_rng(seed)
        points = _points(trials, draws)
        extremes = np.empty(simulations)
        for i in range(simulations):
            extremes[i] = _smallest_tail(rng.integers(draws + 1, size=trials), draws, points)
        extremes.sort()
        level = float(extremes[int(np.floor((1.0 - probability) * simulations))])
        # a count whose tail probability is below the level is outside, so the band is the counts at or above it
        lower = np.asarray(binom.ppf(level / 2.0, trials, points))
        upper = np.asarray(binom.isf(level / 2.0, trials, points))
        return cls(trials, draws, probability, level, points, lower, upper, extremes)

    def p_value(self, ranks: Integers) -> float:
        """The share of uniform rank sets that stray at least as far as these; the band leaves out those below 1 - p."""
        seen = _smallest_tail(self._checked(ranks), self.draws, self.points)
        below = int(np.searchsorted(self.extremes, seen, side="right"))
        return (1.0 + below) / (1.0 + self.extremes.size)

    def holds(self, ranks: Integers) -> bool:
        """Whether the ranks are inside the band everywhere."""
        counts = _counts(self._checked(ranks), self.draws, self.points)
        return bool(np.all((counts >= self.lower) & (counts <= self.upper)))

    def _checked(self, ranks: Integers) -> Integers:
        ranks = np.asarray(ranks)
        if ranks.shape != (self.trials,) or ranks.min() < 0 or ranks.max() > self.draws:
            raise DataError(
                f"Ranks of shape {ranks.shape} from {ranks.min(initial=0)} to {ranks.max(initial=0)}; this band is for "
                f"{self.trials} ranks from 0 to {self.draws}."
            )
        return ranks


def _points(trials: int, draws: int) -> Floats:
    """Shares of the ranks at which the distribution functions are compared: all cuts between ranks, or ``trials``."""
    cuts = np.unique(np.linspace(1, draws, min(draws, trials, 1000)).astype(int))
    return np.asarray(cuts / (draws + 1.0))


def _counts(ranks: Integers, draws: int, points: Floats) -> Integers:
    """How many ranks are below each cut; a cut at share s has s (draws + 1) rank values below it."""
    cumulative = np.cumsum(np.bincount(ranks, minlength=draws + 1))
    return np.asarray(cumulative[np.rint(points * (draws + 1)).astype(int) - 1])


def _smallest_tail(ranks: Integers, draws: int, points: Floats) -> float:
    """Twice the smallest one-sided binomial probability of the counts, over all points."""
    from scipy.special import betainc

    counts, trials = _counts(ranks, draws, points).astype(float), float(ranks.size)
    # binomial tails as incomplete beta functions, which are undefined where the tail is everything
    at_most = np.where(counts < trials, betainc(np.maximum(trials - counts, 0.5), counts + 1.0, 1.0 - points), 1.0)
    at_least = np.where(counts > 0, betainc(np.maximum(counts, 0.5), trials - counts + 1.0, points), 1.0)
    return float(2.0 * min(at_most.min(), at_least.min()))


def uniformity(ranks: Integers, band: Band, bins: int = 20) -> Uniformity:
    """Chi-square over bins as equal as the ranks allow, Kolmogorov and Smirnov's test, and the band's."""
    from scipy.stats import chisquare, kstest

    ranks = np.asarray(ranks)
    total = band.draws + 1
    bins = max(2, min(bins, total, band.trials // 5))  # at least five ranks are expected in a bin
    edges = np.rint(np.linspace(0, total, bins + 1)).astype(int)
    seen = np.histogram(ranks, edges - 0.5)[0]
    # ranks are whole numbers: a fixed spread inside each makes them continuous, hence the KS p-value exact
    smooth = (ranks + np.random.default_rng(0).random(ranks.size)) / total
    test = kstest(smooth, "uniform")
    return Uniformity(
        chi_square=float(chisquare(seen, band.trials * np.diff(edges) / total).pvalue),
        kolmogorov_smirnov=float(test.pvalue),
        statistic=float(test.statistic),
        simultaneous=band.p_value(ranks),
    )


def plot_ecdf_difference(
    panels: Sequence[tuple[str, Mapping[str, Integers]]], band: Band, columns: int = 3
) -> "Figure":
    """One panel a case: each quantity's ECDF minus the uniform one, over the simultaneous band."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.3 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    names = list(dict.fromkeys(name for _, cases in panels for name in cases))
    colours = {name: f"C{position}" for position, name in enumerate(names)}
    for axis, (title, cases) in zip(axes, panels, strict=False):
        low, high = band.lower / band.trials - band.points, band.upper / band.trials - band.points
        axis.fill_between(band.points, low, high, step="post", color="0.85", lw=0)
        for name, ranks in cases.items():
            counts = _counts(np.asarray(ranks), band.draws, band.points)
            axis.plot(band.points, counts / band.trials - band.points, lw=1.2, color=colours[name])
        axis.axhline(0.0, color="0.5", lw=0.6)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    handles = [Line2D([], [], color=colour) for colour in colours.values()]
    figure.legend(handles, names, loc="outside right center", fontsize=8, frameon=False)
    figure.supxlabel("rank of the truth, as a share", fontsize=9)
    figure.supylabel("ECDF minus uniform", fontsize=9)
    return figure
