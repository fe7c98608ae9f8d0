"""The noise has the law that the Release states, from randomness that nobody can repeat.

Secure noise can't be seeded, so every test here can fail by chance. Each threshold has a false-alarm rate of 1e-9 or
less (stated beside it where it is not a p-value); all tests of this file together stay below 1e-7 a run.
"""

import math
import random
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from noisewise.privacy.noise import NoNoise, SecureNoise, SimulatedNoise
from noisewise.study import Mechanism

RARE = 1e-9
SIX_SIGMA = 6.2  # a normal variable is beyond it with probability 6e-10
LAWS: tuple[Mechanism, ...] = ("gaussian", "laplace")
LARGE = 2.0**38


def pmf(law: Mechanism, k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """The discrete law: exp(-k^2 / 2s^2) or exp(-|k| / b), normalised over the integers."""
    support = np.arange(-60 * math.ceil(scale), 60 * math.ceil(scale) + 1)
    kernel = {"gaussian": lambda j: np.exp(-(j**2) / (2 * scale**2)), "laplace": lambda j: np.exp(-np.abs(j) / scale)}
    mass: NDArray[np.float64] = kernel[law](k) / kernel[law](support).sum()
    return mass


def secure(law: Mechanism, scale: float, count: int) -> NDArray[np.int64]:
    return SecureNoise().draw(law, [scale] * count)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_small_scale_has_the_stated_probabilities(law: Mechanism, scale: float) -> None:
    """Chi-square over every integer that is expected 20 times or more, the two tails as one cell each."""
    count = 20_000
    draws = secure(law, scale, count)
    inner = np.arange(-60 * math.ceil(scale), 60 * math.ceil(scale) + 1)
    inner = inner[pmf(law, inner, scale) * count >= 20]
    low, high = int(inner.min()), int(inner.max())
    tails = np.arange(high + 1, 60 * math.ceil(scale))
    tail = float(pmf(law, tails, scale).sum())
    expected = np.array([tail, *pmf(law, inner, scale), tail]) * count
    observed = [np.sum(draws < low), *(np.sum(draws == k) for k in inner), np.sum(draws > high)]
    assert expected.sum() == pytest.approx(count)
    assert stats.chisquare(observed, expected).pvalue > RARE


def test_the_chi_square_would_notice_a_wrong_scale() -> None:
    """10% more noise fails the test above: chi-square is near 420 +- 41, and 83 is enough (a miss: below 1e-14)."""
    count = 20_000
    draws = secure("gaussian", 3.0 * 1.1, count)
    inner = np.arange(-9, 10)
    mass = pmf("gaussian", inner, 3.0)
    observed = [np.sum(np.abs(draws) > 9), *(np.sum(draws == k) for k in inner)]
    assert stats.chisquare(observed, np.array([1 - mass.sum(), *mass]) * count).pvalue < RARE


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [LARGE, 2.0**56])
def test_large_scale_has_the_stated_law(law: Mechanism, scale: float) -> None:
    """On so fine a grid the discrete law is the continuous one: Kolmogorov-Smirnov, then the first moments."""
    count = 10_000
    unit = secure(law, scale, count) / scale
    reference = stats.norm if law == "gaussian" else stats.laplace
    assert stats.kstest(unit, reference.cdf).pvalue > RARE
    variance, kurtosis = (1.0, 3.0) if law == "gaussian" else (2.0, 6.0)
    assert abs(unit.mean()) < SIX_SIGMA * math.sqrt(variance / count)
    spread = variance * math.sqrt((kurtosis - 1) / count)
    # a Laplace variance has heavy tails itself: twice the normal threshold leaves the rate below 1e-9
    assert abs(unit.var() - variance) < (SIX_SIGMA if law == "gaussian" else 2 * SIX_SIGMA) * spread


@pytest.mark.parametrize("law", LAWS)
def test_values_go_beyond_32_bits(law: Mechanism) -> None:
    """A draw below 2^31 has probability under 1% at this scale: 20 of 20 would be rarer than 1e-40."""
    draws = secure(law, LARGE, 20)
    assert draws.dtype == np.int64
    assert np.any(np.abs(draws) > 2**32)
    assert len(set(draws.tolist())) == 20


