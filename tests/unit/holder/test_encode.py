"""Rows become the integers that the definition says, on every path, and never leave the ball."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import noisewise as nw
from noisewise.holder.encode import Encoder

ONE = 1 << 16


def make_study(*features: nw.Column, **changes: Any) -> nw.Study:
    choices: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, **changes}
    return nw.Study(features=features, target=nw.Column("y", -1, 1), **choices)


def encode(study: nw.Study, **columns: Any) -> np.ndarray[Any, Any]:
    """The integers of the given columns, one row of the result per encoded feature; the target is 0 unless given."""
    rows = len(next(iter(columns.values())))
    columns.setdefault("y", np.zeros(rows))
    names = [column.name for column in (*study.features, study.target)]
    return Encoder(study).encode(pa.RecordBatch.from_arrays([pa.array(columns[name]) for name in names], names=names))


def reference(value: float, column: nw.Column, bits: int) -> int:
    """The definition in rational numbers: clip, map, truncate."""
    low, high = Fraction(column.lower), Fraction(column.upper)
    clipped = min(max(Fraction(value), low), high)
    return int((2 * clipped - low - high) / (high - low) * (1 << bits))


bounds = st.tuples(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def test_the_ends_and_the_centre() -> None:
    w = encode(make_study(nw.Column("x", 10, 30)), x=[10.0, 20.0, 30.0, 25.0, 9.0, 1e300])
    assert w[0].tolist() == [ONE] * 6
    assert w[1].tolist() == [-ONE, 0, ONE, ONE // 2, -ONE, ONE]


def test_truncation_is_towards_zero() -> None:
    step = 2.0**-16
    w = encode(make_study(nw.Column("x", -1, 1)), x=[1.9 * step, -1.9 * step, 0.9 * step, -0.9 * step])
    assert w[1].tolist() == [1, -1, 0, 0]


@given(bounds, st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8), st.integers(8, 20))
def test_integers_are_those_of_exact_arithmetic(ends: tuple[float, float], values: list[float], bits: int) -> None:
    column = nw.Column("x", *ends)
    w = encode(make_study(column, bits=bits), x=values)
    for got, value in zip(w[1], values, strict=True):
        assert abs(got) <= 1 << bits
        assert got == int(got)
        # Floating-point error is far below one step, so only a value at the edge of a step may land beside it. Where
        # the bounds are narrow and far from zero their centre is rounded, by half an ulp.
        slack = 1 + Fraction(math.ulp(column.centre)) / Fraction(column.half_width) * (1 << bits)
        assert abs(int(got) - reference(value, column, bits)) <= slack


@given(bounds, st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=20))
def test_a_value_beyond_its_bounds_is_the_bound(ends: tuple[float, float], values: list[float]) -> None:
    column = nw.Column("x", *ends)
    clipped = [min(max(value, column.lower), column.upper) for value in values]
    study = make_study(column)
    assert np.array_equal(encode(study, x=values), encode(study, x=clipped))


def test_bounds_whose_centre_is_rounded_stay_within_one() -> None:
    # 1e16 + 1 is no float64: the centre is off by half the half width, and the upper bound would map to 2.
    column = nw.Column("x", 1e16, 1e16 + 2)
    w = encode(make_study(column), x=[column.lower, column.upper])
    assert np.abs(w).max() == ONE


def test_indicators_are_zero_or_one_and_the_baseline_has_none() -> None:
    study = make_study(nw.Column.categorical("ward", ("a", "b", "c"), baseline="b"))
    w = encode(study, ward=["a", "b", "c", "a"])
    assert [feature.name for feature in study.encoded] == ["ward[a]", "ward[c]"]
    assert w[1].tolist() == [ONE, 0, 0, ONE]
    assert w[2].tolist() == [0, 0, ONE, 0]


def test_booleans_are_minus_one_and_one() -> None:
    study = make_study(nw.Column.boolean("smoker"))
    for values in ([True, False], [1, 0], [1.0, 0.0], np.array([1, 0], dtype=np.int8)):
        assert encode(study, smoker=values)[1].tolist() == [ONE, -ONE]


def test_levels_are_compared_as_text() -> None:
    study = make_study(nw.Column.categorical("ward", ("1", "2")))
    for values in (
        pa.array(["1", "2", "2"]),
        pa.array(["1", "2", "2"], pa.large_string()),
        pa.array(["1", "2", "2"], pa.string_view()),
        pa.array([1, 2, 2], pa.int8()),
        pa.array([1.0, 2.0, 2.0]),
        pa.array(["1", "2", "2"]).dictionary_encode(),
        pa.array([1, 2, 2]).dictionary_encode(),
    ):
        assert encode(study, ward=values)[1].tolist() == [0, ONE, ONE]
    truth = make_study(nw.Column.categorical("smokes", ("false", "true")))
    assert encode(truth, smokes=[False, True])[1].tolist() == [0, ONE]


def test_a_declared_level_that_is_not_used_and_an_unused_entry_of_a_dictionary_do_no_harm() -> None:
    study = make_study(nw.Column.categorical("ward", ("a", "b", "c")))
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b", "elsewhere"]))
    assert encode(study, ward=array)[1].tolist() == [0, ONE]


def test_a_full_dictionary_of_small_indices_may_have_missing_values() -> None:
    levels = tuple(f"level {number}" for number in range(128))
    study = make_study(nw.Column.categorical("ward", levels), missing="centre")
    array = pa.DictionaryArray.from_arrays(pa.array([127, None, 1], pa.int8()), pa.array(levels))
    w = encode(study, ward=array)[1:-1]
    assert w.sum(axis=0).tolist() == [ONE, 0, ONE]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64(), pa.float16(), pa.float32(), pa.decimal128(20, 1)])
def test_numbers_of_any_type_are_the_same_numbers(kind: pa.DataType) -> None:
    study = make_study(nw.Column("x", 0, 100), missing="centre")
    values = pa.array([1, 2, None, 99]).cast(kind)
    expected = encode(study, x=[1.0, 2.0, 50.0, 99.0])
    assert np.array_equal(encode(study, x=values), expected)
    assert np.array_equal(encode(study, x=values.drop_null()), expected[:, [0, 1, 3]])


def test_whole_numbers_beyond_53_bits_are_converted() -> None:
    study = make_study(nw.Column("x", 0, 2.0**63))
    values = [2**62 + 1, 2**53 + 1, 0]
    expected = encode(study, x=[float(value) for value in values])
    assert np.array_equal(encode(study, x=pa.array(values, pa.int64())), expected)
    assert np.array_equal(encode(study, x=pa.array([*values, None], pa.int64()).drop_null()), expected)


def radius_study(d: int, radius: float, bits: int = 16) -> nw.Study:
    return make_study(*(nw.Column(f"x{j}", -1, 1) for j in range(d)), radius=radius, bits=bits)


def beyond_the_ball(w: np.ndarray[Any, Any], study: nw.Study) -> Fraction:
    """How far the worst row is beyond the radius, in squares of grid units, in exact arithmetic."""
    limit = (Fraction(study.radius or 0) * (1 << study.bits)) ** 2
    return max(sum(int(value) ** 2 for value in row) - limit for row in w[1:-1].T)


@given(st.data())
def test_no_row_leaves_the_ball(data: st.DataObject) -> None:
    d, bits = data.draw(st.integers(1, 6)), data.draw(st.integers(8, 20))
    radius = data.draw(st.floats(1e-3, math.sqrt(d) * 0.999))
    direction = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=d, max_size=d)))
    length = float(np.sqrt(direction @ direction))
    if not length > 1e-6:
        direction, length = np.full(d, 1.0), math.sqrt(d)
    # Rows at the edge, a few units in the last place on either side of it, and far outside.
    edge = [1.0, 1 - 2.0**-40, 1 + 2.0**-40, 1 - 2.0**-52, 1 + 2.0**-52, 1 + 1e-9, 2.0, 1e6]
    rows = np.array([direction * (radius / length * factor) for factor in edge])
    rows = np.vstack([rows, np.nextafter(rows, 9), np.nextafter(rows, -9)])
    study = radius_study(d, radius, bits)
    w = encode(study, **{f"x{j}": rows[:, j] for j in range(d)})
    assert beyond_the_ball(w, study) <= 0


def test_integer_directions_that_meet_the_sphere_exactly_stay_inside() -> None:
    # (3, 4) / 5 and its like: points whose norm is the radius in exact arithmetic, the likeliest to be carried over.
    triples = [(3, 4, 5), (5, 12, 13), (8, 15, 17), (20, 21, 29), (119, 120, 169)]
    for a, b, c in triples:
        for power in range(-3, 1):
            radius = 2.0**power
            study = radius_study(2, radius)
            scale = radius / c
            points = np.array([[a, b], [b, a], [-a, b], [7 * a, 7 * b]]) * scale
            w = encode(study, x0=points[:, 0], x1=points[:, 1])
            assert beyond_the_ball(w, study) <= 0
            assert beyond_the_ball(w, study) > -4 * (1 << 16)  # and it is shrunk to the edge, not into the middle


@given(st.lists(st.integers(-40_000, 40_000), min_size=2, max_size=5).filter(any), st.integers(1, 64))
def test_a_radius_just_below_a_grid_point_keeps_the_point_out(point: list[int], times: int) -> None:
    # The point is whole, so truncation does not help: without the margin, rounding alone would decide.
    square = sum(value**2 for value in point)
    radius = math.sqrt(square) / ONE
    while (Fraction(radius) * ONE) ** 2 >= square:
        radius = math.nextafter(radius, 0)
    study = radius_study(len(point), radius)
    if study.shrinks:
        rows = np.array([point, np.multiply(point, times)]) / ONE
        w = encode(study, **{f"x{j}": rows[:, j] for j in range(len(point))})
        assert beyond_the_ball(w, study) <= 0


def test_rows_inside_the_ball_are_untouched() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 3))
    x *= (0.8 * rng.uniform(size=500) ** 0.3 / np.linalg.norm(x, axis=1))[:, None]
    columns = {f"x{j}": x[:, j] for j in range(3)}
    assert np.array_equal(encode(radius_study(3, 0.801), **columns), encode(radius_study(3, math.sqrt(3)), **columns))


def test_indicators_are_shrunk_with_the_rest() -> None:
    study = make_study(nw.Column("x", -1, 1), nw.Column.categorical("ward", ("a", "b")), radius=1.0)
    w = encode(study, x=[1.0, 0.0], ward=["b", "b"])
    assert w[1, 0] == w[2, 0] == math.floor(ONE / math.sqrt(2))
    assert w[2, 1] >= ONE - 1  # alone it is on the edge, and the margin takes at most one step


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_shrinking_does_not_depend_on_the_chunk(size: int, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(-1, 1, (40, 5))
    study = radius_study(5, 0.9)
    whole = encode(study, **{f"x{j}": x[:, j] for j in range(5)})
    parts = [encode(study, **{f"x{j}": x[i : i + size, j] for j in range(5)}) for i in range(0, 40, size)]
    assert np.array_equal(whole, np.hstack(parts))


MISSING_NUMBERS = [
    pa.array([1.0, None, 3.0]),
    pa.array([1.0, math.nan, 3.0]),
    pa.array([1, None, 3]),
    pa.array([1, None, 3]).dictionary_encode(),
]


@pytest.mark.parametrize("values", MISSING_NUMBERS)
def test_missing_refused(values: pa.Array) -> None:
    words = r"Column 'x', row 2: the value is missing.*missing = 'centre'.*missing = 'drop'"
    with pytest.raises(nw.DataError, match=words):
        encode(make_study(nw.Column("x", 0, 4)), x=values)


@pytest.mark.parametrize("values", MISSING_NUMBERS)
def test_missing_at_the_centre(values: pa.Array) -> None:
    w = encode(make_study(nw.Column("x", 0, 4), missing="centre"), x=values)
    assert w[1].tolist() == [-ONE // 2, 0, ONE // 2]


@pytest.mark.parametrize("values", MISSING_NUMBERS)
def test_missing_rows_dropped(values: pa.Array) -> None:
    w = encode(make_study(nw.Column("x", 0, 4), missing="drop", adjacency="add-remove"), x=values, y=[0.5, 1.0, -0.5])
    assert w.tolist() == [[ONE, ONE], [-ONE // 2, ONE // 2], [ONE // 2, -ONE // 2]]


def test_a_missing_level_is_the_baseline_and_a_missing_truth_value_is_in_the_middle() -> None:
    study = make_study(
        nw.Column.categorical("ward", ("a", "b"), baseline="b"), nw.Column.boolean("smoker"), missing="centre"
    )
    w = encode(study, ward=["a", None], smoker=[True, None])
    assert w[1:-1].tolist() == [[ONE, 0], [ONE, 0]]


def test_a_column_with_no_value_at_all_is_all_missing() -> None:
    study = make_study(nw.Column("x", 0, 4), nw.Column.categorical("ward", ("a", "b")), missing="centre")
    w = encode(study, x=pa.nulls(3), ward=pa.nulls(3))
    assert not w[1:].any()


@pytest.mark.parametrize("bad", [math.inf, -math.inf])
@pytest.mark.parametrize("other", [0.0, math.nan])
def test_infinity_is_always_an_error(bad: float, other: float) -> None:
    study = make_study(nw.Column("x", 0, 4), missing="centre")
    with pytest.raises(nw.DataError, match=r"Column 'x', row 3: the value is infinite\. Replace"):
        encode(study, x=[1.0, other, bad])


def test_the_target_may_not_be_infinite_either() -> None:
    with pytest.raises(nw.DataError, match=r"Column 'y', row 1: the value is infinite"):
        encode(make_study(nw.Column("x", 0, 4)), x=[1.0], y=[math.inf])


def test_what_was_done_is_counted() -> None:
    study = make_study(nw.Column("a", 0, 4), nw.Column("b", 0, 4), missing="drop", adjacency="add-remove", radius=1.0)
    a = pa.array([-1.0, 2.0, 5.0, None, 4.0])
    b = pa.array([9.0, 2.0, 2.0, 9.0, 4.0])
    encoder = Encoder(study)
    batch = pa.RecordBatch.from_arrays([a, b, pa.array([0.0] * 5)], names=["a", "b", "y"])
    encoder.encode(batch)
    encoder.encode(batch)
    report = encoder.report()
    assert (report.read, report.used, report.dropped, report.missing, report.clipped, report.shrunk) == (
        10, 8, 2, 2, 6, 4,
    )  # fmt: skip
    assert report.clipped_by_column == {"a": 4, "b": 4, "y": 0}
    assert report.missing_by_column == {"a": 2, "b": 0, "y": 0}
    assert "rows with a value clipped to its bounds: 6" in str(report)
    assert "values missing in a: 2" in str(report)


def test_values_on_their_bounds_are_not_clipped() -> None:
    study = make_study(nw.Column("x", 0.1, 0.7))
    encoder = Encoder(study)
    encoder.encode(pa.RecordBatch.from_arrays([pa.array([0.1, 0.7]), pa.array([1.0, -1.0])], names=["x", "y"]))
    assert encoder.report().clipped == 0


def test_a_buffer_is_used_and_not_overrun() -> None:
    study = make_study(nw.Column("x", 0, 4), missing="drop", adjacency="add-remove")
    buffer = np.full((3, 10), -7.0)
    batch = pa.RecordBatch.from_arrays([pa.array([1.0, None, 3.0]), pa.array([0.0] * 3)], names=["x", "y"])
    w = Encoder(study).encode(batch, out=buffer[:, 4:7])
    assert w.shape == (3, 2)
    assert np.shares_memory(w, buffer)
    assert (buffer[:, :4] == -7).all()
    assert (buffer[:, 7:] == -7).all()


def test_too_many_features_for_the_proof_are_refused() -> None:
    study = make_study(nw.Column.categorical("ward", [str(number) for number in range(9000)]))
    with pytest.raises(nw.StudyError, match="8999 encoded features are too many; a study has at most 8184"):
        Encoder(study)
