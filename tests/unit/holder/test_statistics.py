"""The Gram matrix is the integer one of the definition, to the last bit, however the table comes."""

import math
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

import noisewise as nw
from noisewise.gram import max_chunk_rows, max_rows
from noisewise.holder.statistics import best_chunk_rows, gram_of

AGE, TARGET = nw.Column("age", 18, 90), nw.Column("pressure", 80.5, 200.25)
LEVELS = ("1", "2", "3")


def make_study(radius: float | None, bits: int) -> nw.Study:
    return nw.Study(
        (AGE, nw.Column.boolean("smoker"), nw.Column.categorical("ward", LEVELS, baseline="2")),
        TARGET,
        epsilon=1.0,
        delta=1e-6,
        radius=radius,
        bits=bits,
    )


studies = st.builds(make_study, st.sampled_from([None, 1.7, 1.0, 0.3]), st.sampled_from([8, 16, 20]))
# Within the bounds and beyond them, and the odd corners of float64.
numbers = st.one_of(st.floats(0, 250), st.floats(allow_nan=False, allow_infinity=False))
rows = st.tuples(numbers, st.booleans(), st.sampled_from(LEVELS), numbers)
tables = st.lists(rows, min_size=1, max_size=40)


def columns(table: list[tuple[float, bool, str, float]]) -> dict[str, list[Any]]:
    return dict(zip(("age", "smoker", "ward", "pressure"), map(list, zip(*table, strict=True)), strict=True))


def reference(study: nw.Study, table: list[tuple[float, bool, str, float]]) -> list[list[int]]:
    """A = sum of w w' in Python's own numbers: floats one by one for the encoding, unbounded integers for the sums."""
    one = float(1 << study.bits)

    def scaled(value: float, column: nw.Column) -> float:
        image = (min(max(value, column.lower), column.upper) - column.centre) * (one / column.half_width)
        return min(max(image, -one), one)

    total = [[0] * (study.d + 2) for _ in range(study.d + 2)]
    for age, smoker, ward, pressure in table:
        x = [scaled(age, AGE), one if smoker else -one, one * (ward == "1"), one * (ward == "3")]
        if study.shrinks:
            radius = (study.radius or 0.0) * one * (1 - 2.0**-40)
            square = 0.0
            for value in x:
                square += value * value
            if square > radius * radius:
                x = [value * (radius / math.sqrt(square)) for value in x]
        w = [1 << study.bits, *(math.trunc(value) for value in x), math.trunc(scaled(pressure, TARGET))]
        for i, first in enumerate(w):
            for j, second in enumerate(w):
                total[i][j] += first * second
    return total


@given(studies, tables)
def test_the_sums_are_those_of_unbounded_integers(study: nw.Study, table: list[Any]) -> None:
    gram, report = gram_of(study, columns(table))
    assert gram.matrix.tolist() == reference(study, table)
    assert gram.rows == report.used == report.read == len(table)


@given(studies, tables, st.integers(1, 50), st.integers(1, 50), st.randoms(use_true_random=False))
def test_no_chunk_batch_or_order_changes_a_bit(
    study: nw.Study, table: list[Any], chunk: int, batch: int, random: Any
) -> None:
    expected, report = gram_of(study, columns(table))
    shuffled = list(table)
    random.shuffle(shuffled)
    for order in (table, shuffled):
        got, counts = gram_of(study, pa.table(columns(order)).to_reader(batch), chunk_rows=chunk)
        assert np.array_equal(got.matrix, expected.matrix)
        assert counts == report


@settings(max_examples=25)
@given(studies, tables, st.integers(1, 50))
def test_no_format_changes_a_bit(study: nw.Study, table: list[Any], group: int) -> None:
    parts = columns(table)
    expected = gram_of(study, parts)[0].matrix
    arrow, frame = pa.table(parts), pd.DataFrame(parts)
    array = np.column_stack([np.array(values, dtype=float) for values in parts.values()])
    text = "\n".join([",".join(parts), *(f"{a!r},{s},{w},{y!r}" for a, s, w, y in table)])
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("t.csv", "t.parquet", "t.arrow")]
        paths[0].write_text(text + "\n")
        parquet.write_table(arrow, paths[1], row_group_size=group)
        feather.write_feather(arrow, paths[2], chunksize=group)
        for form in (*paths, arrow, frame, frame.astype({"ward": "category"}), pl.DataFrame(parts), array):
            assert np.array_equal(gram_of(study, form)[0].matrix, expected)


