"""fixed-s-fast (000, Alg. 3): the closed form of fixed-s at one stated residual variance."""

from dataclasses import dataclass

import numpy as np

from noisewise.analyst.fixed_scatter import (
    Statistics,
    noise_free_covariance,
    split_into_components,
    theta_given_variance,
)
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.fixed_s import need_gaussian, projected
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError


@dataclass(frozen=True)
class FixedSFast:
    """theta is exactly normal; ``residual_variance`` is in scaled units, where |y| <= 1 (the paper's choice: 1/3)."""

    residual_variance: float = 1.0 / 3.0

    def __post_init__(self) -> None:
        if not np.isfinite(self.residual_variance) or self.residual_variance <= 0:
            raise FitError(f"residual_variance is {self.residual_variance!r}; it is a positive number in scaled units.")

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        need_gaussian(problem, "fixed-s-fast")
        stats = Statistics(problem.public_n, projected(problem), problem.z, None, problem.sd_z, problem.sd_u)
        v = np.array([self.residual_variance])
        conditional = theta_given_variance(split_into_components(stats), prior, v)
        normal = np.random.default_rng(run.seed).standard_normal((run.chains, run.draws, problem.order))
        return Draws(
            conditional.mean[0] + normal @ conditional.factor[0].T,
            np.full((run.chains, run.draws), self.residual_variance),
            noise_free_covariance(stats.S, prior, v, np.ones(1)),
            independent=True,
            counts_noise=True,
            notes=(
                f"sigma was not learned: the residual variance is held at {self.residual_variance:.4g} scaled units.",
            ),
        )
