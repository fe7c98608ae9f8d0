"""naive: the noisy statistics taken for exact ones. A baseline that shows what ignoring the noise does."""

from dataclasses import dataclass

import numpy as np

from noisewise.analyst.fixed_scatter import Statistics, integrate_variance, split_into_components
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.fixed_s import independent_draws
from noisewise.analyst.model import Problem, nearest_psd
from noisewise.analyst.prior import ScaledPrior


@dataclass(frozen=True)
class Naive:
    """All holders' statistics added up and believed; S made positive semi-definite where noise broke that."""

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        return sample_pooled(problem, prior, run)


def sample_pooled(problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
    """The posterior of the pooled statistics as if they had no noise."""
    S = nearest_psd(problem.S.sum(axis=0), problem.exact_n)
    z = problem.z.sum(axis=0)
    notes: tuple[str, ...] = ()
    u = None
    if problem.u is not None:
        explained = _explained(S, z)
        u = max(float(problem.u.sum()), explained * (1 + 1e-6) + 1e-9)
        if u > problem.u.sum():
            notes = ("The noisy statistics are not those of any table (y'y is below what the fit explains).",)
    stats = Statistics(
        n=np.array([max(float(np.rint(problem.n.sum())), 1.0)]),
        S=S[None],
        z=z[None],
        u=None if u is None else np.array([u]),
        sd_z=np.zeros((1, z.size)),
        sd_u=np.zeros(1),
    )
    grid = integrate_variance(stats, split_into_components(stats), prior)
    return independent_draws(stats, grid, prior, run, counts_noise=False, notes=notes)


def _explained(S: np.ndarray, z: np.ndarray) -> float:
    """z'S^{-1}z on the range of S."""
    values, vectors = np.linalg.eigh(S)
    keep = values > values[-1] * 1e-12
    return float((((vectors.T @ z)[keep]) ** 2 / values[keep]).sum())
