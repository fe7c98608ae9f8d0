"""Methods that have one posterior, by different roads: the same small problem, the same priors, the same answer.

``exact`` (sums as latents, NUTS), ``individual`` (rows as latents, NUTS), ``normal-x`` (Gibbs and Metropolis, z
integrated out) and ``gibbs-update`` (Gibbs on the sums). gibbs-update is asked for ``sums="exact"``: its central limit
theorem is then a proposal only, so that what is left between any two is Monte Carlo error.

Compared are means of theta, log v and their squares, in units of the difference's Monte Carlo standard error (ArviZ). A
sound pair passes 5.5 of them with probability 4e-8, so that all comparisons of this file (120) fail by chance in 5e-6
of runs. Another prior of the covariates (uniform for normal) is found at 60 standard errors, noise of z a fifth too
small at 13; a gap of a thirtieth of a posterior sd is the least that shows.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from problems import FAR, Moments, make, moments, scaled, unknowns

from noisewise.analyst.fitting import METHODS
from noisewise.analyst.methods.base import Run
from noisewise.analyst.model import Problem
from noisewise.gram import Floats


def found_by(name: str, problem: Problem, draws: int, **options: Any) -> Moments:
    run = Run(draws, 4, np.random.SeedSequence(11))
    centre = np.append(scaled(problem).mean, np.log(0.1))
    return moments(unknowns(METHODS[name](**options).sample(problem, scaled(problem), run)) - centre)


ROADS: dict[str, dict[str, Any]] = {
    "exact": {"draws": 5000},
    "individual": {"draws": 5000},
    "normal-x": {"draws": 5000, "thin": 10},
    "gibbs-update": {"draws": 4000, "sums": "exact", "thin": 60, "warmup": 2000},
}

PROBLEMS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    # y'y under noise that hides it: what normal-x, which does not read it, knows as well
    "gaussian": ({"noise_u": 1e4}, ("exact", "individual", "normal-x", "gibbs-update")),
    "gaussian, y'y": ({"noise": 3.0}, ("exact", "individual", "gibbs-update")),
    "laplace": ({"law": "laplace"}, ("exact", "individual", "gibbs-update")),
    "two holders, no constant": ({"n": (60, 40), "constant": False}, ("exact", "individual", "gibbs-update")),
}


def problem_with(noise_u: float | None = None, **given: Any) -> Problem:
    problem = make(**{"d": 1, "n": (100,), "noise": 12.0, "seed": 2, **given})
    if noise_u is None:
        return problem
    return Problem(**{**vars(problem), "sd_u": np.full(problem.J, noise_u)})


def apart(a: Moments, b: Moments) -> Floats:
    """In standard errors of the difference."""
    return np.asarray((a.mean - b.mean) / np.hypot(a.error, b.error))


def check_pairs(found: dict[str, Moments]) -> None:
    for one, other in combinations(found, 2):
        far = apart(found[one], found[other])
        assert np.abs(far).max() < FAR, f"{one} and {other}: {np.round(far, 1)} standard errors apart"


@pytest.mark.parametrize("case", PROBLEMS)
def test_methods_of_one_posterior_agree(case: str) -> None:
    given, names = PROBLEMS[case]
    problem = problem_with(**given)
    found = {name: found_by(name, problem, **ROADS[name]) for name in names}
    check_pairs(found)


def test_methods_agree_under_a_prior_of_correlated_covariates() -> None:
    """A matrix for covariate_scatter, on few rows and much noise, where it matters; 36 comparisons more."""
    problem = problem_with(d=2, n=(30,), noise=8.0, noise_u=1e4, seed=4)
    prior = {"covariate_scatter": [[0.6, 0.5], [0.5, 0.6]], "covariate_freedom": 12.0}
    found = {name: found_by(name, problem, **options, **prior) for name, options in ROADS.items()}
    check_pairs(found)
    plain = found_by("exact", problem, **ROADS["exact"], covariate_scatter=0.6, covariate_freedom=12.0)
    assert np.abs(apart(plain, found["exact"])).max() > FAR
