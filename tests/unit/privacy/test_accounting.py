"""What several releases cost together: limits, closed forms, and bounds that must hold whatever the mixture."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from noisewise.column import Column
from noisewise.errors import LedgerError
from noisewise.privacy import accounting
from noisewise.privacy.accounting import Event, composed_epsilon, largest_that_fits
from noisewise.privacy.calibration import SLACK, gaussian_multiplier, plan_noise
from noisewise.study import Study


def gaussian(epsilon: float = 1.0, delta: float = 1e-6, distance: float = 0.0) -> Event:
    return Event("gaussian", gaussian_multiplier(epsilon, delta), epsilon, delta, distance)


def laplace(epsilon: float = 1.0, distance: float = 0.0) -> Event:
    return Event("laplace", SLACK / epsilon, epsilon, 0.0, distance)


def gaussian_delta(shift: float, epsilon: float) -> float:
    """The hockey-stick divergence of two normal laws (Balle & Wang 2018, Theorem 8)."""
    return float(norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift))


class Losses:
    """The law of the privacy loss as weighted points: an independent, slow accountant for small cases."""

    def __init__(self, points: np.ndarray, masses: np.ndarray) -> None:
        self.points, self.masses = points, masses

    @classmethod
    def laplace(cls, epsilon: float, cells: int = 800) -> "Losses":
        """The loss of one shift by epsilon scales: 1/2 at epsilon, exp(-epsilon)/2 at -epsilon, the rest between."""
        edges = np.linspace(0, epsilon, cells + 1)
        between = np.diff(-np.exp(-edges)) / 2
        middle = epsilon - (edges[1:] + edges[:-1])
        points = np.concatenate([[epsilon], middle, [-epsilon]])
        return cls(points, np.concatenate([[0.5], between, [math.exp(-epsilon) / 2]]))

    def __mul__(self, other: "Losses") -> "Losses":
        return Losses((self.points[:, None] + other.points).ravel(), (self.masses[:, None] * other.masses).ravel())

    def delta(self, epsilon: float) -> float:
        return float(np.sum(self.masses * np.maximum(0, 1 - np.exp(epsilon - self.points))))


def test_nothing_costs_nothing() -> None:
    assert composed_epsilon([], 0.0) == 0.0
    assert composed_epsilon([], 1e-6) == 0.0


@pytest.mark.parametrize("event", [gaussian(), gaussian(0.3, 1e-9), gaussian(5, 1e-4), laplace(), laplace(0.1)])
def test_one_release_costs_what_it_states(event: Event) -> None:
    assert composed_epsilon([event], event.delta) == event.epsilon
    assert composed_epsilon([event], 1e-3) <= event.epsilon


def test_one_release_costs_what_it_states_with_discretisation() -> None:
    event = gaussian(1, 1e-6, distance=1e-9)
    assert composed_epsilon([event], 1e-6) == 1.0


@given(epsilon=st.floats(0.01, 20), exponent=st.floats(-12, -1))
@settings(max_examples=50)
def test_one_release_never_costs_more_than_stated(epsilon: float, exponent: float) -> None:
    event = gaussian(epsilon, 10**exponent)
    cost = composed_epsilon([event], event.delta)
    assert epsilon * (1 - 1e-6) <= cost <= epsilon


def test_a_gaussian_has_no_pure_guarantee() -> None:
    assert composed_epsilon([gaussian()], 0.0) == math.inf
    assert composed_epsilon([gaussian(), laplace()], 0.0) == math.inf


def test_gaussians_combine_into_one() -> None:
    """Four equal releases are one with half the multiplier, to the last digit the formula gives."""
    events = [gaussian(1, 1e-6)] * 4
    shift = 2 / events[0].multiplier
    cost = composed_epsilon(events, 1e-5)
    assert gaussian_delta(shift, cost) == pytest.approx(1e-5, rel=1e-6)
    assert cost < 4


def test_different_gaussians_combine_by_their_squares() -> None:
    events = [gaussian(0.5, 1e-7), gaussian(1, 1e-6), gaussian(2, 1e-5)]
    shift = math.sqrt(sum(event.multiplier**-2 for event in events))
    assert gaussian_delta(shift, composed_epsilon(events, 1e-6)) == pytest.approx(1e-6, rel=1e-6)


def test_a_tighter_delta_costs_more_than_stated() -> None:
    assert composed_epsilon([gaussian(1, 1e-5)], 1e-6) > 1.05


def test_sums_are_decimal() -> None:
    """As people write them: 0.1 + 0.2 is 0.3, and not 0.30000000000000004."""
    assert composed_epsilon([laplace(0.1), laplace(0.2)], 0.0) == 0.3
    assert composed_epsilon([laplace(0.1)] * 10, 0.0) == 1.0


def test_pure_sums_hold_at_any_delta() -> None:
    events = [laplace(0.4), laplace(0.6)]
    assert composed_epsilon(events, 0.0) == 1.0
    assert 0.9 < composed_epsilon(events, 1e-6) <= 1.0


def test_many_laplaces_gain_from_delta() -> None:
    """A hundred at 0.1: the pure sum is 10; the privacy loss concentrates near 0.5 with deviation 1."""
    events = [laplace(0.1)] * 100
    assert composed_epsilon(events, 0.0) == 10.0
    assert 4.5 < composed_epsilon(events, 1e-6) < 5.5


def test_two_laplaces_against_a_slow_accountant() -> None:
    """At a delta so large that the curve is well below the sum; the point law is off by less than a cell, 2e-3."""
    one, two = Losses.laplace(1.0), Losses.laplace(0.5)
    cost = composed_epsilon([laplace(1.0), laplace(0.5)], 0.05)
    assert cost < 1.45
    assert (one * two).delta(cost) == pytest.approx(0.05, abs=1e-3)


def test_mixture_against_a_slow_accountant() -> None:
    """Condition on the Laplace loss, then use the Gaussian's closed form."""
    event = gaussian(1, 1e-6)
    cost = composed_epsilon([event, laplace(0.7)], 1e-5)
    losses = Losses.laplace(0.7)
    delta = sum(
        mass * gaussian_delta(1 / event.multiplier, cost - point)
        for point, mass in zip(losses.points, losses.masses, strict=True)
    )
    assert delta == pytest.approx(1e-5, rel=1e-2)
    assert delta <= 1e-5 * (1 + 1e-3)
    assert cost < 1.7


