"""The noise is as large as the guarantee needs, and no larger: calibration against what it inverts."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from noisewise.column import Column
from noisewise.errors import StudyError
from noisewise.gram import Layout
from noisewise.privacy.calibration import SLACK, gaussian_multiplier, plan_noise
from noisewise.privacy.sensitivity import l1, sensitivity
from noisewise.study import Study


def make_study(d: int = 2, **choices: Any) -> Study:
    columns = tuple(Column(f"x{i}", -1, 1) for i in range(d))
    return Study(columns, Column("y", -1, 1), **{"epsilon": 1.0, "delta": 1e-6, **choices})


def pure_study(d: int = 2, **choices: Any) -> Study:
    return make_study(d, **{"delta": None, "mechanism": "laplace", **choices})


@given(epsilon=st.floats(0.01, 50), exponent=st.floats(-12, -0.5))
def test_calibrating_and_accounting_invert_each_other(epsilon: float, exponent: float) -> None:
    back = get_epsilon_gaussian(gaussian_multiplier(epsilon, 10**exponent), 10**exponent)
    assert back <= epsilon
    assert back == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "multiplier"),
    # the root of Balle & Wang's Theorem 8, by bisection in 50-digit arithmetic
    [(1.0, 1e-6, 4.22467888932684), (0.1, 1e-6, 36.3046904261958), (5.0, 1e-9, 1.21171246613458)],
)
def test_known_multipliers(epsilon: float, delta: float, multiplier: float) -> None:
    assert gaussian_multiplier(epsilon, delta) == pytest.approx(multiplier * SLACK, rel=1e-11)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 1e-4), (4.0, 1e-3), (0.01, 0.1)])
def test_delta_by_integration(epsilon: float, delta: float) -> None:
    """The hockey-stick divergence of two normal laws one sensitivity apart, integrated: delta, and not above."""
    sigma = gaussian_multiplier(epsilon, delta)
    edge = epsilon * sigma**2 + 0.5  # the densities' ratio passes e^epsilon here

    def excess(x: float) -> float:
        return float(norm.pdf(x, 1, sigma) - math.exp(epsilon) * norm.pdf(x, 0, sigma))

    value, error = quad(excess, edge, 1 + 40 * sigma, epsabs=1e-18, epsrel=1e-11, limit=500)
    assert error < 1e-8 * delta
    assert value <= delta
    assert value == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("shift", [[1.0, 0, 0], [0.6, 0.8, 0], [-0.48, 0.6, 0.64]])
def test_a_vector_is_as_private_as_a_number(shift: list[float]) -> None:
    """Monte Carlo of delta for an isotropic vector, the loss written out in coordinates. Seeded; the tolerance is six
    standard errors of 400,000 draws, a false alarm of 2e-9 for a new seed."""
    epsilon, delta = 1.0, 1e-2
    sigma = gaussian_multiplier(epsilon, delta)
    noise = np.random.default_rng(8).normal(0, sigma, (400_000, 3))
    loss = (np.sum((noise + shift) ** 2, axis=1) - np.sum(noise**2, axis=1)) / (2 * sigma**2)
    terms = np.maximum(0, 1 - np.exp(epsilon - loss))
    assert abs(terms.mean() - delta) < 6 * terms.std() / math.sqrt(len(terms))


@pytest.mark.parametrize("release_yy", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("adjacency", "public_n"), [("replace-one", True), ("add-remove", True), ("add-remove", False)]
)
def test_gaussian_scales(release_yy: bool, intercept: bool, adjacency: str, public_n: bool) -> None:
    study = make_study(3, release_yy=release_yy, intercept=intercept, adjacency=adjacency, public_n=public_n)
    plan = plan_noise(study)
    bound, layout = sensitivity(study), Layout.of(study)
    assert plan.law == "gaussian"
    assert plan.sensitivity == bound
    assert plan.multiplier == pytest.approx(4.2246789, rel=1e-6)
    assert plan.multiplier >= gaussian_multiplier(1.0, 1e-6)
    for pair, scale, weight in zip(layout.pairs, plan.scales, layout.weights, strict=True):
        if pair == (0, 0) and public_n:
            assert scale == 0.0
        else:
            assert scale == pytest.approx(plan.multiplier * bound.value / weight, rel=1e-15)
    assert plan.grid_scales == tuple(scale * 2.0**32 for scale in plan.scales)


def test_off_the_diagonal_has_half_the_variance() -> None:
    study = make_study(2)
    scale = dict(zip(Layout.of(study).pairs, plan_noise(study).scales, strict=True))
    assert scale[(1, 1)] == pytest.approx(math.sqrt(2) * scale[(1, 2)])
    assert scale[(3, 3)] == pytest.approx(math.sqrt(2) * scale[(1, 3)])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_laplace_scales(epsilon: float, adjacency: str) -> None:
    study = pure_study(3, epsilon=epsilon, adjacency=adjacency)
    plan = plan_noise(study)
    assert plan.law == "laplace"
    assert plan.multiplier == pytest.approx(1 / epsilon, rel=1e-8)
    first, *others = plan.scales
    assert first == (0.0 if adjacency == "replace-one" else others[0])
    assert set(others) == {plan.multiplier * l1(study)}
    # the privacy loss of a move of the whole sensitivity, which is what epsilon bounds
    assert l1(study) / others[0] <= epsilon
    assert l1(study) / others[0] == pytest.approx(epsilon, rel=1e-8)


def discrete_gaussian(s: float) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(-40 * math.ceil(s), 40 * math.ceil(s) + 1)
    kernel = np.exp(-(k**2) / (2 * s**2))
    return k, kernel / kernel.sum()


@pytest.mark.parametrize("s", [8.0, 8.5, 16.0, 64.0, 1024.0])
def test_rounded_and_discrete_gaussians_are_close(s: float) -> None:
    """The total variation distance that calibration sets aside, 1/(10 s^2), against the two laws summed up."""
    k, discrete = discrete_gaussian(s)
    # a difference of tails on the side where they are small keeps all digits
    rounded = norm.sf((np.abs(k) - 0.5) / s) - norm.sf((np.abs(k) + 0.5) / s)
    distance = np.abs(discrete - rounded).sum() / 2
    assert distance < 1 / (10 * s**2)
    assert distance > 0.1 / (10 * s**2)  # and the order of the bound is right


@pytest.mark.parametrize(("s", "shift"), [(8.0, 4), (16.0, 16), (64.0, 20)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_the_discrete_mechanism_keeps_the_corrected_delta(s: float, shift: int, epsilon: float) -> None:
    """delta of the discrete law, summed, against the continuous law's plus (1 + e^epsilon) times the distance."""
    _, mass = discrete_gaussian(s)
    moved = np.concatenate([np.zeros(shift), mass[:-shift]])
    discrete = np.maximum(0, moved - math.exp(epsilon) * mass).sum()
    r = shift / s
    continuous = norm.cdf(r / 2 - epsilon / r) - math.exp(epsilon) * norm.cdf(-r / 2 - epsilon / r)
    assert discrete <= continuous + (1 + math.exp(epsilon)) / (10 * s**2)
    assert discrete == pytest.approx(continuous, abs=(1 + math.exp(epsilon)) / (10 * s**2))


