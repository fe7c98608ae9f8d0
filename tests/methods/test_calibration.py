"""Simulation-based calibration at a small size, by the engine that makes docs/calibration.md at full size."""

import numpy as np
import pytest
from scipy import stats

from experiments.sbc.cells import RANKED, Cell

# What has no check of its own beside the method's other tests.
CELLS = [Cell("individual", n=10, epsilon=1.0, d=1, intercept=True)]
TRIALS = 100
# Kolmogorov and Smirnov's test of every curve at this level, 3 curves: below 1e-5 for the file.
LEVEL = 3e-6


def p_values(cell: Cell, trials: int) -> list[float]:
    """Of each quantity's ranks; a rank is spread evenly over its share, which makes the test exact."""
    rows, spread = [cell.trial(number) for number in range(trials)], np.random.default_rng(0)
    ranks = np.array([[row[name] for name in cell.quantities] for row in rows], dtype=float)
    return [
        float(stats.kstest((column + spread.random(trials)) / (RANKED + 1), "uniform").pvalue) for column in ranks.T
    ]


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_ranks_are_uniform_on_its_own_model(cell):
    assert min(p_values(cell, TRIALS)) > LEVEL


def test_naive_fails_the_same_check():
    """The check has power: in 60 trials, in every quantity, ranks piled up at both ends show."""
    assert max(p_values(Cell("naive", n=1000, epsilon=0.1, d=1, intercept=True), 60)) < LEVEL


@pytest.mark.parametrize("cell", [*CELLS, Cell("weak", 1000, 0.1, 3, False, covariates="lognormal")])
def test_a_name_says_all_of_a_cell(cell):
    assert Cell.named(cell.name) == cell


def test_methods_of_one_size_see_the_same_statistics():
    one, other = (Cell(method, 30, 0.5, 2, True, J=2).data(3)[0] for method in ("exact", "fixed-s"))
    assert [release.values for release in one.releases] == [release.values for release in other.releases]
    assert (one.truth == other.truth).all()
    assert one.releases[0].values != Cell("exact", 30, 0.5, 2, True, J=2).data(4)[0].releases[0].values