@given(
    shifts=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=3),
    epsilon=st.floats(-1.0, 3.0),
)
@settings(max_examples=60)
def test_a_vector_of_laplaces_is_no_worse_than_one(shifts: list[float], epsilon: float) -> None:
    """The claim behind the one-number loss of a Laplace release; the points err by at most a cell of 0.013."""
    split = Losses.laplace(shifts[0], 80)
    for shift in shifts[1:]:
        split = split * Losses.laplace(shift, 80)
    total = sum(shifts)
    one = max(0.0, 1 - math.exp((epsilon - total) / 2)) if epsilon > -total else 1 - math.exp(epsilon)
    assert split.delta(epsilon) <= one + 1e-3


def test_distance_is_paid_from_delta() -> None:
    events = [gaussian()] * 3
    exact = composed_epsilon(events, 1e-6)
    assert composed_epsilon([replace(event, distance=1e-22) for event in events], 1e-6) == pytest.approx(
        exact, rel=1e-6
    )
    coarse = composed_epsilon([replace(event, distance=1e-9) for event in events], 1e-6)
    assert coarse > exact
    # what is left of delta after (1 + e^epsilon) * 3e-9 must still carry the curve at the epsilon that was returned
    shift = math.sqrt(3) / events[0].multiplier
    assert gaussian_delta(shift, coarse) + (1 + math.exp(coarse)) * 3e-9 <= 1e-6
    assert composed_epsilon([replace(event, distance=1e-6) for event in events], 1e-6) == math.inf


def test_distance_of_a_study() -> None:
    study = Study((Column("x", 0, 1),), Column("y", 0, 1), epsilon=1, delta=1e-6)
    plan = plan_noise(study)
    event = Event.of(study, plan)
    assert (event.law, event.multiplier, event.epsilon, event.delta) == ("gaussian", plan.multiplier, 1.0, 1e-6)
    noisy = [scale for scale in plan.grid_scales if scale]
    assert event.distance == pytest.approx(sum(0.1 / scale**2 for scale in noisy))
    pure = Study((Column("x", 0, 1),), Column("y", 0, 1), epsilon=1, mechanism="laplace")
    assert 0 < Event.of(pure, plan_noise(pure)).distance < 1e-18
    assert composed_epsilon([Event.of(study, plan)] * 2, 1e-6) == pytest.approx(
        composed_epsilon([gaussian()] * 2, 1e-6), rel=1e-6
    )


def test_rounded_and_discrete_laplace_differ_by_the_stated_distance() -> None:
    """1/(8 b^2) in the module's text, against the two laws summed up."""
    for scale in (0.7, 3.0, 20.0):
        k = np.arange(-2000, 2001)
        discrete = math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale)
        upper, lower = (np.abs(k) + 0.5) / scale, (np.abs(k) - 0.5) / scale
        tail = (np.exp(-np.maximum(lower, 0)) - np.exp(-upper)) / 2
        rounded = np.where(k == 0, 1 - np.exp(-0.5 / scale), tail)
        assert rounded.sum() == pytest.approx(1)
        distance = np.abs(discrete - rounded).sum() / 2
        assert 0.3 / (8 * scale**2) < distance <= 1 / (8 * scale**2)


