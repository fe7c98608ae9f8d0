"""exact (ours, in no paper): the posterior of the model itself, S_j unknown with all the rest, by NUTS.

Every holder's S_j, z_j and u_j are latent with their exact conditional laws (docs/maths.md, 3); what was released is
observed with its exact noise, Gaussian or Laplace. Nothing is plugged in, nothing is taken as normal but what is. What
has to be assumed is a law for the covariates: normal, with a prior of its moments or with their bounds alone.
docs/exact.md has the model, docs/decisions/0004 the parametrisation.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.exact.options import ByNuts, need_noise
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.errors import FitError


@dataclass(frozen=True, kw_only=True)
class Exact(ByNuts):
    """NUTS on (theta, v, S_j, z_j, u_j) and the covariates' distribution.

    ``covariates="normal"``: rows of features are N(mu, Sigma). Sigma ~ inverse-Wishart(covariate_scatter,
    covariate_freedom), a number being a multiple of I, mu normal with the bounds one standard deviation away (times
    ``mean_spread``). Without an intercept in the study mu = 0.
    ``covariates="weak"``: nothing is believed of mu and Sigma but the bounds; S_j varies around them as that of normal
    rows does. All in scaled units. Holders share mu and Sigma (``shared_covariates=True``) or have their own (False);
    None, the default, is True unless the releases show that holders differ.

    The sampler's options: ``target_accept=None`` starts at 0.8 and takes smaller steps where draws of the pilot or of
    the run itself diverged; ``metric="learned"`` spends a third of ``warmup`` twice on a pilot that learns how the
    shared unknowns correlate.
    """

    NAME: ClassVar[str] = "exact"
    KINDS: ClassVar[tuple[str, str]] = ("normal", "weak")

    covariates: Literal["normal", "weak"] = "normal"

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        _check(problem)
        from noisewise.analyst.methods.exact.anchor import build
        from noisewise.analyst.methods.exact.entry import entry

        model, size = build(problem, prior, self._covariate_prior(problem))
        return self._run(
            entry(), model, size, prior, run, _assumptions(problem, self.covariates) + self._sharing(problem)
        )


def _check(problem: Problem) -> None:
    """What can't be sampled, said before anything is compiled."""
    need_noise(problem)
    least = 1 + problem.units.constant
    for j in np.flatnonzero((problem.sd_n == 0.0) & (np.rint(problem.n) < least)):
        name = f"Holder {problem.holders[j]!r}" if problem.holders[j] else f"Release {j + 1}"
        raise FitError(f"{name} has {problem.n[j]:g} rows; exact needs at least {least} from each. Leave it out.")


def _assumptions(problem: Problem, covariates: str) -> tuple[str, ...]:
    notes = []
    if covariates == "normal":
        notes.append(
            "Features were taken as normally distributed; covariates='weak' believes only the bounds of their moments."
        )
    if problem.sd_n.any():
        notes.append(f"The number of rows is noisy: learned, flat a priori above {problem.order + 1}.")
    return tuple(notes)
