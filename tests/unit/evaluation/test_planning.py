"""Planning: closed forms against hand-made ones and a real fit, the radius against slow sums and sane limits."""

from dataclasses import replace

import numpy as np
import pytest

import noisewise as nw
from noisewise.evaluation import planning
from noisewise.evaluation.planning import expected_widths, suggest_radius
from noisewise.evaluation.simulate import Truth, draw_features, draw_table
from noisewise.gram import Layout
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.noise import SimulatedNoise

NORMAL_95 = 1.6448536269514722


def numeric_study(d: int, **choices: object) -> nw.Study:
    features = tuple(nw.Column(f"x{i}", 0, 10) for i in range(d))
    settings: dict[str, object] = {"epsilon": 1.0, "delta": 1e-6, **choices}
    return nw.Study(features, nw.Column("y", 0, 40), **settings)  # type: ignore[arg-type]


def mixed_study(**choices: object) -> nw.Study:
    features = (
        nw.Column("a", 0, 10),
        nw.Column("b", -1, 1),
        nw.Column.boolean("c"),
        nw.Column.categorical("d", ["u", "v", "w"]),
    )
    settings: dict[str, object] = {"epsilon": 1.0, "delta": 1e-6, **choices}
    return nw.Study(features, nw.Column("y", 0, 40), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("holders", [1, 3])
def test_widths_of_one_feature_by_hand(mechanism: str, holders: int) -> None:
    delta = 1e-6 if mechanism == "gaussian" else None
    study = numeric_study(1, intercept=False, mechanism=mechanism, delta=delta)
    n, v = 5000, (3.0 / 20) ** 2
    S = n / 3
    z = Layout.of(study).entry_names(("x0",), "y").index("x0 * y")
    noise = plan_noise(study).scales[z] ** 2 * (2 if mechanism == "laplace" else 1)
    expected = expected_widths(study, n, holders=holders, residual_sd=3.0)
    unit = 20 / 5  # y's half-width over x's
    for width, spread in ((expected.widths[0].width, noise), (expected.widths[0].width_without_noise, 0.0)):
        sd = (1 + holders * S**2 / (v * S + spread)) ** -0.5
        assert width == pytest.approx(2 * NORMAL_95 * sd * unit)


def test_widths_are_those_of_a_real_fit() -> None:
    """Rows that meet the assumptions, 60,000 of them: fixed-s reports the expected widths.

    Draws (4,000) give an sd within 1.1% (one standard error) and noise moves S by a few percent, so 15% is far out.
    """
    study = mixed_study()
    rng = np.random.default_rng(1)
    truth = Truth(np.array([0.0, 0.2, -0.1, 0.1, 0.1, 0.0]), residual_variance=(2.0 / 20) ** 2)
    with pytest.warns(nw.UnrecordedSpendWarning):
        release = nw.Holder(study, ledger=None, noise=SimulatedNoise(rng)).release(
            draw_table(study, 60_000, truth, rng)
        )
    summary = nw.fit(release, "fixed-s", seed=2).summary(0.9)
    for expected in expected_widths(study, 60_000, residual_sd=2.0).widths:
        row = summary[expected.name]
        assert row.upper - row.lower == pytest.approx(expected.width, rel=0.15)


def test_noise_widens_and_rows_heal() -> None:
    study = mixed_study()
    small, large = expected_widths(study, 1000), expected_widths(study, 10_000_000)
    assert [row.name for row in small.widths] == ["intercept", "a", "b", "c", "d[v]", "d[w]"]
    for few, many in zip(small.widths, large.widths, strict=True):
        assert few.width > 1.5 * few.width_without_noise
        assert many.width == pytest.approx(many.width_without_noise, rel=0.01)
    assert small.strength < 1 < 100 < large.strength


def test_a_smaller_radius_is_planned_with() -> None:
    study = mixed_study()
    shrunk = replace(study, radius=1.0)
    assert plan_noise(shrunk).sensitivity.value < plan_noise(study).sensitivity.value
    assert expected_widths(shrunk, 10**7).widths[1].width > expected_widths(study, 10**7).widths[1].width


def test_a_plan_has_the_words_for_bad_input() -> None:
    study = mixed_study(min_rows=50)
    with pytest.raises(nw.StudyError, match="below the study's min_rows 50"):
        expected_widths(study, 49)
    with pytest.raises(nw.StudyError, match="holders 0"):
        expected_widths(study, 100, holders=0)
    with pytest.raises(nw.StudyError, match="residual_sd -1"):
        expected_widths(study, 100, residual_sd=-1.0)
    with pytest.raises(nw.StudyError, match=r"interval 1\.0 is out of range"):
        expected_widths(study, 100, interval=1.0)
    with pytest.raises(nw.StudyError, match="replications 1 is too few"):
        suggest_radius(study, 100, replications=1)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [300, 3 * planning.POOL_ROWS])
