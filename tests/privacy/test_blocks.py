"""No pair of neighbouring tables moves what a study releases by more than privacy/blocks.py says.

Searchers: rows at random, corners, coordinate ascent from the best of them, Hypothesis with integer rows. Everything is
measured on the holder's own path: encoder, ``Gram``, ``Gram.entries``, in whole numbers.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.column import Column
from noisewise.eigenvalue import smallest_eigenvalue
from noisewise.gram import Floats, Gram, Layout
from noisewise.layout import SPREAD_WEIGHT_SQUARED, BlockName
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.sensitivity import sensitivity
from noisewise.study import Study

ROUNDING = 1 + 1e-12
NEIGHBOURS = (("replace-one", True), ("add-remove", True), ("add-remove", False))


def make_study(d: int = 2, levels: int = 0, **choices: Any) -> Study:
    """d numbers, and a column of that many levels if any."""
    columns = [Column(f"x{i}", -1, 1) for i in range(d)]
    columns += [Column.categorical("c", [f"l{i}" for i in range(levels)])] if levels else []
    laplace = choices.get("mechanism") == "laplace"
    return Study(columns, Column("y", -1, 1), epsilon=1.0, **{"delta": None if laplace else 1e-6, **choices})


def encode(study: Study, rows: Floats) -> Floats:
    """(rows, d + 1) in scaled units to integer rows as the holder makes them: the ball, then truncation."""
    x = rows[:, :-1].copy()
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    x *= np.minimum(1.0, float(study.radius or 0) * (1 - 2**-40) / np.maximum(norm, 1e-300))
    w = np.column_stack([np.ones(len(rows)), x, rows[:, -1]])
    return np.trunc(w * 2.0**study.bits).T


def vector(study: Study, rows: Floats) -> list[int]:
    """What a holder of these rows would release, before noise."""
    k, w = study.average_rows, encode(study, rows)
    w = w[:, : w.shape[1] // k * k].reshape(len(w), -1, k).sum(axis=2)
    return [int(value) for value in Gram.empty(study).add_chunk(w).entries(Layout.of(study))]


def moved(study: Study, before: Floats, after: Floats, block: BlockName) -> float:
    """How far the tables are apart, in scaled units and the block's weights."""
    layout = Layout.of(study)
    where = layout.where(block)
    assert where is not None
    change = np.array(vector(study, after), dtype=object) - np.array(vector(study, before), dtype=object)
    if study.public_n:
        change[0] = 0
    part = np.array([float(value) for value in change[where]]) / 4.0**study.bits
    return float(np.linalg.norm(part * layout.weights[where]) if study.mechanism == "gaussian" else np.abs(part).sum())


def random_row(study: Study, rng: np.random.Generator) -> Floats:
    """A row anywhere, in a corner, or partly both."""
    out = []
    for column in study.features:
        if column.kind == "categorical":
            level = np.zeros(len(column.levels))
            level[rng.integers(len(column.levels))] = 1.0
            out += level[1:].tolist()
        else:
            out.append(rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]))
    return np.array([*out, rng.choice([-1.0, 1.0, rng.uniform(-1, 1)])])


def search(study: Study, block: BlockName, tries: int = 300, rest: int = 0, seed: int = 0) -> float:
    """The largest change found, by random pairs of rows and coordinate ascent; ``rest`` other rows stay as they are."""
    rng, replace = np.random.default_rng(seed), study.adjacency == "replace-one"
    numbers = [i for i, feature in enumerate(study.encoded) if feature.level is None] + [study.d]
    best, found = None, -1.0

    def value(rows: Floats) -> float:
        return moved(study, rows[1:], np.vstack([rows[:1], rows[2:]]) if replace else rows, block)

    for step in range(tries):
        if best is None or step < tries // 2:
            rows = np.array([random_row(study, rng) for _ in range(2 + rest)])
        else:
            rows = best.copy()
            rows[rng.integers(len(rows)), rng.choice(numbers)] = rng.choice([-1.0, 0.0, 1.0, rng.uniform(-1, 1)])
        if (now := value(rows)) > found:
            best, found = rows, now
    return found


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize(
    ("d", "levels", "radius"),
    [(1, 0, None), (3, 0, None), (3, 0, 0.4), (3, 0, 1.2), (1, 2, None), (1, 4, None), (2, 4, 0.8)],
)
def test_the_spread(d: int, levels: int, radius: float | None, neighbours: tuple[str, bool], mechanism: str) -> None:
    choices = {"adjacency": neighbours[0], "public_n": neighbours[1], "mechanism": mechanism}
    study = make_study(d, levels, radius=radius, statistics="spread", **choices)
    bound, found = sensitivity(study), search(study, "spread")
    assert found <= bound.value * ROUNDING
    assert found >= (0.995 if bound.tight else 0.6) * bound.value
    assert bound.tight == (mechanism == "gaussian" and radius is None)


