"""The unbiased squared MMD against its definition and its closed form for normals."""

import numpy as np
import pytest

from noisewise.errors import DataError
from noisewise.evaluation.mmd import median_distance, mmd_squared


def test_is_its_definition():
    rng = np.random.default_rng(1)
    x, y, h = rng.standard_normal((7, 2)), rng.standard_normal((5, 2)) + 1.0, 0.8

    def k(a, b):
        return np.exp(-((a - b) ** 2).sum() / (2 * h**2))

    within_x = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    within_y = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    across = np.mean([k(a, b) for a in x for b in y])
    assert mmd_squared(x, y, h) == pytest.approx(within_x + within_y - 2 * across, rel=1e-12)
    far = 1e6  # distances stay, so the answer does
    assert mmd_squared(x + far, y + far, h) == pytest.approx(mmd_squared(x, y, h), rel=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_is_unbiased(shift):
    """Mean of 400 estimates against the closed form for N(0, 1) and N(shift, 1); 5 standard errors (6e-7)."""
    rng = np.random.default_rng(2)
    h = 1.3
    spread = h**2 + 2.0
    expected = 2.0 * h / np.sqrt(spread) * (1.0 - np.exp(-(shift**2) / (2.0 * spread)))
    seen = [mmd_squared(rng.standard_normal(30), shift + rng.standard_normal(40), h) for _ in range(400)]
    assert abs(np.mean(seen) - expected) < 5 * np.std(seen) / np.sqrt(400)
    assert min(seen) < 0 or shift


def test_blocks_do_not_change_the_sum(monkeypatch):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((53, 3)), rng.standard_normal((41, 3))
    whole = mmd_squared(x, y)
    monkeypatch.setattr("noisewise.evaluation.mmd.BLOCK", 7)
    assert mmd_squared(x, y) == pytest.approx(whole, rel=1e-12)


def test_default_bandwidth_is_the_median_distance():
    x, y = np.array([0.0, 1.0]), np.array([3.0, 7.0])
    assert median_distance(x, y) == pytest.approx(np.median([1, 3, 7, 2, 6, 4]))
    assert mmd_squared(x, y) == mmd_squared(x, y, median_distance(x, y))


@pytest.mark.parametrize(
    ("x", "y", "width", "words"),
    [
        (np.zeros((4, 2)), np.zeros((4, 3)), 1.0, "can't be compared"),
        (np.zeros((1, 2)), np.zeros((4, 2)), 1.0, "at least two rows"),
        (np.full((4, 1), np.nan), np.zeros((4, 1)), 1.0, "finite"),
        (np.zeros((4, 1)), np.zeros((4, 1)), None, "bandwidth"),
        (np.zeros((4, 1)), np.zeros((4, 1)), -1.0, "bandwidth"),
    ],
)
def test_bad_input(x, y, width, words):
    with pytest.raises(DataError, match=words):
        mmd_squared(x, y, width)
