"""How each method is run in a trial: economically, and longer where its draws are too dependent for ranks.

Chains are judged by their smallest effective sample over theta and log v. Below ``ENOUGH`` the fit is made again with
four times the sweeps or draws, and again; nothing in that choice looks at the truth.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.sbc.simulate import Simulated
from noisewise.analyst.diagnostics import import_arviz
from noisewise.analyst.fitting import METHODS
from noisewise.analyst.methods.base import Run
from noisewise.analyst.model import Problem
from noisewise.gram import Floats

ENOUGH = 100.0
TIMES = (1, 4, 16)  # as long; the last is kept whatever it gave (NUTS: the second, its bad cases take minutes)


class Effort(NamedTuple):
    """A method's options, and the two that grow: sweeps a draw and draws."""

    method: str
    options: Mapping[str, object] = {}
    chains: int = 1
    draws: int = 495
    thin: int | None = None
    warmup: int | None = None

    def times(self, factor: int) -> "Effort":
        """A compiled chain thins more and NUTS draws more, with a longer warm-up."""
        if self.thin is not None and self.warmup is not None:
            return self._replace(thin=self.thin * factor, warmup=self.warmup * factor)
        return self._replace(draws=self.draws * factor, warmup=self.warmup and self.warmup * min(factor, 3))


class Fitted(NamedTuple):
    """``draws`` of theta and v are (chains, draws, quantities)."""

    draws: Floats
    effective: float
    divergences: int
    seconds: float


def effort_of(method: str, n: int, epsilon: float) -> Effort:
    """By name; a name after METHODS' own says what is special."""
    thin = _gibbs_thin(n, epsilon)
    match method:
        case "exact" | "weak":
            covariates = {"covariates": "weak"} if method == "weak" else {}
            return Effort("exact", {"cores": 1, **covariates}, draws=400, warmup=150)
        case "exact-defaults":
            return Effort("exact", {"cores": 1}, chains=4, draws=1000)
        case "individual":
            return Effort(method, {"cores": 1}, chains=2, draws=250, warmup=300)
        case "normal-x":
            return Effort(method, {"cores": 1, "steps": 1}, thin=10, warmup=2000)
        case "gibbs-update" | "gibbs-prior" | "gibbs-noisy":
            return Effort(method, {"cores": 1}, thin=thin, warmup=50 * thin)
        case "gibbs-update-exact" | "gibbs-prior-exact":
            return Effort(method.removesuffix("-exact"), {"cores": 1, "sums": "exact"}, thin=thin, warmup=50 * thin)
        case "naive" | "fixed-s" | "fixed-s-fast":
            return Effort(method)
        case _:
            raise SystemExit(f"Method {method!r} has no settings in experiments/sbc/fits.py; give it some there.")


def _gibbs_thin(n: int, epsilon: float) -> int:
    """A Gibbs sweep moves by a share 1 / sqrt(n) of what it moves, and has further to go the more noise there is."""
    return (200 if n >= 1000 else 40) * (1 if epsilon >= 1 or n < 100 else 2)


def in_words(effort: Effort, again: bool = True) -> str:
    options = {**effort.options, "thin": effort.thin, "warmup": effort.warmup}
    chosen = " ".join(f"{key}={value}" for key, value in options.items() if value is not None and key != "cores")
    size = f"chains={effort.chains} draws={effort.draws}"
    longer = f", longer below {ENOUGH:.0f} effective" if again else ""
    return f"{effort.method} {chosen + ' ' if chosen else ''}{size}{longer}"


def fit(effort: Effort, simulated: Simulated, seed: np.random.SeedSequence, times: Sequence[int] = TIMES) -> Fitted:
    problem, began = Problem.of(simulated.releases), time.process_time()
    times = times if effort.thin else times[:2]
    for factor, once in zip(times, seed.spawn(len(times)), strict=True):
        longer = effort.times(factor)
        grown = {key: value for key in ("thin", "warmup") if (value := getattr(longer, key)) is not None}
        options: dict[str, Any] = {**longer.options, **grown}
        result = METHODS[longer.method](**options).sample(
            problem, simulated.prior, Run(longer.draws, longer.chains, once)
        )
        draws = np.concatenate([result.theta, result.variance[..., None]], axis=2)
        effective = float(draws.shape[0] * draws.shape[1]) if result.independent else _effective(draws)
        if effective >= ENOUGH:
            break
    divergences = int(result.statistics.get("divergences", np.zeros(1)).sum())
    return Fitted(draws, effective, divergences, time.process_time() - began)


def _effective(draws: Floats) -> float:
    """The smallest bulk effective sample over the quantities (of ranks, so v and log v are one)."""
    ess = import_arviz().ess
    return min(float(ess(draws[..., i])) for i in range(draws.shape[2]))
