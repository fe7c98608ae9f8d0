"""What ``exact`` and ``individual`` have in common: the prior of covariates, the sampler and its options.

The two differ in the latents of a holder (its sums, or its rows), hence in their compiled density alone.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from noisewise.analyst.methods.base import Draws, Run, learned
from noisewise.analyst.methods.believed import Scatter, believed_covariates, taken_scatter
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.column import is_finite_number
from noisewise.errors import FitError
from noisewise.gram import Floats

if TYPE_CHECKING:
    from noisewise.analyst.methods.exact.anchor import CovariatePrior
    from noisewise.analyst.methods.exact.entry import Entry
    from noisewise.analyst.methods.exact.layout import Model

FIRST_TARGET = 0.8
OF_NORMAL_COVARIATES = {"covariate_scatter": 0.2, "covariate_freedom": None, "mean_spread": 1.0}
EVEN = 0.5  # weights are even to 0.88 by construction; below this something is odd


@dataclass(frozen=True, kw_only=True)
class ByNuts:
    """Covariates' prior and sampler; a method adds ``covariates``, whose words are ``KINDS``."""

    NAME: ClassVar[str]
    KINDS: ClassVar[tuple[str, str]]  # normal covariates, and an alternative that knows the bounds alone

    covariates: Literal["normal", "weak", "uniform"] = "normal"
    shared_covariates: bool | None = None
    covariate_scatter: Scatter = 0.2
    covariate_freedom: float | None = None
    mean_spread: float = 1.0
    warmup: int = 450
    target_accept: float | None = None
    max_depth: int = 10
    cores: int | None = None
    metric: Literal["learned", "diagonal"] = "learned"

    def __post_init__(self) -> None:
        for name, allowed in (("covariates", self.KINDS), ("metric", ("learned", "diagonal"))):
            if getattr(self, name) not in allowed:
                raise FitError(
                    f"{name} {getattr(self, name)!r} is not known; {self.NAME} has {' and '.join(map(repr, allowed))}."
                )
        if not (self.shared_covariates is None or isinstance(self.shared_covariates, bool)):
            raise FitError(
                f"shared_covariates is {self.shared_covariates!r}; it is True, False, or None to have it found out."
            )
        object.__setattr__(self, "covariate_scatter", taken_scatter(self.covariate_scatter))
        if not is_finite_number(self.mean_spread) or not self.mean_spread > 0:
            raise FitError(f"mean_spread is {self.mean_spread!r}; it is a positive number.")
        for name, unset in OF_NORMAL_COVARIATES.items():
            if self.covariates != "normal" and getattr(self, name) != unset:
                raise FitError(
                    f"{name} is part of the prior of normal covariates, and covariates is {self.covariates!r}; leave "
                    f"{name} out, or use covariates='normal'."
                )
        for name, least in (("warmup", 100), ("max_depth", 1)):
            if not _whole(getattr(self, name)) or getattr(self, name) < least:
                raise FitError(f"{name} is {getattr(self, name)!r}; it is a whole number of at least {least}.")
        if self.cores is not None and (not _whole(self.cores) or self.cores < 1):
            raise FitError(f"cores is {self.cores!r}; it is a whole number of at least 1, or None for all.")
        target = self.target_accept
        if target is not None and (not is_finite_number(target) or not 0.5 <= target < 1):
            raise FitError(f"target_accept is {target!r}; it is at least 0.5 and below 1, or None to have it found.")

    def _covariate_prior(self, problem: Problem) -> "CovariatePrior":
        from noisewise.analyst.methods.exact.anchor import CovariatePrior
        from noisewise.analyst.methods.exact.holders import what_differs

        believed = believed_covariates(problem, self.covariate_scatter, self.covariate_freedom, self.mean_spread)
        study, d = problem.study, len(problem.units.names)
        radius = float(study.radius) if study and study.radius else float(np.sqrt(d))
        shared = what_differs(problem) is None if self.shared_covariates is None else self.shared_covariates
        return CovariatePrior(
            kind=self.covariates,
            shared=shared,
            normal=believed,
            largest_moment=1.0,
            largest_trace=radius**2,
        )

    def _run(
        self, code: "Entry", model: "Model", size: int, prior: ScaledPrior, run: Run, assumptions: tuple[str, ...]
    ) -> Draws:
        from noisewise.analyst.methods.exact.run import sample
        from noisewise.analyst.nuts import Settings, in_words

        settings = Settings(self.warmup, self.target_accept or FIRST_TARGET, self.max_depth, self.cores)
        learn, retry = self.metric == "learned", self.target_accept is None
        sampled = sample(code, model, size, run, settings, learn_metric=learn, retry=retry)
        chains, settings = sampled.chains, sampled.settings
        notes = in_words(chains, learned(chains.kept, model.p), settings)
        return Draws.of_chains(
            chains.kept,
            prior,
            notes=notes + _unevenness(sampled.evenness) + assumptions,
            statistics={
                "divergences": chains.divergences.sum(axis=1),
                "step_size": chains.step_size,
                "tree_depth": chains.depth.mean(axis=1),
                "target_accept": np.array([settings.target_accept]),
                "gradients": np.array([sampled.gradients]),
                "evenness": sampled.evenness,
            },
        )

    def _sharing(self, problem: Problem) -> tuple[str, ...]:
        """Whether holders share a distribution of covariates, where that was found out or goes against the releases."""
        from noisewise.analyst.methods.exact.holders import what_differs

        if problem.J < 2 or self.covariates == "uniform":
            return ()
        differing = what_differs(problem)
        if differing and self.shared_covariates:
            return (
                f"Holders differ in {differing} by more than noise and chance explain, yet were given one distribution "
                "of features: intervals may miss. Use shared_covariates=False.",
            )
        if differing and self.shared_covariates is None:
            return (f"Each holder was given a distribution of features of its own, as they differ in {differing}.",)
        if not differing and self.shared_covariates is False:
            return (
                "Holders' features may all be alike, yet each was given a distribution of its own. Where noise hides "
                "them the priors of all add up, and intervals may be too narrow. Use shared_covariates=True.",
            )
        return ()


def _unevenness(evenness: Floats) -> tuple[str, ...]:
    """Where weights for the rounded kink of Laplace noise left few draws."""
    if evenness.min() >= EVEN:
        return ()
    return (
        f"Draws weigh unevenly: those of one chain are worth {evenness.min():.0%} of their number. Raise draws at "
        f"least {int(np.ceil(1.0 / evenness.min()))}fold.",
    )


def need_noise(problem: Problem) -> None:
    """Exact statistics have a conjugate posterior."""
    if problem.law == "none" or not (problem.sd_S.any() or problem.sd_z.any() or problem.sd_u.any()):
        raise FitError(
            "These statistics have no noise, so their posterior is conjugate and needs no sampler: use 'non-private' "
            "('auto' picks it)."
        )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
