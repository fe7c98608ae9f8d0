"""Every method that counts the noise: none gives the conjugate posterior, noise without end gives the prior.

Means of theta and log v and of their squares, by ``FAR`` Monte Carlo standard errors each: some 80
comparisons, of which one fails by chance in 3e-6 of runs.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import FAR, make, moments, scaled, unknowns

from noisewise.analyst.fitting import METHODS
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.non_private import NonPrivate
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior

GIBBS: dict[str, Any] = {"sums": "exact", "warmup": 3000, "thin": 200}
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {},
    "fixed-s": {},
    "gibbs-prior": GIBBS,
    "gibbs-update": GIBBS,
    "individual": {},
    "normal-x": {"thin": 20},
}
# Not asked: baselines, which count no noise; fixed-s-fast, whose residual variance is a stated number; and methods that
# need statistics of their own. Their own files test them.
APART = {"adassp", "fixed-s-fast", "gibbs-noisy", "naive", "non-private"}
PRIOR = Prior(mean=0.5, covariance=0.25, shape=5.0, scale=1.0)


def test_no_method_is_forgotten() -> None:
    assert set(METHODS) - set(OPTIONS) <= APART


def fit(name: str, problem: Problem, draws: int) -> Draws:
    return METHODS[name](**OPTIONS[name]).sample(
        problem, scaled(problem, PRIOR), Run(draws, 4, np.random.SeedSequence(3))
    )


def under_noise(problem: Problem, sd: float, law: Any) -> Problem:
    """The same numbers, now said to carry noise: so that the limit is approached in width, not by luck."""
    sd_S = np.full_like(problem.sd_S, sd)
    if problem.units.constant:
        sd_S[:, 0, 0] = 0.0
    sd_u = np.full(problem.J, sd if problem.u is not None else 0.0)
    return replace(problem, law=law, sd_S=sd_S, sd_z=np.full_like(problem.sd_z, sd), sd_u=sd_u)


@pytest.mark.parametrize(
    ("name", "law"),
    [(name, "gaussian") for name in OPTIONS] + [("exact", "laplace"), ("gibbs-update", "laplace")],
)
def test_no_noise_to_speak_of_gives_the_conjugate_posterior(name: str, law: str) -> None:
    # noise of a fifteenth of the sampling variation adds half a percent to a variance. normal-x does not read y'y, and
    # without it the holders' z tell of v what their sum does not: one holder then.
    paper = name == "normal-x"
    exact = make(d=1, n=(45,) if paper else (25, 20), noise=0.0, u=not paper, seed=4)
    its = unknowns(NonPrivate().sample(exact, scaled(exact, PRIOR), Run(40_000, 4, np.random.SeedSequence(1))))
    mine = unknowns(fit(name, under_noise(exact, 0.04, law), 1000))
    centre, sd = its.mean(axis=(0, 1)), its.std(axis=(0, 1))
    a, b = moments((mine - centre) / sd), moments((its - centre) / sd)
    assert (np.abs(a.mean - b.mean) < FAR * np.hypot(a.error, b.error) + 0.01).all()


@pytest.mark.parametrize("name", OPTIONS)
def test_noise_without_end_gives_the_prior(name: str) -> None:
    problem = under_noise(make(d=1, n=(12, 6), noise=1e6), 1e6, "gaussian")
    if name == "fixed-s":  # S is plugged in: the noise that it counts is that of z and u
        known = make(d=1, n=(12, 6), noise=0.0)
        problem = replace(problem, S=known.S, sd_S=known.sd_S)
    result = fit(name, problem, 1500)
    theta = moments((result.theta - 0.5) / 0.5)
    precision = moments((1 / result.variance[..., None] - 5.0) / np.sqrt(5.0))  # 1 / v ~ gamma(5, 1)
    for found in (theta, precision):
        half = found.mean.size // 2
        assert (np.abs(found.mean[:half]) < FAR * found.error[:half]).all()
        assert (np.abs(found.mean[half:] - 1.0) < FAR * found.error[half:]).all()
