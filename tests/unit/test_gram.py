"""The Gram matrix is exact and secret; the layout says which of its entries are released, and where they go."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisewise.column import Column
from noisewise.errors import DataError
from noisewise.gram import Gram, Layout, max_chunk_rows, max_rows
from noisewise.study import Study


def study(d: int = 2, bits: int = 16) -> Study:
    features = tuple(Column(f"x{i}", -1, 1) for i in range(d))
    return Study(features, Column("y", -1, 1), epsilon=1.0, delta=1e-6, bits=bits)


def rows(numbers: list[list[int]], bits: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Encoded rows as add_chunk takes them: one column each, the constant first."""
    return np.array([[1 << bits, *row] for row in numbers], dtype=float).reshape(len(numbers), -1).T


def exact(numbers: list[list[int]], bits: int) -> list[list[int]]:
    """The same sum in Python's integers, which know no overflow and no rounding."""
    full = [[1 << bits, *row] for row in numbers]
    order = len(full[0])
    return [[sum(row[i] * row[j] for row in full) for j in range(order)] for i in range(order)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[list[int]], int]:
    bits = draw(st.integers(8, 20))
    order = draw(st.integers(2, 4))
    entries = st.integers(-(1 << bits), 1 << bits)
    table = draw(st.lists(st.lists(entries, min_size=order, max_size=order), min_size=1, max_size=12))
    return bits, table, draw(st.integers(0, len(table)))


class TestGram:
    @given(tables())
    def test_sums_are_those_of_whole_numbers(self, given_table: tuple[int, list[list[int]], int]) -> None:
        bits, table, cut = given_table
        empty = Gram.empty(study(len(table[0]) - 1, bits))
        whole = empty.add_chunk(rows(table, bits))
        assert whole.matrix.dtype == np.int64
        assert whole.matrix.tolist() == exact(table, bits)
        assert whole.rows == len(table)
        parts = [part for part in (table[:cut], table[cut:]) if part]
        chunked = empty
        for part in parts:
            chunked = chunked.add_chunk(rows(part, bits))
        added = sum((empty.add_chunk(rows(part, bits)) for part in parts), start=empty)
        turned = empty.add_chunk(rows(table[::-1], bits))
        for other in (chunked, added, turned):
            assert np.array_equal(other.matrix, whole.matrix)

    @pytest.mark.parametrize("bits", [16, 18, 20])
    def test_a_full_chunk_of_extreme_rows_is_exact(self, bits: int) -> None:
        # the sums reach 2^53, the last number up to which float64 holds every whole number
        count = max_chunk_rows(bits)
        one = float(1 << bits)
        w = np.full((4, count), one)
        w[1, 1:] = one - 1
        w[2] = -one
        top = 1 << (2 * bits)
        less = (1 << bits) - 1
        matrix = Gram.empty(study(2, bits)).add_chunk(w).matrix
        assert matrix[0, 0] == count * top == 1 << 53
        assert matrix[1, 1] == top + (count - 1) * less * less
        assert matrix[0, 1] == top + (count - 1) * less * (1 << bits)
        assert matrix[1, 2] == -matrix[0, 1]

    def test_limits(self) -> None:
        for bits in range(8, 21):
            assert max_chunk_rows(bits) * 4**bits == 2**53
            assert max_rows(bits) * 4**bits == 2**62

    def test_a_chunk_too_long_to_be_exact_is_refused(self) -> None:
        w = np.broadcast_to(np.float64(0), (3, max_chunk_rows(16) + 1))
        with pytest.raises(ValueError, match="A chunk of 2097153 rows is not exact; at most 2097152"):
            Gram.empty(study(1)).add_chunk(w)

    def test_more_rows_than_integers_hold_are_refused(self) -> None:
        words = (
            r"more than 4,194,304 rows; their sums would overflow 64-bit integers at 20 bits a value\. "
            r"Lower 'bits' in the study, or release the table in parts"
        )
        matrix = np.zeros((3, 3), dtype=np.int64)
        matrix[0, 0] = (max_rows(20) - 1) << 40
        nearly = Gram(matrix, 20)
        one_row = rows([[5, -7]], 20)
        full = nearly.add_chunk(one_row)
        assert full.rows == max_rows(20)
        assert full.matrix.tolist() == (matrix + np.array(exact([[5, -7]], 20))).tolist()
        with pytest.raises(DataError, match=words):
            full.add_chunk(one_row)
        with pytest.raises(DataError, match=words):
            nearly.add_chunk(rows([[0, 0], [0, 0]], 20))
        with pytest.raises(DataError, match=words):
            full + full
        with pytest.raises(DataError, match=words):
            full + Gram.empty(study(1, 20)).add_chunk(one_row)

    def test_matrices_of_different_studies_do_not_add(self) -> None:
        for other in (study(2, 15), study(3, 16)):
            with pytest.raises(ValueError, match="different studies"):
                Gram.empty(study(2, 16)) + Gram.empty(other)

    def test_it_can_not_be_printed(self) -> None:
        gram = Gram.empty(study(1)).add_chunk(rows([[12345, 678]], 16))
        for text in (repr(gram), str(gram), f"{gram}", repr([gram]), repr({"gram": gram})):
            assert "<Gram: secret>" in text
            assert "12345" not in text

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_it_can_not_be_pickled(self, protocol: int) -> None:
        with pytest.raises(TypeError, match="secret and is not pickled"):
            pickle.dumps(Gram.empty(study()), protocol)

    def test_it_can_not_be_copied_unnoticed(self) -> None:
        for copier in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="secret"):
                copier(Gram.empty(study()))


