"""Noise in parts: the law of the sum, the accounting for it, and who is refused."""

import math

import numpy as np
import pytest

from noisewise.column import Column
from noisewise.errors import RoundError
from noisewise.privacy.accounting import Event
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.distributed import Crowd, most_rows, plan_shared_noise, shared_event, sum_distance
from noisewise.study import Study


def study(**changes: object) -> Study:
    settings = {"epsilon": 1.0, "delta": 1e-6, **changes}
    return Study([Column("x", -1, 1)], Column("y", -1, 1), **settings)  # type: ignore[arg-type]


def discrete_gaussian(variance: float, half_width: int) -> np.ndarray:
    law = np.exp(-(np.arange(-half_width, half_width + 1) ** 2) / (2 * variance))
    return law / law.sum()


@pytest.mark.parametrize("scale", [0.4, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("terms", [1, 2, 3, 5, 10])
def test_the_sum_is_as_near_to_one_discrete_gaussian_as_stated(scale: float, terms: int) -> None:
    """The exact law of the sum, by convolution, at scales so small that the distance can be seen."""
    width = 60
    law = total = discrete_gaussian(scale**2, width)
    for _ in range(terms - 1):
        total = np.convolve(total, law)
    single = discrete_gaussian(terms * scale**2, width * terms)
    near = single > 1e-9  # beyond, the convolution's own rounding is what is seen
    worst = np.abs(np.log(total[near] / single[near])).max()
    assert worst <= sum_distance(scale, terms) + 1e-6


def test_the_shortcut_for_many_terms_is_a_bound() -> None:
    for scale in (0.5, 2.0):
        exact = 10 * math.fsum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, 5000))
        assert exact <= sum_distance(scale, 5000) <= 1.5 * exact
    assert sum_distance(2.0, 100_000) < 1e-11


@pytest.mark.parametrize(("holders", "may_drop", "may_collude"), [(3, 0, 1), (10, 2, 3), (1000, 50, 100)])
def test_honest_holders_noise_adds_up_to_one_release(holders: int, may_drop: int, may_collude: int) -> None:
    crowd = Crowd(holders, may_drop, may_collude)
    part, whole = plan_shared_noise(study(), crowd), plan_noise(study())
    honest = crowd.least - may_collude - 1
    assert honest == crowd.hidden_by
    pooled = np.array(part.scales) * math.sqrt(honest)
    np.testing.assert_allclose(pooled, whole.scales, rtol=1e-9)
    assert (pooled >= np.array(whole.scales) * (1 - 1e-15)).all()
    assert part.scales[0] == 0.0


def test_taking_part_costs_what_a_release_costs() -> None:
    crowd = Crowd(10, 1, 1)
    alone = Event.of(study(), plan_noise(study()))
    shared = shared_event(study(), crowd)
    assert (shared.epsilon, shared.delta, shared.law) == (alone.epsilon, alone.delta, alone.law)
    assert shared.multiplier == pytest.approx(alone.multiplier, rel=1e-9)
    assert shared.distance >= alone.distance


@pytest.mark.parametrize("crowd", [(2, 0, 1), (2, 1, 0), (5, 2, 2), (1, 0, 0)])
def test_a_crowd_with_nobody_to_hide_behind_is_refused(crowd: tuple[int, int, int]) -> None:
    with pytest.raises(RoundError, match="leave nobody to hide behind: at least . holders are needed"):
        Crowd(*crowd)


def test_two_holders_may_sum_if_nobody_colludes_or_drops() -> None:
    assert Crowd(2, 0, 0).hidden_by == 1


def test_laplace_is_refused_with_the_remedy() -> None:
    with pytest.raises(RoundError, match="Laplace noise does not split"):
        plan_shared_noise(study(mechanism="laplace", delta=None), Crowd(5, 0, 0))


def test_what_does_not_add_up_is_refused_with_the_remedy() -> None:
    with pytest.raises(RoundError, match="smallest eigenvalues don't add up. Agree on a study without"):
        plan_shared_noise(study(smallest_eigenvalue=0.3), Crowd(5, 0, 0))
    for additive in ({"fourth_moments": 0.3}, {"statistics": "spread"}, {"average_rows": 4}):
        assert plan_shared_noise(study(**additive), Crowd(5, 0, 0)).multiplier > 0


def test_noise_too_fine_for_the_grid_is_refused_with_the_remedy() -> None:
    coarse = study(bits=8, epsilon=8.0, delta=0.01)
    with pytest.raises(RoundError, match="its sum has no proven law. Raise 'bits'"):
        plan_shared_noise(coarse, Crowd(10**10, 0, 0))


def test_no_sum_can_wrap_around() -> None:
    """The largest entries of the most rows of all holders, and 40 standard deviations of noise, stay within int64."""
    for holders in (2, 7, 1000, 100_000):
        for bits in (8, 16, 20):
            crowd = Crowd(holders, 0, 0)
            asked = study(bits=bits, epsilon=0.01)
            largest = most_rows(asked, crowd) * holders * (1 << 2 * bits)
            noise = 40 * max(plan_shared_noise(asked, crowd).grid_scales) * math.sqrt(holders)
            assert largest + noise < 2**63
            assert (most_rows(asked, crowd) + 1) * holders * (1 << 2 * bits) > 2**62  # and not for want of trying


def test_averaged_rows_can_not_wrap_around_either() -> None:
    asked, crowd = study(average_rows=4), Crowd(10, 0, 0)
    groups = most_rows(asked, crowd) // 4
    assert 10 * groups * (4 << asked.bits) ** 2 <= 2**62
    assert 10 * (groups + 1) * (4 << asked.bits) ** 2 > 2**62
