"""individual (MCMC-Ind, 002): the model with one latent row per person, by NUTS. Any number of columns and holders.

Every person's features and target are unknown, and what was released is their sums plus noise, Gaussian or Laplace. No
sum is integrated out or approximated, so this is the plainest statement of the model there is: with normal covariates
its posterior is that of ``exact``, which needs no rows. Its cost grows with the number of people; it is for small
tables, for comparisons with the paper, and for laws of covariates whose sums have none. docs/individual.md has more.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.exact.options import ByNuts, need_noise
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError

if TYPE_CHECKING:
    from noisewise.analyst.methods.exact.layout import Model

MOST_UNKNOWNS = 20_000  # minutes on two cores, and some hundred megabytes for the pilot's draws


@dataclass(frozen=True, kw_only=True)
class Individual(ByNuts):
    """NUTS on (theta, v, the covariates' distribution, every person's x and y).

    ``covariates="normal"``: x ~ N(mu, Sigma) with the priors and options of ``exact``. ``covariates="uniform"``: each
    feature uniform on its bounds, independently of the others. Without an intercept in the study normal covariates have
    mean 0. The sampler's options are those of ``exact``.
    """

    NAME: ClassVar[str] = "individual"
    KINDS: ClassVar[tuple[str, str]] = ("normal", "uniform")

    covariates: Literal["normal", "uniform"] = "normal"

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        check(problem)
        from noisewise.analyst.methods.individual.entry import entry

        model, size = self.model(problem, prior)
        _need_noise_everywhere(problem, model)
        return self._run(
            entry(), model, size, prior, run, _assumptions(problem, self.covariates) + self._sharing(problem)
        )

    def model(self, problem: Problem, prior: ScaledPrior) -> "tuple[Model, int]":
        """The constants, which are those of ``exact`` but for where latents are, and how many unknowns there are."""
        from noisewise.analyst.methods.exact.anchor import build

        known = replace(problem, n=problem.public_n, sd_n=np.zeros(problem.J))
        model, _ = build(known, prior, self._covariate_prior(problem))
        shared = model.p + 1 + model.blocks * model.block_size
        ends = shared + np.cumsum(model.n) * (model.d + 1)
        return model._replace(start=np.concatenate([[shared], ends[:-1]])), int(ends[-1])


def check(problem: Problem) -> None:
    """What can't be sampled, said before anything is compiled."""
    need_noise(problem)
    d = len(problem.units.names)
    people = int(problem.public_n.sum())
    if people * (d + 1) > MOST_UNKNOWNS:
        raise FitError(
            f"individual has {d + 1} unknowns for each of {people:,} people, {people * (d + 1):,} in all, and takes up "
            f"to {MOST_UNKNOWNS:,}. Use 'exact': with normal covariates it has the same posterior, and its cost does "
            "not grow with the number of people."
        )


def _need_noise_everywhere(problem: Problem, model: "Model") -> None:
    """``exact`` gives next to exact entries a little noise. Thousands of rows could hardly move under it."""
    raised = [np.abs(model.sd_S) > problem.sd_S, np.abs(model.sd_z) > problem.sd_z]
    if problem.u is not None:
        raised.append(np.abs(model.sd_u) > problem.sd_u)
    raised[0][:, 0, 0] &= not problem.units.constant
    if any(entries.any() for entries in raised):
        raise FitError(
            "individual can't hold its rows' sums at exact values, and some entries here have no noise, or less than a "
            "thousandth of their sampling variation. Use 'exact', which can."
        )


def _assumptions(problem: Problem, covariates: str) -> tuple[str, ...]:
    notes = []
    if covariates == "normal":
        notes.append("Features were taken as normally distributed; covariates='uniform' takes them as uniform.")
    else:
        notes.append("Features were taken as uniform on their bounds, independently of each other.")
    if problem.sd_n.any():
        notes.append(
            "The number of rows is noisy: individual rounds it and takes it for the truth; 'exact' learns it with the "
            "rest."
        )
    return tuple(notes)
