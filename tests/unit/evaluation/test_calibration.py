"""Ranks, coverage and bands: they hold what is uniform and see what is not."""

import numpy as np
import pytest
from scipy import stats

from noisewise.errors import DataError
from noisewise.evaluation.calibration import Band, covered, plot_ecdf_difference, rank_of, uniformity


@pytest.fixture(scope="module")
def band():
    return Band.simulate(300, 99, 0.99, simulations=4000, seed=1)


def test_ranks_count_the_draws_below():
    draws = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    np.testing.assert_array_equal(rank_of(np.array([2.5, 4.0]), draws), [2, 0])
    np.testing.assert_array_equal(rank_of(np.array([9.0, 5.0]), draws), [3, 0])


def test_coverage_is_of_central_intervals():
    draws = np.linspace(0.01, 0.99, 99)[:, None]
    for value, inside in ((0.051, True), (0.049, False), (0.949, True), (0.951, False)):
        assert covered(np.array([value]), draws, 0.9)[0] == inside
    rng = np.random.default_rng(1)
    share = np.mean(covered(rng.standard_normal(20_000), rng.standard_normal((19, 20_000)), 0.9))
    assert share == pytest.approx(0.9, abs=5 * np.sqrt(0.09 / 20_000))  # 6e-7
    with pytest.raises(DataError, match="level"):
        covered(np.array([0.5]), draws, 90)


def test_band_has_its_probability(band):
    """Fresh uniform ranks leave a 99% band in 1% of 3000 sets: 30, sd 5.4, and the level's own error adds as much."""
    rng = np.random.default_rng(2)
    outside = sum(not band.holds(rng.integers(100, size=300)) for _ in range(3000))
    assert 2 <= outside <= 75  # beyond five standard deviations of both errors together


def test_band_and_p_value_agree(band):
    rng = np.random.default_rng(3)
    for bend in np.linspace(1.0, 1.5, 30):  # from uniform to plainly not
        ranks = np.floor(100 * rng.random(300) ** bend).astype(int)
        p = band.p_value(ranks)
        if abs(p - 0.01) > 0.002:
            assert band.holds(ranks) == (p > 0.01)


def test_band_is_wider_than_a_pointwise_one(band):
    pointwise = stats.binom.ppf(0.005, 300, band.points)
    assert np.all(band.lower <= pointwise)
    assert (band.lower < pointwise).mean() > 0.9
    assert band.level < 0.01 / 3


def test_p_values_of_uniform_ranks_are_uniform(band):
    """KS over 400 rank sets at 1e-6 for the two tests with continuous statistics; the band's p-value is near enough."""
    rng = np.random.default_rng(4)
    found = np.array([uniformity(rng.integers(100, size=300), band) for _ in range(400)])
    assert stats.kstest(found[:, 1], "uniform").pvalue > 1e-6
    assert stats.kstest(found[:, 0], "uniform").pvalue > 1e-6
    assert stats.kstest(found[:, 3], "uniform").pvalue > 1e-6


@pytest.mark.parametrize(
    ("width", "shift"), [(0.6, 0.0), (1.7, 0.0), (1.0, 0.5)], ids=["too narrow", "too wide", "biased"]
)
def test_wrong_posteriors_are_seen(band, width, shift):
    """Truth N(0, 1) given data, posterior N(shift, width): every test rejects below 1e-3 (power above 1 - 1e-6)."""
    rng = np.random.default_rng(5)
    draws = shift + width * rng.standard_normal((99, 300))
    ranks = rank_of(rng.standard_normal(300), draws)
    found = uniformity(ranks, band)
    assert max(found.chi_square, found.kolmogorov_smirnov, found.simultaneous) < 1e-3
    assert not band.holds(ranks)


def test_few_trials_have_few_bins():
    band = Band.simulate(12, 9, simulations=200)
    found = uniformity(np.arange(12) % 10, band, bins=20)
    assert found.chi_square > 0.5
    assert 0 < found.simultaneous <= 1


def test_bad_ranks_and_bands(band):
    with pytest.raises(DataError, match="this band is for"):
        band.holds(np.zeros(10, dtype=int))
    with pytest.raises(DataError, match="this band is for"):
        band.p_value(np.full(300, 100))
    with pytest.raises(DataError, match="share between"):
        Band.simulate(10, 9, 1.0)


def test_figure_has_a_panel_for_each_case(band):
    rng = np.random.default_rng(6)
    cases = {"theta": rng.integers(100, size=300), "v": rng.integers(100, size=300)}
    figure = plot_ecdf_difference([(f"case {i}", cases) for i in range(4)], band)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == [f"case {i}" for i in range(4)]
    assert all(len(axis.lines) == 3 for axis in shown)  # two quantities and the zero line
