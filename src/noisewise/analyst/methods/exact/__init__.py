"""exact (ours, in no paper): the posterior of the model itself, S_j unknown with all the rest, by NUTS.

Every holder's S_j, z_j and u_j are latent with their exact conditional laws (docs/maths.md, 3); what was released is
observed with its exact noise, Gaussian or Laplace. Nothing is plugged in, nothing is taken as normal but what is. What
has to be assumed is a law for the covariates: normal ones, or weak bounds alone. docs/exact.md has the model,
docs/decisions/0004 the parametrisation.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from noisewise.analyst.methods.base import Draws, Run, learned
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.column import is_finite_number
from noisewise.errors import FitError

if TYPE_CHECKING:
    from noisewise.analyst.methods.exact.anchor import CovariatePrior

FIRST_TARGET = 0.8


@dataclass(frozen=True)
class Exact:
    """NUTS on (theta, v, S_j, z_j, u_j) and the covariates' distribution.

    ``covariates="normal"``: rows of features are N(mu, Sigma), one for all holders or (``shared_covariates=False``) one
    each; Sigma ~ inverse-Wishart(covariate_scatter I, covariate_freedom), mu normal with the bounds one standard
    deviation away (times ``mean_spread``). Without an intercept in the study mu = 0. ``covariates="weak"``: each S_j
    may be anything that the bounds allow. All in scaled units.

    The sampler's options: ``target_accept=None`` starts at 0.8 and runs again with smaller steps where draws diverged;
    ``metric="learned"`` spends a third of ``warmup`` twice on a pilot that learns how the shared unknowns correlate.
    """

    covariates: Literal["normal", "weak"] = "normal"
    shared_covariates: bool = True
    covariate_scatter: float = 0.2
    covariate_freedom: float | None = None
    mean_spread: float = 1.0
    warmup: int = 600
    target_accept: float | None = None
    max_depth: int = 10
    cores: int | None = None
    metric: Literal["learned", "diagonal"] = "learned"

    def __post_init__(self) -> None:
        for name, allowed in (("covariates", ("normal", "weak")), ("metric", ("learned", "diagonal"))):
            if getattr(self, name) not in allowed:
                raise FitError(
                    f"{name} {getattr(self, name)!r} is not known; exact has {' and '.join(map(repr, allowed))}."
                )
        if not isinstance(self.shared_covariates, bool):
            raise FitError(f"shared_covariates is {self.shared_covariates!r}; it is True or False.")
        for name in ("covariate_scatter", "mean_spread"):
            if not is_finite_number(getattr(self, name)) or not getattr(self, name) > 0:
                raise FitError(f"{name} is {getattr(self, name)!r}; it is a positive number.")
        for name, least in (("warmup", 100), ("max_depth", 1)):
            if not _whole(getattr(self, name)) or getattr(self, name) < least:
                raise FitError(f"{name} is {getattr(self, name)!r}; it is a whole number of at least {least}.")
        if self.cores is not None and (not _whole(self.cores) or self.cores < 1):
            raise FitError(f"cores is {self.cores!r}; it is a whole number of at least 1, or None for all.")
        target = self.target_accept
        if target is not None and (not is_finite_number(target) or not 0.5 <= target < 1):
            raise FitError(f"target_accept is {target!r}; it is at least 0.5 and below 1, or None to have it found.")

    def sample(self, problem: Problem, prior: ScaledPrior, run: Run) -> Draws:
        _check(problem, self.covariates)
        from noisewise.analyst.methods.exact.anchor import build
        from noisewise.analyst.methods.exact.entry import entry
        from noisewise.analyst.methods.exact.run import sample
        from noisewise.analyst.nuts import Settings, in_words

        model, size = build(problem, prior, self._covariate_prior(problem))
        settings = Settings(self.warmup, self.target_accept or FIRST_TARGET, self.max_depth, self.cores)
        chains, settings, gradients = sample(
            entry(),
            model,
            size,
            run,
            settings,
            learn_metric=self.metric == "learned",
            retry=self.target_accept is None,
        )
        return Draws.of_chains(
            chains.kept,
            prior,
            notes=in_words(chains, learned(chains.kept, problem.order), settings)
            + _assumptions(problem, self.covariates),
            statistics={
                "divergences": chains.divergences.sum(axis=1),
                "step_size": chains.step_size,
                "tree_depth": chains.depth.mean(axis=1),
                "target_accept": np.array([settings.target_accept]),
                "gradients": np.array([gradients]),
            },
        )

    def _covariate_prior(self, problem: Problem) -> "CovariatePrior":
        from noisewise.analyst.methods.exact.anchor import CovariatePrior

        d = len(problem.units.names)
        freedom = d + 2.0 if self.covariate_freedom is None else self.covariate_freedom
        if not is_finite_number(freedom) or not freedom > d - 1:
            raise FitError(
                f"covariate_freedom is {freedom!r}; with {d} features it is a number above {d - 1} (None: {d + 2})."
            )
        study = problem.study
        lowest = np.array([feature.lowest for feature in study.encoded]) if study else np.full(d, -1.0)
        radius = float(study.radius) if study and study.radius else float(np.sqrt(d))
        return CovariatePrior(
            weak=self.covariates == "weak",
            shared=self.shared_covariates,
            Lambda=self.covariate_scatter * np.eye(d),
            kappa=float(freedom),
            mean=(1.0 + lowest) / 2.0,
            precision=(2.0 / (1.0 - lowest) / self.mean_spread) ** 2,
            largest_moment=1.0,
            largest_trace=radius**2,
        )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(problem: Problem, covariates: str) -> None:
    """What can't be sampled, said before anything is compiled."""
    noisy = problem.sd_S.any() or problem.sd_z.any() or problem.sd_u.any()
    if problem.law == "none" or not noisy:
        raise FitError(
            "These statistics have no noise, so their posterior is conjugate and needs no sampler: use 'non-private' "
            "('auto' picks it)."
        )
    least = problem.order + 1 if covariates == "weak" else 1 + problem.units.constant
    for j in np.flatnonzero((problem.sd_n == 0.0) & (np.rint(problem.n) < least)):
        name = f"Holder {problem.holders[j]!r}" if problem.holders[j] else f"Release {j + 1}"
        instead = ", or use covariates='normal'" if covariates == "weak" else ""
        raise FitError(
            f"{name} has {problem.n[j]:g} rows; exact with covariates={covariates!r} and {problem.order} coefficients "
            f"needs at least {least} from each. Leave it out{instead}."
        )


def _assumptions(problem: Problem, covariates: str) -> tuple[str, ...]:
    notes = []
    if covariates == "normal":
        notes.append("Features were taken as normally distributed; covariates='weak' assumes their bounds alone.")
    if problem.sd_n.any():
        notes.append(f"The number of rows is noisy: learned, flat a priori above {problem.order + 1}.")
    return tuple(notes)
