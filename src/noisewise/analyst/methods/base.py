"""What a method is: options in, draws of theta and v in scaled units out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np

from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats


@dataclass(frozen=True)
class Run:
    """How many draws, in how many chains, from which seed (of sampling, never of privacy noise)."""

    draws: int
    chains: int
    seed: np.random.SeedSequence


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws in scaled units.

    ``noise_free`` is E[Var(theta | S, z, v)] under the posterior, the covariance that the same data would leave with
    the noise switched off; ``independent`` draws need no convergence diagnostics. A ``point`` estimate is one draw that
    says nothing of uncertainty.
    """

    theta: Floats  # (chains, draws, order)
    variance: Floats  # (chains, draws)
    noise_free: Floats  # (order, order)
    independent: bool
    counts_noise: bool
    notes: tuple[str, ...] = ()
    statistics: dict[str, Floats] = field(default_factory=dict)
    point: bool = False

    @classmethod
    def of_point(cls, theta: Floats, variance: float, *, notes: tuple[str, ...]) -> Self:
        """An estimate that is no posterior."""
        return cls(
            theta[None, None].copy(),
            np.full((1, 1), variance),
            np.full((theta.size, theta.size), np.nan),
            independent=True,
            counts_noise=False,
            notes=notes,
            point=True,
        )

    @classmethod
    def of_chains(
        cls, kept: Floats, prior: ScaledPrior, *, notes: tuple[str, ...], statistics: Mapping[str, Floats]
    ) -> Self:
        """From what a chain that counts the noise keeps of each draw: theta, v, lower triangle of sum_j S_j."""
        order = prior.mean.size
        return cls(
            kept[..., :order].copy(),
            kept[..., order].copy(),
            _noise_free_of_draws(kept.reshape(-1, kept.shape[2]), prior),
            independent=False,
            counts_noise=True,
            notes=notes,
            statistics=dict(statistics),
        )


class Method(Protocol):
    """A frozen dataclass whose fields are the method's options."""

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws: ...


MOST_MATRICES = 1000  # draws that noise_free averages over: its Monte Carlo error is far below the rest


def learned(kept: Floats, order: int) -> Floats:
    """theta and log v of what a chain keeps: what its convergence is judged by."""
    out = kept[..., : order + 1].copy()
    out[..., order] = np.log(out[..., order])
    return np.asarray(out)


def _noise_free_of_draws(kept: Floats, prior: ScaledPrior) -> Floats:
    """The mean over draws of (C^{-1} + sum_j S_j / v)^{-1}: what the same data would leave with the noise off.

    A row of ``kept`` is theta, v and the lower triangle of sum_j S_j, row after row.
    """
    order = prior.mean.size
    some = kept[:: max(1, len(kept) // MOST_MATRICES)]
    total = np.zeros((len(some), order, order))
    rows, columns = np.tril_indices(order)
    total[:, rows, columns] = total[:, columns, rows] = some[:, order + 1 :]
    precision = prior.precision + total / some[:, order, None, None]
    return np.asarray(np.linalg.inv(precision).mean(axis=0))