@given(tables, st.integers(0, 40))
def test_parts_of_a_table_add_up(table: list[Any], cut: int) -> None:
    study = make_study(1.0, 16)
    parts = [gram_of(study, columns(part))[0] for part in (table[:cut], table[cut:]) if part]
    whole = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    assert np.array_equal(whole.matrix, gram_of(study, columns(table))[0].matrix)


def test_dropped_rows_leave_no_gap() -> None:
    """With rows missing here and there a buffer is filled unevenly; the sums are those of the rows that are left."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 1, 5000), rng.uniform(0, 1, 5000)
    x[rng.uniform(size=5000) < 0.3] = np.nan
    study = nw.Study(
        (nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6, adjacency="add-remove", missing="drop"
    )
    kept = ~np.isnan(x)
    expected = gram_of(study, {"x": x[kept], "y": y[kept]})[0].matrix
    for chunk in (1, 7, 64, 4999, 5000, 8192):
        gram, report = gram_of(study, pa.table({"x": x, "y": y}).to_reader(333), chunk_rows=chunk)
        assert np.array_equal(gram.matrix, expected)
        assert report.used == kept.sum()
        assert report.dropped == 5000 - kept.sum()


@pytest.mark.parametrize("features", [1, 20, 500])
def test_the_buffer_stays_small(features: int) -> None:
    study = nw.Study(
        tuple(nw.Column(f"x{j}", 0, 1) for j in range(features)), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6
    )
    assert best_chunk_rows(study) >= 256
    assert 8 * (features + 2) * best_chunk_rows(study) <= 8 << 20


def test_full_chunks_of_the_largest_values_are_exact() -> None:
    """Every product is 2^40 and the chunks are as long as they may be: one row more would not be exact in float64."""
    bits = 20
    study = nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6, bits=bits)
    n = 3 * max_chunk_rows(bits) + 5
    gram, _ = gram_of(study, {"x": np.ones(n), "y": np.ones(n)}, chunk_rows=10**6)
    assert (gram.matrix == n << (2 * bits)).all()


def repeated(study: nw.Study, n: int) -> pa.RecordBatchReader:
    """n rows in no memory to speak of."""
    batch = pa.record_batch({"x": np.ones(1 << 16), "y": np.ones(1 << 16)})

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, n, 1 << 16):
            yield batch.slice(0, min(1 << 16, n - start))

    return pa.RecordBatchReader.from_batches(batch.schema, batches())


def test_a_table_whose_sums_would_overflow_is_refused(ledger: nw.Ledger, nothing_spent: Any) -> None:
    study = nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6, bits=20)
    most = max_rows(20)
    assert gram_of(study, repeated(study, most))[0].matrix[0, 1] == 1 << 62
    with nothing_spent(), pytest.raises(nw.DataError, match=r"more than 4,194,304 rows.*overflow.*Lower 'bits'"):
        nw.Holder(study, ledger=ledger).release(repeated(study, most + 1))


def test_progress_counts_rows(tmp_path: Path) -> None:
    study = make_study(None, 16)
    table = columns([(20.0, True, "1", 100.0)] * 100)
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table(table), path)
    for form in (pa.table(table).to_reader(30), path):
        seen: list[int] = []
        gram_of(study, form, seen.append)
        assert seen[-1] == 100
        assert seen == sorted(set(seen))


def test_the_reading_thread_ends_with_the_reading(tmp_path: Path) -> None:
    """After success and after an error half-way, no thread is left behind."""
    study = nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6)
    for bad in (False, True):
        x = np.zeros(300_000)
        if bad:
            x[150_000] = np.inf
        path = tmp_path / f"{bad}.parquet"
        parquet.write_table(pa.table({"x": x, "y": np.zeros(300_000)}), path)
        if bad:
            with pytest.raises(nw.DataError, match=r"Column 'x', row 150001: the value is infinite"):
                gram_of(study, path)
        else:
            gram_of(study, path)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("noisewise")]
