"""non-private: the posterior from exact statistics, for simulation. What privacy is measured against."""

from dataclasses import dataclass

from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.naive import sample_pooled
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError


@dataclass(frozen=True)
class NonPrivate:
    """Refuses noisy releases: that would be ``naive``."""

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        if problem.law != "none":
            raise FitError(
                "non-private is for exact statistics (simulations), and these releases carry noise. Use 'fixed-s', or "
                "'naive' to see what ignoring the noise does."
            )
        return sample_pooled(problem, prior, run)
