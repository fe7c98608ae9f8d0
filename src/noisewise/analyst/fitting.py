"""nw.fit: releases in, posterior out."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

import numpy as np

from noisewise.analyst.methods.adassp import AdaSSP
from noisewise.analyst.methods.base import Method, Run
from noisewise.analyst.methods.exact import Exact
from noisewise.analyst.methods.exact.options import OF_NORMAL_COVARIATES
from noisewise.analyst.methods.fixed_s import FixedS
from noisewise.analyst.methods.fixed_s_fast import FixedSFast
from noisewise.analyst.methods.gibbs import GibbsPrior, GibbsUpdate
from noisewise.analyst.methods.gibbs.noisy import GibbsNoisy
from noisewise.analyst.methods.individual import Individual
from noisewise.analyst.methods.naive import Naive
from noisewise.analyst.methods.non_private import NonPrivate
from noisewise.analyst.methods.normal_x import NormalX
from noisewise.analyst.model import Problem
from noisewise.analyst.posterior import Posterior
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.errors import FitError
from noisewise.release import Release

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "adassp": AdaSSP,
        "exact": Exact,
        "fixed-s": FixedS,
        "fixed-s-fast": FixedSFast,
        "gibbs-noisy": GibbsNoisy,
        "gibbs-prior": GibbsPrior,
        "gibbs-update": GibbsUpdate,
        "individual": Individual,
        "naive": Naive,
        "non-private": NonPrivate,
        "normal-x": NormalX,
    }
)

# Up to here auto picks exact: so many distinct values of X'X and X'y over all holders, with so many coefficients. Four
# chains of 1000 draws then take up to about ten seconds on two cores (benchmarks/auto.py).
MODERATE_VALUES, MODERATE_ORDER = 3000, 31
NEGLIGIBLE_SHARE = 0.05


def fit(
    releases: Release | str | Path | Sequence[Release | str | Path],
    method: str = "auto",
    prior: Prior | None = None,
    *,
    draws: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    **options: object,
) -> Posterior:
    """The posterior of one regression from the releases of its holders.

    ``releases`` are Release objects or the paths of their files. ``method`` is one of ``METHODS`` or "auto";
    ``options`` are that method's own (``algorithm="mcmc"`` of fixed-s, say) and are checked. ``draws`` is per
    chain; ``seed`` makes sampling repeatable and has nothing to do with privacy noise.
    """
    given = [releases] if isinstance(releases, Release | str | Path) else list(releases)
    loaded = [item if isinstance(item, Release) else Release.load(item) for item in given]
    problem = Problem.of(loaded)
    for label, value in (("draws", draws), ("chains", chains)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise FitError(f"{label} is {value!r}; it is a whole number of at least 1.")
    believed = Prior() if prior is None else prior
    scaled = believed.in_scaled_units(problem.units)
    name, reason = (method, "") if method != "auto" else _choose(problem, scaled)
    if method == "auto" and name == "exact" and problem.study and OF_NORMAL_COVARIATES.keys().isdisjoint(options):
        options = {"covariates": "weak", **options}  # a study says the bounds, all that is believed then
    result = _make(name, options).sample(problem, scaled, Run(draws, chains, np.random.SeedSequence(seed)))
    return Posterior.of(problem, scaled, name, result, (reason,) if reason else ())


def _choose(problem: Problem, prior: ScaledPrior) -> tuple[str, str]:
    """The method that suits the releases, and the reason in words (docs/analyst.md has the rules)."""
    if problem.law == "none":
        return "non-private", "auto picked non-private: the statistics are exact."
    if problem.law == "laplace":
        return "exact", "auto picked exact: it counts Laplace noise, on every statistic and with any number of rows."
    quick = FixedS().sample(problem, prior, Run(1000, 1, np.random.SeedSequence(0)))
    share = 1.0 - (np.diag(quick.noise_free) / quick.theta.var(axis=(0, 1))).min()
    if share < NEGLIGIBLE_SHARE:
        return "fixed-s", (
            f"auto picked fixed-s: privacy noise is below {NEGLIGIBLE_SHARE:.0%} of every coefficient's variance."
        )
    values = problem.J * problem.order * (problem.order + 3) // 2
    if values > MODERATE_VALUES or problem.order > MODERATE_ORDER:
        return "fixed-s", (
            "auto picked fixed-s because exact takes long at this size "
            f"(holders: {problem.J}, coefficients: {problem.order}). "
            "Privacy noise matters here and fixed-s ignores what of it is in X'X, so its intervals may be much too "
            "narrow; method='exact' counts all of it."
        )
    return "exact", "auto picked exact: privacy noise matters here, and it counts all of it."


def _make(name: str, options: Mapping[str, object]) -> Method:
    if name not in METHODS:
        raise FitError(f"Method {name!r} is not known; use one of auto, {', '.join(METHODS)}.")
    known = [f.name for f in fields(METHODS[name])]  # type: ignore[arg-type]  # every method is a dataclass
    if unknown := [key for key in options if key not in known]:
        has = f"its options are {', '.join(known)}" if known else "it has none"
        raise FitError(f"Method {name!r} has no option {unknown[0]!r}; {has}.")
    return METHODS[name](**options)
