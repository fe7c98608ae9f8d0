"""The posterior: draws in the user's units, what they say, and what they predict."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from noisewise.analyst.diagnostics import GOOD_EFFECTIVE, GOOD_RHAT, rhat_and_ess
from noisewise.analyst.methods.base import Draws
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.analyst.summary import Summary, summarise
from noisewise.analyst.units import Units, design
from noisewise.errors import FitError
from noisewise.gram import Floats
from noisewise.study import Study

if TYPE_CHECKING:
    import arviz
    from matplotlib.figure import Figure


class Prediction(NamedTuple):
    """One number per row asked for, in the user's units."""

    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws of (intercept, coef, sigma). Chains are kept apart in ``draws_``; the plain names flatten them.

    A ``point`` estimate (method adassp) is one draw: it has means and neither spreads nor intervals.
    """

    method: str
    units: Units
    study: Study | None
    prior: ScaledPrior
    draws_: Floats  # (chains, draws, 2 + d): intercept, coef, sigma in the user's units
    noise_free: Floats  # (1 + d,): the variance of (intercept, coef) with the noise switched off
    independent: bool
    counts_noise: bool
    notes: tuple[str, ...]
    statistics: Mapping[str, Floats]
    point: bool = False

    @classmethod
    def of(cls, problem: Problem, prior: ScaledPrior, method: str, result: Draws, notes: tuple[str, ...] = ()) -> Self:
        units = problem.units
        user = units.to_user(result.theta)
        sigma = np.sqrt(result.variance * units.average_rows) * units.target_half_width
        return cls(
            method=method,
            units=units,
            study=problem.study,
            prior=prior,
            draws_=np.concatenate([user, sigma[..., None]], axis=2),
            noise_free=np.einsum("ij,jk,ik->i", units.linear, result.noise_free, units.linear),
            independent=result.independent,
            counts_noise=result.counts_noise,
            notes=notes + result.notes,
            statistics=result.statistics,
            point=result.point,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The features, in the order of ``coef``."""
        return self.units.names

    @property
    def flat(self) -> Floats:
        return self.draws_.reshape(-1, self.draws_.shape[2])

    @property
    def intercept(self) -> Floats:
        return self.flat[:, 0]

    @property
    def coef(self) -> Floats:
        return self.flat[:, 1:-1]

    @property
    def sigma(self) -> Floats:
        return self.flat[:, -1]

    def summary(self, interval: float = 0.9) -> Summary:
        """Mean, spread and interval of everything, with the part of each variance that privacy added."""
        _check_interval(interval)
        return summarise(self, interval)

    def predict(
        self, X: Any, interval: float = 0.9, kind: Literal["mean", "new"] = "mean", seed: int = 0
    ) -> Prediction:
        """The regression line at X (``kind="mean"``) or a new observation there (``kind="new"``).

        X holds the study's feature columns in the user's units: an array in their order, a mapping, or a pandas,
        polars or Arrow table. Intervals hold the central share ``interval`` of the posterior; a point estimate has NaN
        for them.
        """
        _check_interval(interval)
        if kind not in ("mean", "new"):
            raise FitError(f"kind {kind!r} is not known; predict the 'mean' or a 'new' observation.")
        features = design(self.study, len(self.names), X)
        if self.point:
            return self._predict_point(features, kind)
        tails = [(1 - interval) / 2, (1 + interval) / 2]
        # one residual a draw, the same for all rows: each row's interval is right, and bands are smooth
        residual = self.sigma * np.random.default_rng(seed).standard_normal(self.sigma.size)
        parts = []
        rows = max(1, 4_000_000 // self.sigma.size)  # bounds the memory of rows x draws
        for start in range(0, len(features), rows):
            line = features[start : start + rows] @ self.coef.T + self.intercept
            mean, variance = line.mean(axis=1), line.var(axis=1)
            if kind == "new":
                variance = variance + (self.sigma**2).mean()
                line += residual
            lower, upper = np.quantile(line, tails, axis=1)
            parts.append((mean, np.sqrt(variance), lower, upper))
        columns = zip(*parts, strict=True) if parts else ([np.empty(0)],) * 4
        return Prediction(*(np.concatenate(list(column)) for column in columns))

    def _predict_point(self, features: Floats, kind: str) -> Prediction:
        if kind == "new":
            raise FitError(f"{self.method} is a point estimate: it knows no law of a new observation. Use kind='mean'.")
        mean = features @ self.coef[0] + self.intercept[0]
        return Prediction(mean, *(np.full(len(mean), np.nan) for _ in range(3)))

    @property
    def prior_moments(self) -> tuple[Floats, Floats]:
        """Mean and variance of the prior of (intercept, coef) in the user's units."""
        linear = self.units.linear
        variance = np.einsum("ij,jk,ik->i", linear, self.prior.covariance, linear)
        return self.units.to_user(self.prior.mean), variance

    @property
    def diagnostics(self) -> str:
        """In words: whether the draws can be relied on."""
        if self.point:
            return "A point estimate: nothing here tells how far off it may be."
        if self.independent:
            return f"{self.sigma.size:,} independent draws: there is no chain that could fail to converge."
        if self.draws_.shape[0] < 2 or self.draws_.shape[1] < 4:
            return "One chain, or almost no draws: nothing tells whether it converged."
        rhat, *effective = rhat_and_ess(self.draws_)
        ess = min(effective)
        good = rhat < GOOD_RHAT and ess > GOOD_EFFECTIVE
        advice = "They agree." if good else "Run longer chains (draws=, warmup=) before you rely on the tails."
        return (
            f"{self.draws_.shape[0]} chains: largest R-hat {rhat:.3f}, smallest effective sample {ess:,.0f}. {advice}"
        )

    def to_arviz(self) -> "arviz.InferenceData":
        """An ArviZ InferenceData with variables coef, intercept and sigma."""
        from noisewise.analyst.storage import to_arviz

        return to_arviz(self)

    def save(self, path: str | Path) -> None:
        """Write a netCDF file that ``Posterior.load`` and ``arviz.from_netcdf`` read."""
        from noisewise.analyst.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Posterior":
        from noisewise.analyst.storage import load

        return load(path)

    def plot_marginals(self) -> "Figure":
        """Each coefficient's posterior against its prior."""
        from noisewise.analyst.plots import marginals

        self._check_has_spread()
        return marginals(self)

    def plot_prediction(self, feature: str | None = None, interval: float = 0.9) -> "Figure":
        """The regression line along one numeric feature, the others at their centre, with both bands."""
        from noisewise.analyst.plots import prediction

        self._check_has_spread()
        return prediction(self, feature, interval)

    def _check_has_spread(self) -> None:
        if self.point:
            raise FitError(f"{self.method} is a point estimate: there is no distribution to draw a picture of.")

    def __repr__(self) -> str:
        if self.point:
            return f"<Point estimate by {self.method}: {len(self.names)} features>"
        return f"<Posterior by {self.method}: {len(self.names)} features, {self.sigma.size:,} draws>"


def _check_interval(interval: float) -> None:
    if not 0 < interval < 1:
        raise FitError(f"interval is {interval!r}; it is a share between 0 and 1, such as 0.9.")