@given(d=st.integers(1, 6), epsilon=st.floats(0.05, 10), exponent=st.floats(-9, -2), bits=st.integers(12, 20))
@settings(max_examples=40)
def test_discretisation_is_paid_for(d: int, epsilon: float, exponent: float, bits: int) -> None:
    """What a release really gives: the continuous delta at its multiplier plus what integers cost, within delta."""
    study = make_study(d, epsilon=epsilon, delta=10**exponent, bits=bits)
    try:
        plan = plan_noise(study)
    except StudyError:
        reject()  # integers would cost too much of delta: refused, which the next test is about
    distance = sum(0.1 / scale**2 for scale in plan.grid_scales if scale)
    left = 10**exponent - (1 + math.exp(epsilon)) * distance
    assert get_epsilon_gaussian(plan.multiplier, left) <= epsilon
    assert get_epsilon_gaussian(plan.multiplier, left) == pytest.approx(epsilon, rel=1e-2)


def test_noise_too_fine_for_integers() -> None:
    with pytest.raises(StudyError, match=r"At 8 bits the noise .* too fine .* raise 'bits', raise delta"):
        plan_noise(make_study(1, epsilon=20, delta=1e-9, bits=8))
    with pytest.raises(StudyError, match="too fine"):
        plan_noise(make_study(1, epsilon=100))
    plan_noise(make_study(1, epsilon=20))


def test_noise_too_large_for_integers() -> None:
    with pytest.raises(StudyError, match=r"overflows 64-bit integers at 20 bits .* lower 'bits', raise epsilon"):
        plan_noise(pure_study(6, epsilon=1e-4, bits=20))
    with pytest.raises(StudyError, match="overflows"):
        plan_noise(make_study(6, epsilon=1e-4, bits=20))
    assert max(plan_noise(pure_study(6, epsilon=1e-4, bits=16)).grid_scales) < 2**56


def test_slack_is_on_the_private_side() -> None:
    assert 1 < SLACK < 1 + 1e-6