layouts = st.builds(Layout, st.integers(1, 6), st.booleans(), st.booleans())


def symmetric(layout: Layout, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    half = np.random.default_rng(seed).standard_normal((layout.d + 2, layout.d + 2))
    return half + half.T


class TestLayout:
    def test_of_a_study(self) -> None:
        assert Layout.of(study(3)) == Layout(3, intercept=True, release_yy=True)

    @given(layouts)
    def test_pairs(self, layout: Layout) -> None:
        pairs = layout.pairs
        assert pairs[0] == (0, 0)
        assert list(pairs) == sorted(set(pairs))
        y = layout.d + 1
        upper = {(i, j) for i in range(y + 1) for j in range(i, y + 1)}
        unreleased = set() if layout.intercept else {(0, j) for j in range(1, y + 1)}
        if not layout.release_yy:
            unreleased.add((y, y))
        assert set(pairs) == upper - unreleased

    @given(layouts, st.integers(0, 2**32))
    def test_place_undoes_pick(self, layout: Layout, seed: int) -> None:
        matrix = symmetric(layout, seed)
        values = layout.pick(matrix)
        placed = layout.place(values)
        assert np.array_equal(layout.pick(placed), values)
        assert np.array_equal(placed, placed.T, equal_nan=True)
        released = ~np.isnan(placed)
        assert np.array_equal(placed[released], matrix[released])
        assert {(int(i), int(j)) for i, j in np.argwhere(released) if i <= j} == set(layout.pairs)

    @given(layouts, st.integers(0, 2**32))
    def test_sufficient_has_the_blocks(self, layout: Layout, seed: int) -> None:
        a, sd = symmetric(layout, seed), np.abs(symmetric(layout, seed + 1))
        first, y = (0 if layout.intercept else 1), layout.d + 1
        got = layout.sufficient(layout.pick(a), layout.pick(sd))
        assert (got.n, got.sd_n) == (a[0, 0], sd[0, 0])
        assert np.array_equal(got.S, a[first:y, first:y])
        assert np.array_equal(got.sd_S, sd[first:y, first:y])
        assert np.array_equal(got.z, a[first:y, y])
        assert np.array_equal(got.sd_z, sd[first:y, y])
        assert (got.u, got.sd_u) == ((a[y, y], sd[y, y]) if layout.release_yy else (None, 0.0))
        assert got.S.shape == (layout.d + layout.intercept,) * 2

    @given(layouts, st.integers(0, 2**32))
    def test_weights_make_the_norm_frobenius(self, layout: Layout, seed: int) -> None:
        a = symmetric(layout, seed)
        norm = math.sqrt(((layout.weights * layout.pick(a)) ** 2).sum())
        first, y = (0 if layout.intercept else 1), layout.d + 1
        count = 0.0 if layout.intercept else a[0, 0] ** 2  # n stands beside the matrix
        if layout.release_yy:
            expected = np.linalg.norm(a[first:, first:]) ** 2 + count
        else:  # z stands beside S
            expected = np.linalg.norm(a[first:y, first:y]) ** 2 + np.linalg.norm(a[first:y, y]) ** 2 + count
        assert norm**2 == pytest.approx(expected, rel=1e-12)

    def test_entry_names(self) -> None:
        names = Layout(2, intercept=True, release_yy=True).entry_names(("age", "bmi"), "pressure")
        assert names == (
            "n",
            "sum age",
            "sum bmi",
            "sum pressure",
            "age * age",
            "age * bmi",
            "age * pressure",
            "bmi * bmi",
            "bmi * pressure",
            "pressure * pressure",
        )
        assert Layout(1, intercept=False, release_yy=False).entry_names(("age",), "pressure") == (
            "n",
            "age * age",
            "age * pressure",
        )
