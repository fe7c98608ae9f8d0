"""method="auto": each rule of docs/analyst.md, at its edge, by the words of its reason."""

from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.fitting import MODERATE_ORDER, MODERATE_VALUES, _choose
from noisewise.analyst.model import Problem
from noisewise.privacy.noise import SimulatedNoise

MOST = MODERATE_VALUES // 9  # holders with three coefficients, so nine values each


def releases(d: int = 2, J: int = 1, n: int = 200, sd: float = 5.0, **other: Any) -> list[nw.Release]:
    S, z = 0.3 * n * np.eye(d), np.full(d, 0.1 * n)
    return [nw.Release.from_statistics(S, z, n, sd_S=sd, sd_z=sd, **other) for _ in range(J)]


def picked(given: list[nw.Release]) -> tuple[str, str]:
    problem = Problem.of(given)
    return _choose(problem, nw.Prior().in_scaled_units(problem.units))


@pytest.mark.parametrize(
    ("given", "method", "words"),
    [
        ({"sd": 0.0}, "non-private", "are exact"),
        ({"sd": 0.0, "noise": "none"}, "non-private", "are exact"),
        ({"noise": "laplace"}, "exact", "Laplace"),
        ({"noise": "laplace", "d": MODERATE_ORDER + 1}, "exact", "Laplace"),
        ({"d": MODERATE_ORDER}, "exact", "matters"),
        ({"d": MODERATE_ORDER + 1}, "fixed-s", f"(holders: 1, coefficients: {MODERATE_ORDER + 1})"),
        ({"d": MODERATE_ORDER + 1}, "fixed-s", "too narrow; method='exact' counts all of it"),
        ({"d": 3, "J": MOST}, "exact", "matters"),
        ({"d": 3, "J": MOST + 1}, "fixed-s", f"(holders: {MOST + 1}, coefficients: 3)"),
        ({"d": 3, "J": MOST + 1, "n": 2_000_000, "sd": 1.0}, "fixed-s", "below 5%"),
        ({"n": 20_000, "sd": 1.0}, "fixed-s", "below 5%"),
        ({"n": 20_000, "sd": 40.0}, "exact", "matters"),
        ({"u": 60.0, "sd_u": 5.0}, "exact", "matters"),
        ({"n": 1}, "exact", "matters"),
    ],
)
def test_each_rule(given: dict[str, Any], method: str, words: str) -> None:
    name, reason = picked(releases(**given))
    assert name == method
    assert reason.startswith(f"auto picked {method}")
    assert words in reason


def test_exact_believes_the_bounds_of_a_study_alone_unless_told_otherwise() -> None:
    study = nw.Study([nw.Column("x", -1, 1)], nw.Column("y", -1, 1), epsilon=1.0, delta=1e-5)
    rng = np.random.default_rng(1)
    with pytest.warns(nw.UnrecordedSpendWarning):
        release = nw.Holder(study, ledger=None, noise=SimulatedNoise(rng)).release(rng.uniform(-1, 1, (200, 2)))

    def says_normal(given: Any, **options: Any) -> bool:
        posterior = nw.fit(given, draws=20, chains=1, seed=1, **options)
        assert posterior.method == "exact"
        return any("normally distributed" in note for note in posterior.notes)

    assert not says_normal(release)
    assert says_normal(release, covariates="normal")
    assert says_normal(release, covariate_scatter=0.3)
    assert says_normal(release, method="exact")
    assert says_normal(releases())  # no study, so no bounds


def test_the_reason_is_the_first_note() -> None:
    posterior = nw.fit(releases(n=20_000, sd=1.0), seed=1)
    assert posterior.method == "fixed-s"
    assert posterior.notes[0].startswith("auto picked fixed-s: privacy noise is below 5%")
