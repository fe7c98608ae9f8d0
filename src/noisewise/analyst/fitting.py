"""nw.fit: releases in, posterior out."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

import numpy as np

from noisewise.analyst.methods.adassp import AdaSSP
from noisewise.analyst.methods.base import Method, Run
from noisewise.analyst.methods.exact import Exact
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

# auto leaves larger problems to fixed-s: exact takes seconds here and minutes at three times as many coefficients
MODERATE_ORDER, MODERATE_HOLDERS = 11, 20
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
    result = _make(name, options).sample(problem, scaled, Run(draws, chains, np.random.SeedSequence(seed)))
    return Posterior.of(problem, scaled, name, result, (reason,) if reason else ())


def _choose(problem: Problem, prior: ScaledPrior) -> tuple[str, str]:
    """The method that suits the releases, and the reason in words (docs/analyst.md has the rules)."""
    if problem.law == "none":
        return "non-private", "auto picked non-private: the statistics are exact."
    if problem.law == "laplace":
        return "exact", "auto picked exact: it counts Laplace noise, on every statistic and with any number of rows."
    if problem.order > MODERATE_ORDER or problem.J > MODERATE_HOLDERS:
        return "fixed-s", (
            "auto picked fixed-s, which ignores the noise in X'X, because exact takes long with this many columns or "
            "holders; method='exact' counts all noise."
        )
    quick = FixedS().sample(problem, prior, Run(1000, 1, np.random.SeedSequence(0)))
    share = 1.0 - (np.diag(quick.noise_free) / quick.theta.var(axis=(0, 1))).min()
    if share < NEGLIGIBLE_SHARE:
        return "fixed-s", (
            f"auto picked fixed-s: privacy noise is below {NEGLIGIBLE_SHARE:.0%} of every coefficient's variance."
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
