r"""adassp: Wang's (2018) adaptive ridge estimate from noisy sums, for any number of holders (000, App. C.2).

    theta = (sum_j Shat_j + I sum_j lambda_j)^{-1} sum_j zhat_j                                   (000, Eq. 15)
    lambda_j = max(0, sqrt(p ln(2 p^2 / rho)) s_j - low_j)
    low_j = max(0, released smallest eigenvalue of S_j - sqrt(ln(6 / delta)) t_j)

s_j is the largest standard deviation of the noise on an entry of S_j: the root is a bound, with probability 1 - rho,
on what noise can take from an eigenvalue of S_j. low_j is the smallest eigenvalue of S_j less what its own noise, of
standard deviation t_j, can have added. So the ridge is as large as noise demands and no larger. Wang's (and 000's) s
and t are those of three equal shares of the budget calibrated one by one; here they are those of the release as it
is, whatever its shares. 000 has the noise's draw v once too often, in ln(6 / delta) sigma v; Wang, Alg. 2, has no v
there.
"""

from dataclasses import dataclass

import numpy as np

from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError
from noisewise.gram import Floats


@dataclass(frozen=True)
class AdaSSP:
    """A point estimate; ``rho`` is the probability that noise is larger than the ridge allows for."""

    rho: float = 0.05

    def __post_init__(self) -> None:
        if isinstance(self.rho, bool) or not isinstance(self.rho, int | float) or not 0 < self.rho < 1:
            raise FitError(f"rho is {self.rho!r}; it is a probability between 0 and 1, such as 0.05.")

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        if problem.eigenvalue is None:
            raise FitError(
                "adassp needs the smallest eigenvalue of X'X, and these releases do not have it. Use a study with "
                "smallest_eigenvalue = 0.3 (its share of the budget), or another method, such as exact or fixed-s."
            )
        if problem.law == "laplace":
            raise FitError(
                "adassp is made for Gaussian noise, and these releases have Laplace noise. Use method 'exact', or a "
                "study with mechanism = 'gaussian'."
            )
        ridges = self._ridges(problem, problem.eigenvalue)
        S, z = problem.S.sum(axis=0) + ridges.sum() * np.eye(problem.order), problem.z.sum(axis=0)
        notes = ["adassp is a point estimate: there is no posterior, no interval, and the prior is not used."]
        notes.append(f"Ridge {ridges.sum():.4g} in scaled units, beside {problem.n.sum():,.0f} rows.")
        if np.linalg.eigvalsh(S)[0] <= 0.0:
            notes.append("Even with the ridge the noisy X'X is not positive definite: do not rely on this estimate.")
        theta = np.linalg.lstsq(S, z, rcond=None)[0]
        return Draws.of_point(theta, _residual_variance(problem, theta), notes=tuple(notes))

    def _ridges(self, problem: Problem, eigenvalue: Floats) -> Floats:
        """One for each holder; 0 where its release has no noise."""
        p, delta = problem.order, (problem.study.delta if problem.study else None) or 1.0
        s = problem.sd_S.reshape(problem.J, -1).max(axis=1)
        low = np.maximum(eigenvalue - np.sqrt(np.log(6.0 / delta)) * problem.sd_eigenvalue, 0.0)
        return np.asarray(np.maximum(np.sqrt(p * np.log(2.0 * p**2 / self.rho)) * s - low, 0.0))


def _residual_variance(problem: Problem, theta: Floats) -> float:
    """The mean square of the residuals by the noisy sums, at least 0; NaN where y'y was not released."""
    if problem.u is None:
        return float("nan")
    squares = problem.u.sum() - 2.0 * theta @ problem.z.sum(axis=0) + theta @ problem.S.sum(axis=0) @ theta
    return max(float(squares), 0.0) / max(float(problem.n.sum()) - problem.order, 1.0)
