"""Simulated tables have the law that they state.

Moments are compared at five standard errors: 2 x 2.9e-7 a comparison, fewer than 100 of them, so a false alarm has
probability below 6e-5 a run; with the fixed seeds it is 0 or 1 once and for all.
"""

import numpy as np
import pytest

import noisewise as nw
from noisewise.evaluation.hospitals import HOSPITALS, TRUTH, draw_hospital, hypertension_study
from noisewise.evaluation.simulate import (
    Parameters,
    Truth,
    draw_features,
    draw_table,
    draw_target,
    draw_truth,
    feature_moments,
    to_table,
)

N = 200_000


def study(**choices: object) -> nw.Study:
    features = (
        nw.Column("age", 20, 60),
        nw.Column.boolean("female"),
        nw.Column.categorical("ward", ["a", "b", "c"], baseline="b"),
    )
    return nw.Study(features, nw.Column("y", -10, 30), epsilon=1.0, delta=1e-6, **choices)  # type: ignore[arg-type]


def test_second_moments_of_features_are_the_stated_ones() -> None:
    x = draw_features(study(), N, np.random.default_rng(1))
    b = np.hstack([np.ones((N, 1)), x])
    products = b[:, :, None] * b[:, None, :]
    standard_error = products.std(axis=0) / np.sqrt(N)
    assert np.all(np.abs(products.mean(axis=0) - feature_moments(study())) <= 5 * standard_error + 1e-12)


def test_features_keep_to_their_bounds_and_levels_exclude_one_another() -> None:
    x = draw_features(study(), 1000, np.random.default_rng(2))
    assert x.shape == (1000, study().d)
    assert np.abs(x[:, 0]).max() <= 1
    assert set(np.unique(x[:, 1])) == {-1.0, 1.0}
    assert set(np.unique(x[:, 2:].sum(axis=1))) == {0.0, 1.0}


def test_target_given_features_is_the_regression() -> None:
    rng = np.random.default_rng(3)
    truth = Truth(np.array([0.1, 0.3, -0.2, 0.4, 0.05]), residual_variance=0.04)
    x = draw_features(study(), N, rng)
    residual = draw_target(x, truth, rng) - (np.hstack([np.ones((N, 1)), x]) @ truth.theta)
    assert abs(residual.mean()) <= 5 * 0.2 / np.sqrt(N)
    assert abs(residual.var() - 0.04) <= 5 * 0.04 * np.sqrt(2 / N)
    assert np.all(np.abs(residual @ x / N) <= 5 * 0.2 / np.sqrt(N))


def test_truth_follows_the_prior() -> None:
    rng = np.random.default_rng(4)
    prior = nw.Prior(mean=0.5, covariance=0.25, shape=6.0, scale=2.0)
    draws = [draw_truth(study(), rng, prior) for _ in range(20_000)]
    thetas = np.array([draw.theta for draw in draws])
    precisions = 1 / np.array([draw.residual_variance for draw in draws])  # gamma(6) / 2: mean 3, variance 1.5
    assert np.all(np.abs(thetas.mean(axis=0) - 0.5) <= 5 * 0.5 / np.sqrt(len(draws)))
    assert np.all(np.abs(thetas.var(axis=0) - 0.25) <= 5 * 0.25 * np.sqrt(2 / len(draws)))
    assert abs(precisions.mean() - 3.0) <= 5 * np.sqrt(1.5 / len(draws))


def test_tables_are_what_a_holder_reads_back() -> None:
    """Encoding a simulated table gives the scaled rows again, up to the 16 bits of the encoding."""
    rng = np.random.default_rng(5)
    x = draw_features(study(), 500, rng)
    y = rng.uniform(-1, 1, 500)
    exact = nw.exact_release(study(), to_table(study(), x, y)).sufficient
    b = np.hstack([np.ones((500, 1)), x])
    assert np.allclose(exact.S, b.T @ b, atol=500 * 2.0**-14)
    assert np.allclose(exact.z, b.T @ y, atol=500 * 2.0**-14)


@pytest.mark.parametrize("intercept", [True, False])
def test_units_of_a_truth_go_there_and_back(intercept: bool) -> None:
    contract = study(intercept=intercept)
    truth = draw_truth(contract, np.random.default_rng(6))
    again = Truth.from_user_units(contract, truth.in_user_units(contract))
    assert np.allclose(again.theta, truth.theta)
    assert again.residual_variance == pytest.approx(truth.residual_variance)


def test_user_units_are_those_of_the_table() -> None:
    contract = study()
    parameters = Parameters(intercept=4.0, coef=np.array([0.1, 2.0, -1.0, 3.0]), sigma=1e-9)
    table = draw_table(contract, 50, Truth.from_user_units(contract, parameters), np.random.default_rng(7))
    levels = np.column_stack([table["ward"] == "a", table["ward"] == "c"])
    line = 4.0 + 0.1 * table["age"] + 2.0 * table["female"] + levels @ [-1.0, 3.0]
    assert np.allclose(table["y"], line, atol=1e-6)


def test_hospitals_obey_the_stated_regression() -> None:
    rng = np.random.default_rng(8)
    for hospital in HOSPITALS:
        table = draw_hospital(hospital._replace(rows=N), rng)
        former, current = table["smoking"] == "former", table["smoking"] == "current"
        design = np.column_stack([np.ones(N), table["age"], table["bmi"], table["female"], former, current])
        fitted, *_ = np.linalg.lstsq(design, table["systolic"].astype(float), rcond=None)
        variance = TRUTH.sigma**2 + 1 / 12  # pressures are rounded to whole mmHg
        standard_error = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
        assert np.all(np.abs(fitted - [TRUTH.intercept, *TRUTH.coef]) <= 5 * standard_error)


def test_hospitals_differ_and_fit_the_study() -> None:
    rng = np.random.default_rng(9)
    contract = hypertension_study()
    assert len(TRUTH.coef) == contract.d
    ages = []
    for hospital in HOSPITALS:
        table = draw_hospital(hospital, rng)
        assert nw.exact_release(contract, table).n == hospital.rows
        ages.append(table["age"].mean())
    assert max(ages) - min(ages) > 10
    assert len({hospital.rows for hospital in HOSPITALS}) == 3