def test_the_weight_of_squares_is_free_and_no_larger_one_is() -> None:
    """max over x, x' of |(x, c x^2) - (x', c x'^2)| is 2 up to that c, and above 2 beyond it."""
    m = np.linspace(0, 2, 20_001)

    def worst(c2: float) -> float:
        return float((m**2 * (1 + c2 * (2 - m) ** 2)).max())

    assert pytest.approx(2.7725, abs=1e-4) == SPREAD_WEIGHT_SQUARED
    assert worst(SPREAD_WEIGHT_SQUARED) <= 4 * ROUNDING
    assert worst(SPREAD_WEIGHT_SQUARED * 1.001) > 4.0005
    study = make_study(4, statistics="spread")
    assert sensitivity(study).value == pytest.approx(2 * math.sqrt(5))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("d", "levels", "radius"), [(1, 0, None), (2, 0, 0.7), (3, 0, None), (5, 0, None), (2, 3, None), (1, 4, 1.1)]
)
def test_the_fourth_moments(
    d: int, levels: int, radius: float | None, intercept: bool, adjacency: str, mechanism: str
) -> None:
    choices = {"adjacency": adjacency, "intercept": intercept, "mechanism": mechanism}
    study = make_study(d, levels, radius=radius, fourth_moments=0.5, **choices)
    bound, found = sensitivity(study, "fourth"), search(study, "fourth", tries=400)
    assert found <= bound.value * ROUNDING
    assert found >= 0.4 * bound.value  # a bound far off would be noise for nothing
    if mechanism == "gaussian" and adjacency == "add-remove":
        assert found >= 0.995 * bound.value or radius is not None


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_the_truncation_of_products_is_counted(bits: int) -> None:
    """At few bits the truncated tensors are visibly not those of the rows; the bound holds, and is near."""
    study = make_study(2, radius=1.0, intercept=False, fourth_moments=0.5, bits=bits)
    bound = sensitivity(study, "fourth").value
    assert bound == pytest.approx(math.sqrt(2) + 16 * 2.0**-bits)
    assert 0.97 * math.sqrt(2) - 16 * 2.0**-bits < search(study, "fourth", tries=2000) <= bound * ROUNDING


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("d", "radius"), [(1, None), (3, None), (3, 0.5)])
def test_the_smallest_eigenvalue(d: int, radius: float | None, intercept: bool, adjacency: str) -> None:
    study = make_study(d, radius=radius, smallest_eigenvalue=0.5, adjacency=adjacency, intercept=intercept)
    bound = sensitivity(study, "eigenvalue").value
    assert search(study, "eigenvalue", rest=0 if d == 1 else 8, tries=600) <= bound * ROUNDING


def test_weyl_is_attained() -> None:
    """Three rows, of which two are long and the third, along the last axis, decides the smallest eigenvalue."""
    study = make_study(2, radius=1.0, intercept=False, smallest_eigenvalue=0.5)
    long = np.array([[1.0, 0.0, 0.0]] * 3)
    other = np.vstack([long[:2], [[0.0, 1.0, 0.0]]])
    change = moved(study, long, other, "eigenvalue")
    assert 0.9999 < change <= sensitivity(study, "eigenvalue").value


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("d", "levels", "k"), [(1, 0, 2), (1, 0, 7), (3, 0, 2), (3, 0, 5), (1, 3, 4)])
def test_averaged_rows(d: int, levels: int, k: int, intercept: bool, mechanism: str) -> None:
    study = make_study(d, levels, average_rows=k, intercept=intercept, mechanism=mechanism)
    rng = np.random.default_rng(1)
    bound, found = sensitivity(study).value, 0.0
    for aligned in itertools.chain([True] * 60, [False] * 200):
        row, other = random_row(study, rng), random_row(study, rng)
        if aligned:
            row[:d], other[:d], row[-1], other[-1] = 1.0, -1.0, 1.0, -1.0
        rest = np.array([row] * (k - 1) if aligned else [random_row(study, rng) for _ in range(k - 1)])
        found = max(found, moved(study, np.vstack([rest, row]), np.vstack([rest, other]), "gram"))
    assert 0.4 * bound <= found <= bound * ROUNDING


def test_averages_do_not_have_the_sensitivity_of_rows() -> None:
    """000, B.1 says so; x^2 of one column, k = 10: 4 - 4/k against 1."""
    study = make_study(1, average_rows=10, intercept=False)
    ones = np.ones((10, 2))
    other = ones.copy()
    other[-1, 0] = -1.0
    before, after = (np.array(vector(study, rows), dtype=float) / 4.0**study.bits for rows in (ones, other))
    x_squared = Layout.of(study).entries.index((1, 1))
    assert (before - after)[x_squared] / 10 == pytest.approx(4 - 4 / 10, rel=1e-4)


def test_a_row_moves_no_other_group() -> None:
    """Groups are formed by place alone: one replaced row changes one group's sum, and the rows left over none."""
    study = make_study(1, average_rows=3)
    rng = np.random.default_rng(2)
    rows = rng.uniform(-1, 1, (11, 2))
    last = rows.copy()
    last[10] = [1.0, -1.0]
    assert vector(study, rows) == vector(study, last)
    assert vector(study, rows) == vector(study, rows[:9])


