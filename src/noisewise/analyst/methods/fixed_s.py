"""fixed-s (000, Alg. 2): hold S_j at the nearest positive semi-definite matrix to its noisy value; sample theta and v.

``algorithm="quadrature"`` integrates v on a grid and draws independently; ``"mcmc"`` is the paper's chain (Gibbs for
theta, random-walk Metropolis for v) with a step that adapts in warm-up and is then frozen. Both have one target,
``fixed_scatter``'s. What the method leaves out: the noise in S itself.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from noisewise.analyst.chains import Schedule, run_chains, verdict
from noisewise.analyst.fixed_scatter import (
    Grid,
    Statistics,
    draw,
    integrate_variance,
    noise_free_covariance,
    split_into_components,
)
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.model import Problem, nearest_psd
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError
from noisewise.gram import Floats


def projected(problem: Problem) -> Floats:
    """Each holder's noisy S, made positive semi-definite."""
    return np.stack([nearest_psd(S, problem.exact_n) for S in problem.S])


def need_gaussian(problem: Problem, method: str) -> None:
    if problem.law == "laplace":
        raise FitError(
            f"{method} integrates z out under Gaussian noise, and these releases have Laplace noise. Use a study with "
            "mechanism = 'gaussian', or method 'exact', which takes either."
        )


@dataclass(frozen=True)
class FixedS:
    """The instant answer: S plugged in, the noise of z (and u) counted."""

    algorithm: Literal["quadrature", "mcmc"] = "quadrature"
    warmup: int = 1000

    def __post_init__(self) -> None:
        if self.algorithm not in ("quadrature", "mcmc"):
            raise FitError(f"algorithm {self.algorithm!r} is not known; fixed-s has 'quadrature' and 'mcmc'.")
        Schedule(self.warmup)

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        need_gaussian(problem, "fixed-s")
        stats = Statistics(problem.public_n, projected(problem), problem.z, problem.u, problem.sd_z, problem.sd_u)
        components = split_into_components(stats)
        grid = integrate_variance(stats, components, prior)
        if self.algorithm == "mcmc":
            from noisewise.analyst.methods.fixed_s_chain import FixedSChain

            schedule, order = Schedule(self.warmup), problem.order
            chains = run_chains(lambda rng: FixedSChain(components, prior, grid, rng), order + 1, run, schedule)
            return Draws(
                chains.kept[..., :order].copy(),
                chains.kept[..., order].copy(),
                noise_free_covariance(stats.S, prior, np.exp(grid.log_v), grid.weights),
                independent=False,
                counts_noise=True,
                notes=verdict(chains.kept, schedule),
                statistics=chains.statistics,
            )
        return independent_draws(stats, grid, prior, run, counts_noise=True)


def independent_draws(
    stats: Statistics, grid: Grid, prior: ScaledPrior, run: Run, *, counts_noise: bool, notes: tuple[str, ...] = ()
) -> Draws:
    """Draws of the gridded posterior, with its noise-free part."""
    theta, variance = draw(grid, run.chains * run.draws, np.random.default_rng(run.seed))
    return Draws(
        theta.reshape(run.chains, run.draws, -1),
        variance.reshape(run.chains, run.draws),
        noise_free_covariance(stats.S, prior, np.exp(grid.log_v), grid.weights),
        independent=True,
        counts_noise=counts_noise,
        notes=notes,
    )