events = st.one_of(
    st.builds(gaussian, st.floats(0.05, 3), st.sampled_from([1e-8, 1e-6, 1e-5])),
    st.builds(laplace, st.floats(0.05, 3)),
)


@given(st.lists(events, min_size=1, max_size=5), events, st.sampled_from([1e-7, 1e-6, 1e-4]))
@settings(max_examples=25)
def test_more_costs_more_and_order_is_nothing(some: list[Event], more: Event, delta: float) -> None:
    cost = composed_epsilon(some, delta)
    assert composed_epsilon([*some, more], delta) >= cost * (1 - 1e-6)
    assert composed_epsilon(some[::-1], delta) == pytest.approx(cost, rel=1e-6)
    assert composed_epsilon(some, delta * 10) <= cost * (1 + 1e-6)
    if sum(event.delta for event in some) <= delta:
        assert cost <= sum(event.epsilon for event in some) * (1 + 1e-12)
    # no release hides behind another
    assert cost >= max(composed_epsilon([event], delta) for event in some) * (1 - 1e-3)


def test_a_thousand_releases() -> None:
    """Equal ones are raised to a power; different ones are grouped, upwards and by little."""
    assert composed_epsilon([gaussian(0.1, 1e-7)] * 1000, 1e-6) < 20
    equal = composed_epsilon([laplace(0.01)] * 1000, 1e-6)
    assert 1.3 < equal < 1.4
    different = [laplace(0.01 * (1 + k / 1e5)) for k in range(1000)]
    cost = composed_epsilon(different, 1e-6)
    assert equal <= cost < equal * 1.05
    mixed = [*different, *([gaussian(0.05, 1e-7)] * 1000)]
    assert cost < composed_epsilon(mixed, 1e-6) < 20


def test_grouping_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight to the bound, past the memory of composed_epsilon, which knows nothing of the patch."""
    different = [laplace(0.1 + k / 1000) for k in range(20)]
    exact = accounting._by_loss_distribution([], different, 1e-6)
    monkeypatch.setattr(accounting, "MANY", 5)
    grouped = accounting._by_loss_distribution([], different, 1e-6)
    assert exact < grouped <= exact * 1.1


@pytest.mark.parametrize("asked", [gaussian(3, 1e-6), laplace(3)])
def test_largest_that_fits(asked: Event) -> None:
    spent = [gaussian(1, 1e-7)]
    best = largest_that_fits(spent, asked, 2.0, 1e-6)
    assert best is not None

    def again(epsilon: float) -> Event:
        return gaussian(epsilon, asked.delta) if asked.law == "gaussian" else laplace(epsilon)

    assert composed_epsilon([*spent, again(best)], 1e-6) <= 2.0
    assert composed_epsilon([*spent, again(best * 1.01)], 1e-6) > 2.0


def test_nothing_fits_when_all_is_spent() -> None:
    assert largest_that_fits([laplace(1)], laplace(1), 1.0, 0.0) is None
    assert largest_that_fits([], gaussian(), 1.0, 0.0) is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"law": "uniform"}, "law 'uniform' is not known"),
        ({"multiplier": 0.0}, "above 0"),
        ({"multiplier": math.nan}, "multiplier .* finite number"),
        ({"epsilon": math.inf}, "epsilon .* finite number"),
        ({"epsilon": -1.0}, "above 0"),
        ({"epsilon": True}, "finite number"),
        ({"delta": 0.0}, "delta is 0 for Laplace"),
        ({"delta": 1.0}, "delta is 0 for Laplace"),
        ({"distance": -1e-9}, "distance"),
        ({"law": "laplace"}, "delta is 0 for Laplace"),
        ({"multiplier": 4.0}, r"does not give epsilon 1 at delta 1e-06; that takes 4\.2246"),
        ({"law": "laplace", "delta": 0.0, "multiplier": 0.5}, "that takes 1 times"),
    ],
)
def test_what_is_no_release(values: dict[str, Any], words: str) -> None:
    sound: dict[str, Any] = {"law": "gaussian", "multiplier": 5.0, "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(LedgerError, match=words):
        Event(**{**sound, **values})


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_delta_out_of_range(delta: float) -> None:
    with pytest.raises(LedgerError, match="out of range"):
        composed_epsilon([gaussian()], delta)