def test_sums_over_shrunk_rows_are_the_slow_ones(intercept: bool, n: int) -> None:
    study = mixed_study(intercept=intercept)
    grid = np.array([0.4, 1.1, 1.7, study.full_radius])
    theta = np.array([0.1, 0.3, -0.2, 0.1, 0.2, -0.1])[0 if intercept else 1 :]
    silent = np.zeros((grid.size, len(Layout.of(study).pairs)))
    fast = planning._simulate_holder(study, n, theta, 0.05, grid, silent, np.random.default_rng(3))

    rng = np.random.default_rng(3)
    rows = min(n, planning.POOL_ROWS)
    k = n / rows
    x = draw_features(study, rows, rng)
    y = x @ theta[-study.d :] + (theta[0] if intercept else 0.0) + np.sqrt(0.05 / k) * rng.standard_normal(rows)
    for radius, values in zip(grid, fast, strict=True):
        shrunk = x * np.minimum(1.0, radius / np.linalg.norm(x, axis=1))[:, None]
        w = np.column_stack([np.ones(rows), shrunk, y])
        assert np.allclose(values, Layout.of(study).pick(k * (w.T @ w)))


def test_without_much_noise_the_error_is_the_sampling_error() -> None:
    """epsilon 10 and many rows: the error of the mean is sqrt(v / (n / 3)) in half-widths of y.

    300 replications of 3 coefficients give a standard error of 1 / sqrt(2 x 900) = 2.4%; 12% is five of them.
    """
    study = numeric_study(3, epsilon=10.0)
    choice = suggest_radius(study, 200_000, residual_sd=4.0, replications=300, seed=4)
    assert choice.full.error == pytest.approx(20 * np.sqrt((4 / 20) ** 2 / (200_000 / 3)), rel=0.12)


def test_few_rows_want_a_smaller_radius_than_many() -> None:
    study = mixed_study()
    few = suggest_radius(study, 1000, replications=100)
    many = suggest_radius(study, 10_000_000, replications=100)
    stricter = suggest_radius(replace(study, epsilon=0.1), 100_000, replications=100)
    looser = suggest_radius(replace(study, epsilon=10.0), 100_000, replications=100)
    assert few.best < many.best == study.full_radius
    assert stricter.best < looser.best


def test_the_choice_is_repeatable_and_tells_its_table() -> None:
    study = mixed_study(release_yy=False, adjacency="add-remove")
    choice = suggest_radius(study, 2000, holders=2, replications=20, seed=5)
    assert choice == suggest_radius(study, 2000, holders=2, replications=20, seed=5)
    assert choice != suggest_radius(study, 2000, holders=2, replications=20, seed=6)
    assert choice.full.radius == study.full_radius
    assert choice.study == replace(study, radius=choice.best)
    assert min(choice.table, key=lambda row: row.error).radius == choice.best
    assert all(row.standard_error > 0 for row in choice.table)
    assert len(choice.coefficient_errors) == len(choice.table)
    assert all(len(row) == study.d for row in choice.coefficient_errors)
    text = str(choice)
    assert "<- best" in text
    assert "2 holders of 2,000 rows" in text
    assert "no data read" in text


def test_given_radii_are_used_and_the_largest_is_always_among_them() -> None:
    choice = suggest_radius(mixed_study(mechanism="laplace", delta=None), 5000, radii=[1.0, 1.5], replications=5)
    assert [row.radius for row in choice.table] == [1.0, 1.5, 2.0]


def test_coefficient_errors_are_in_their_own_units() -> None:
    """A column in other units changes its own coefficient's error by the factor between them, and no other."""
    metres, millimetres = (
        nw.Study((nw.Column("a", 0, 2 * unit), nw.Column("b", 0, 1)), nw.Column("y", 0, 1), 1.0, 1e-6)
        for unit in (1, 1000)
    )
    one, other = (suggest_radius(study, 3000, replications=10) for study in (metres, millimetres))
    assert np.allclose(one.table, other.table)
    ratio = np.array(one.coefficient_errors) / np.array(other.coefficient_errors)
    assert np.allclose(ratio, [1000, 1])