BLOCKS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "spread": lambda share: {"statistics": "spread"},
    "fourth": lambda share: {"fourth_moments": share},
    "eigenvalue": lambda share: {"smallest_eigenvalue": share},
}


@given(
    block=st.sampled_from(["spread", "fourth", "eigenvalue"]),
    mechanism=st.sampled_from(["gaussian", "laplace"]),
    neighbours=st.sampled_from(NEIGHBOURS),
    d=st.integers(1, 3),
    levels=st.sampled_from([0, 2, 3]),
    radius=st.floats(0.1, 1.0),
    bits=st.sampled_from([8, 16, 20]),
    intercept=st.booleans(),
    seed=st.integers(0, 2**32),
    values=st.lists(st.sampled_from([-1.0, -0.5, 0.0, 1e-5, 0.5, 1.0]), min_size=8, max_size=8),
)
@settings(max_examples=250, deadline=None)
def test_any_neighbours(
    block: BlockName,
    mechanism: str,
    neighbours: tuple[str, bool],
    d: int,
    levels: int,
    radius: float,
    bits: int,
    intercept: bool,
    seed: int,
    values: list[float],
) -> None:
    choices = {"adjacency": neighbours[0], "public_n": neighbours[1], "mechanism": mechanism, "intercept": intercept}
    full = math.sqrt(d + (levels > 0))
    study = make_study(d, levels, radius=radius * full, bits=bits, **choices, **BLOCKS[block](0.5))
    rng = np.random.default_rng(seed)
    rows = np.array([random_row(study, rng) for _ in range(4)])
    for row, part in zip(rows[:2], (values[:4], values[4:]), strict=True):
        row[:d], row[-1] = part[:d], part[3]
    after = np.vstack([rows[:1], rows[2:]]) if neighbours[0] == "replace-one" else rows
    assert moved(study, rows[1:], after, block) <= sensitivity(study, block).value * ROUNDING


@given(st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([8, 16, 20]))
@settings(max_examples=80, deadline=None)
def test_the_eigenvalue_is_the_last_grid_point_below_the_true_one(order: int, seed: int, bits: int) -> None:
    """Against mpmath's eigenvalues to 60 digits, for tables whose S is regular, nearly or quite singular."""
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(seed)
    w = rng.integers(-(1 << bits), 1 << bits, (order, rng.integers(1, 2 * order + 2)))
    w[-1] = rng.choice([w[-1], w[0], np.zeros_like(w[0])])
    S = w @ w.T
    with mpmath.workdps(60):
        exact = mpmath.eigsy(mpmath.matrix(S.tolist()), eigvals_only=True)[0]
        expected = max(int(mpmath.ceil(exact / (1 << bits) - mpmath.mpf(10) ** -30)) - 1, 0) << bits
    assert smallest_eigenvalue(S, bits) == expected


def test_shares_of_the_budget_make_one_event() -> None:
    """Divided by their sensitivities over the roots of their shares, all blocks together move by 1: the multiplier."""
    for mechanism in ("gaussian", "laplace"):
        study = make_study(3, fourth_moments=0.3, smallest_eigenvalue=0.2, mechanism=mechanism)
        plain = make_study(3, mechanism=mechanism)
        plan, layout = plan_noise(study), Layout.of(study)
        assert plan.multiplier == pytest.approx(plan_noise(plain).multiplier, rel=1e-9)
        assert [block.name for block in plan.blocks] == ["gram", "fourth", "eigenvalue"]
        assert math.fsum(block.share for block in plan.blocks) == pytest.approx(1, abs=1e-15)
        power = 2 if mechanism == "gaussian" else 1
        assert math.fsum(block.multiplier**-power for block in plan.blocks) == pytest.approx(
            plan.multiplier**-power, rel=1e-12
        )
        for block in plan.blocks:
            where = layout.where(block.name)
            assert where is not None
            weights = layout.weights[where] if mechanism == "gaussian" else 1.0
            scales = np.array(plan.scales[where]) * weights
            assert np.allclose(scales[-1], block.sensitivity.value * block.multiplier)


def test_whole_tables_stay_within_the_joint_bound() -> None:
    """The loss of the whole vector: every neighbour is within one multiplier of noise, all blocks counted."""
    rng = np.random.default_rng(9)
    for mechanism, power in (("gaussian", 2), ("laplace", 1)):
        study = make_study(2, fourth_moments=0.4, smallest_eigenvalue=0.2, mechanism=mechanism)
        plan = plan_noise(study)
        scales = np.array(plan.grid_scales)[1:]
        for _ in range(300):
            rows = np.array([random_row(study, rng) for _ in range(5)])
            change = np.array(vector(study, rows[1:]), dtype=float) - vector(study, np.vstack([rows[:1], rows[2:]]))
            loss = (np.abs(change[1:] / scales) ** power).sum() ** (1 / power)
            assert loss <= 1 / plan.multiplier * ROUNDING