def test_the_low_bits_are_random() -> None:
    """Noise that is a scaled float would leave them at zero. False alarm: six sigma of a fair coin."""
    low = secure("gaussian", LARGE, 5_000) & 1
    assert abs(low.mean() - 0.5) < SIX_SIGMA * 0.5 / math.sqrt(5_000)


@pytest.mark.parametrize("law", LAWS)
def test_entries_are_independent(law: Mechanism) -> None:
    """Neighbours in one draw, and entries of the two scales that one release mixes (diagonal and off it).

    Correlations of independent entries have standard deviation 1/sqrt(n); Laplace tails get half as much again.
    """
    count = 10_000
    scales = [LARGE, LARGE / math.sqrt(2)] * (count // 2)
    draws = SecureNoise().draw(law, scales) / np.array(scales)
    threshold = SIX_SIGMA / math.sqrt(count // 2) * (1.0 if law == "gaussian" else 1.5)
    even, odd = draws[::2], draws[1::2]
    assert abs(np.corrcoef(even, odd)[0, 1]) < threshold
    assert abs(np.corrcoef(even[1:], even[:-1])[0, 1]) < threshold
    assert abs(np.corrcoef(np.abs(even), np.abs(odd))[0, 1]) < threshold


@pytest.mark.parametrize("law", LAWS)
def test_every_entry_gets_its_own_scale(law: Mechanism) -> None:
    """0 stays 0. A scale 2^12 smaller is told from the others with certainty: beyond 2^11 scales is 0 in practice."""
    scales = [0.0, 2.0**40, 2.0**20, 0.0, 2.0**30] * 40
    draws = SecureNoise().draw(law, scales).reshape(40, 5)
    assert not draws[:, [0, 3]].any()
    typical = np.abs(draws).max(axis=0)
    assert 2**38 < typical[1] < 2**46
    assert 2**18 < typical[2] < 2**26
    assert 2**28 < typical[4] < 2**36


def test_all_zero_scales() -> None:
    assert SecureNoise().draw("gaussian", [0.0, 0.0]).tolist() == [0, 0]
    assert SecureNoise().draw("laplace", []).tolist() == []


@pytest.mark.parametrize("law", LAWS)
def test_no_seed_has_any_influence(law: Mechanism) -> None:
    """Equal draws by chance: 4 values in 2^38 and more, below 1e-40."""
    runs = []
    for _ in range(2):
        np.random.seed(1)
        random.seed(1)
        runs.append(secure(law, LARGE, 4).tolist())
    assert runs[0] != runs[1]
    assert not set(runs[0]) & set(runs[1])


FORKED = """
import os
from noisewise.privacy.noise import SecureNoise

def draw():
    return " ".join(map(str, SecureNoise().draw("gaussian", [2.0**38] * 4)))

draw()  # the library has its state before the fork, if it keeps any
for child in range(2):
    if (pid := os.fork()) == 0:
        print(draw(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
print(draw())
"""


def test_forked_processes_draw_apart() -> None:
    """A generator that is copied by fork would give two releases the same noise, and their difference none."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    values = [value for line in lines for value in line.split()]
    assert len(set(values)) == 12


@pytest.mark.parametrize("law", LAWS)
def test_simulated_noise_has_the_same_law_and_says_that_it_is_not_secure(law: Mechanism) -> None:
    """Seeded, so this can't alarm by chance."""
    noise = SimulatedNoise(np.random.default_rng(3))
    draws = noise.draw(law, [LARGE] * 10_000) / LARGE
    assert stats.kstest(draws, (stats.norm if law == "gaussian" else stats.laplace).cdf).pvalue > 1e-3
    again = SimulatedNoise(np.random.default_rng(3)).draw(law, [LARGE] * 10_000) / LARGE
    np.testing.assert_array_equal(draws, again)
    assert "protects nobody" in noise.insecure
    assert SecureNoise().insecure == ""


def test_no_noise_is_none() -> None:
    assert NoNoise().draw("gaussian", [1.0, 2.0]).tolist() == [0, 0]
    assert "protects nobody" in NoNoise.insecure
