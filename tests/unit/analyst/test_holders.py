"""Whether holders are found to differ: by name where they do, and not by chance."""

from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.methods.exact import Exact
from noisewise.analyst.methods.exact.holders import what_differs
from noisewise.analyst.methods.individual import Individual
from noisewise.analyst.model import Problem
from noisewise.errors import FitError
from noisewise.gram import Floats

SD = 20.0


def problem(rows: list[Floats], sd: float = SD, noise: Any = "gaussian", seed: int = 1) -> Problem:
    """One release for each table of features, with a constant or without one as the table has it."""
    rng = np.random.default_rng(seed)
    releases = []
    for x in rows:
        p = x.shape[1]
        added = (rng.standard_normal if noise == "gaussian" else rng.laplace)(size=(p, p)) * sd
        added = np.tril(added * (1.0 if noise == "gaussian" else np.sqrt(0.5)))
        S = x.T @ x + added + np.tril(added, -1).T
        releases.append(nw.Release.from_statistics(S, x.sum(axis=0), len(x), sd_S=sd, sd_z=sd, noise=noise))
    return Problem.of(releases)


def tables(rng: np.random.Generator, J: int, n: int, d: int) -> list[Floats]:
    return [rng.uniform(-1.0, 1.0, (n, d)) for _ in range(J)]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("sd", [0.001, SD])
def test_holders_with_rows_of_one_law_are_never_told_apart(noise: str, sd: float) -> None:
    # Gaussian noise: 1e-6 a data set by construction. Laplace noise: with its true tails about 1e-6; 90 data sets each
    rng = np.random.default_rng(5)
    for J, n in ((2, 50), (5, 400), (20, 100)):
        for seed in range(30):
            assert what_differs(problem(tables(rng, J, n, 3), sd, noise, seed)) is None


def test_columns_with_rare_values_are_not_taken_for_a_difference() -> None:
    """A clipped log-normal and an indicator that is rarely 1 scatter more than normal columns do."""
    rng = np.random.default_rng(6)
    for seed in range(30):
        rows = []
        for _ in range(5):
            skewed = np.minimum(rng.lognormal(sigma=1.5, size=200), 20.0) / 20.0
            rows.append(np.column_stack([skewed, rng.random(200) < 0.02]).astype(float))
        assert what_differs(problem(rows, 0.001, seed=seed)) is None


def test_what_differs_is_named() -> None:
    rng = np.random.default_rng(7)
    rows = tables(rng, 3, 2000, 3)
    rows[1][:, 1] *= 0.5
    assert what_differs(problem(rows)) == "x2"
    rows = tables(rng, 3, 2000, 3)
    rows[1][:, 2] = rows[1][:, 0]
    assert what_differs(problem(rows)) == "x1 and x3"
    assert what_differs(problem(rows[:1])) is None


def test_a_difference_that_noise_hides_is_not_found() -> None:
    rng = np.random.default_rng(7)
    rows = tables(rng, 3, 100, 3)
    rows[1][:, 1] *= 0.5
    assert what_differs(problem(rows, 50.0)) is None


@pytest.mark.parametrize("method", [Exact, Individual])
def test_by_default_holders_share_unless_they_differ(method: Any) -> None:
    rng = np.random.default_rng(8)
    alike, apart = tables(rng, 3, 1000, 2), tables(rng, 3, 1000, 2)
    apart[0][:, 0] *= 0.3
    assert method()._covariate_prior(problem(alike)).shared
    assert not method()._covariate_prior(problem(apart)).shared
    assert not method(shared_covariates=False)._covariate_prior(problem(alike)).shared
    assert method(shared_covariates=True)._covariate_prior(problem(apart)).shared


def test_notes_say_what_was_found_and_what_goes_against_it() -> None:
    rng = np.random.default_rng(8)
    alike, apart = tables(rng, 3, 1000, 2), tables(rng, 3, 1000, 2)
    apart[0][:, 0] *= 0.3
    assert Exact()._sharing(problem(alike)) == ()
    assert "of its own, as they differ in x1." in Exact()._sharing(problem(apart))[0]
    assert "Use shared_covariates=False" in Exact(shared_covariates=True)._sharing(problem(apart))[0]
    assert "Use shared_covariates=True" in Exact(shared_covariates=False)._sharing(problem(alike))[0]
    assert Exact(shared_covariates=False)._sharing(problem(apart)) == ()


def test_another_word_is_refused() -> None:
    with pytest.raises(FitError, match="True, False, or None to have it found out"):
        Exact(shared_covariates="maybe")  # type: ignore[arg-type]
