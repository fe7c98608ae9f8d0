"""individual: its gradient, brute force where rows are uniform, and what it refuses. Agreement has its own file."""

from typing import Any

import numpy as np
import pytest
from problems import Density, make, scaled, unknowns

import noisewise as nw
from noisewise.analyst.diagnostics import rhat_and_ess
from noisewise.analyst.methods.base import Draws, Run
from noisewise.analyst.methods.individual import MOST_UNKNOWNS, Individual
from noisewise.analyst.methods.individual.entry import entry
from noisewise.analyst.model import Problem
from noisewise.gram import Layout

MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "no constant": ({"constant": False}, {}),
    "no u": ({"u": False}, {}),
    "laplace": ({"law": "laplace"}, {}),
    "noisy n": ({"noise_n": 3.0}, {}),
    "own covariates": ({}, {"shared_covariates": False}),
    "uniform": ({}, {"covariates": "uniform"}),
    "uniform, no constant": ({"constant": False}, {"covariates": "uniform"}),
    "fewer rows than coefficients": ({"d": 4, "n": (3, 6)}, {}),
}


def fit(problem: Problem, draws: int = 500, seed: int = 7, **options: Any) -> Draws:
    return Individual(**options).sample(problem, scaled(problem), Run(draws, 4, np.random.SeedSequence(seed)))


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_the_density(mode: str) -> None:
    given, options = MODES[mode]
    problem = make(**{"n": (12, 7), **given})
    model, size = Individual(**options).model(problem, scaled(problem))
    Density(entry(), model, size).check_gradient()


def test_uniform_covariates_by_brute_force() -> None:
    # a million tables of 6 rows drawn from the model, weighed by the noise; 6 standard errors, 3 unknowns: below 1e-8
    rng, n, count = np.random.default_rng(1), 6, 1_000_000
    problem = make(d=1, n=(n,), noise=3.0, law="laplace")
    x = rng.uniform(-1, 1, (n, count))
    theta, v = rng.standard_normal((2, count)), 0.1 / rng.gamma(2.0, size=count)
    y = theta[0] + theta[1] * x + np.sqrt(v) * rng.standard_normal((n, count))
    rows = np.stack([np.ones_like(x), x, y])
    sums = np.einsum("aic,bic->abc", rows, rows)
    seen = np.block([[problem.S[0], problem.z[0][:, None]], [problem.z[0], problem.u]])
    gaps = np.abs(sums - seen[..., None])
    log_weight = -np.sqrt(2) / 3.0 * sum(gaps[a, b] for a, b in ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2)))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    values = np.vstack([theta, np.log(v)])
    mean = values @ weight
    off = values - mean[:, None]
    error, sd = np.sqrt((off**2) @ weight**2), np.sqrt((off**2) @ weight)
    assert 1 / (weight**2).sum() > 10_000
    draws = unknowns(fit(problem, 1500, covariates="uniform"))
    own = draws.std(axis=(0, 1)) / np.sqrt(rhat_and_ess(draws)[1])
    assert (np.abs(draws.mean(axis=(0, 1)) - mean) < 6 * np.hypot(own, error)).all()
    np.testing.assert_allclose(draws.std(axis=(0, 1)), sd, rtol=0.1)


def test_a_seed_repeats_and_another_does_not() -> None:
    problem = make(d=1, n=(20, 5))
    one, two, other = (fit(problem, 50, seed=seed, warmup=150).theta for seed in (7, 7, 8))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_what_it_keeps_of_the_sums_is_their_posterior() -> None:
    """noise_free is E[(C^-1 + S / v)^-1]: with little noise S is known, and v nearly."""
    problem = make(d=1, n=(40, 30), noise=0.05)
    result = fit(problem, 300)
    precision = scaled(problem).precision + problem.S.sum(axis=0) / result.variance[..., None, None]
    np.testing.assert_allclose(result.noise_free, np.linalg.inv(precision).mean(axis=(0, 1)), rtol=0.05)


def test_too_many_people_are_sent_to_exact() -> None:
    rows = MOST_UNKNOWNS // 3 + 1
    with pytest.raises(nw.FitError, match=rf"3 unknowns for each of {rows:,} people.*up to 20,000.*'exact'"):
        fit(make(d=2, n=(rows,)))


def test_exact_entries_are_sent_to_exact() -> None:
    problem = make()
    known = np.zeros_like(problem.sd_S)
    with pytest.raises(nw.FitError, match="some entries here have no noise.*'exact'"):
        fit(Problem(**{**vars(problem), "sd_S": known}))
    with pytest.raises(nw.FitError, match="non-private"):
        fit(make(noise=0.0))


def test_a_noisy_number_of_rows_is_rounded_and_said_so() -> None:
    study = nw.Study([nw.Column("x", -1, 1)], nw.Column("y", -1, 1), epsilon=1.0, delta=1e-5, adjacency="add-remove")
    values = (12.3, 1.0, 2.0, 6.0, 3.0, 9.0)
    made = nw.Release(Layout.of(study), values, 0, "gaussian", (3.0,) * 6, study=study)
    result = nw.fit(made, method="individual", draws=20, seed=1, warmup=100)
    assert any("rounds it" in note and "'exact'" in note for note in result.notes)
    assert np.isfinite(result.coef).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariates": "weak"}, "individual has 'normal' and 'uniform'"),
        ({"metric": "dense"}, "'learned' and 'diagonal'"),
        ({"warmup": 10}, "at least 100"),
        ({"covariate_freedom": 0.5}, "above 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(nw.FitError, match=words):
        fit(make(), **options)
