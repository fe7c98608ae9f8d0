"""Every kind of table is read the same, and what does not fit is refused in words that quote no value."""

import gzip
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import feather, parquet

import noisewise as nw
from noisewise.holder.files import batch_rows
from noisewise.holder.statistics import gram_of

SECRET = 987654.321
SECRET_TEXT = "Haematology7"


def matrix(study: nw.Study, table: object, **options: Any) -> np.ndarray[Any, Any]:
    return gram_of(study, table, **options)[0].matrix


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)


def write_text(frame: pd.DataFrame, path: Path, separator: str = ",") -> None:
    text = frame.map(lambda value: repr(value) if isinstance(value, float) else value).to_csv(
        index=False, sep=separator
    )
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


FILES: dict[str, Callable[[pd.DataFrame, pa.Table, Path], object]] = {
    "t.csv": lambda frame, _, path: write_text(frame, path),
    "t.CSV": lambda frame, _, path: write_text(frame, path),
    "t.csv.gz": lambda frame, _, path: write_text(frame, path),
    "t.tsv": lambda frame, _, path: write_text(frame, path, "\t"),
    "t.parquet": lambda _, table, path: parquet.write_table(table, path, row_group_size=70),
    "t.pq": lambda _, table, path: parquet.write_table(table, path, compression="zstd"),
    "t.feather": lambda _, table, path: feather.write_feather(table, path, chunksize=50),
    "t.ipc": lambda _, table, path: feather.write_feather(table, path, compression="uncompressed"),
    "t.arrow": lambda _, table, path: write_stream(table, path),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("form", [str, Path])
def test_files(
    name: str, form: Callable[[Path], object], study: nw.Study, table: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / name
    FILES[name](pd.DataFrame(table), pa.table(table), path)
    assert np.array_equal(matrix(study, form(path)), matrix(study, table))


MEMORY: dict[str, Callable[[dict[str, Any]], object]] = {
    "dict of lists": lambda table: {name: values.tolist() for name, values in table.items()},
    "dict of series": lambda table: dict(pd.DataFrame(table).items()),
    "dict of polars series": lambda table: {name: pl.Series(values) for name, values in table.items()},
    "dict of Arrow arrays": lambda table: {name: pa.array(values) for name, values in table.items()},
    "structured array": lambda table: pd.DataFrame(table).to_records(index=False),
    "Arrow table": pa.table,
    "Arrow table in chunks": lambda table: pa.Table.from_batches(pa.table(table).to_batches(7)),
    "batch": lambda table: pa.table(table).to_batches()[0],
    "reader": lambda table: pa.table(table).to_reader(13),
    "data set": lambda table: ds.dataset(pa.table(table)),
    "pandas": pd.DataFrame,
    "pandas, categories": lambda table: pd.DataFrame(table).astype({"ward": "category"}),
    "pandas, whole numbers as categories": lambda table: pd.DataFrame(table).astype({"ward": "int64"}),
    "pandas, objects": lambda table: pd.DataFrame(table).astype(object),
    "pandas, Arrow types": lambda table: pd.DataFrame(table).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, nullable types": lambda table: pd.DataFrame(table).convert_dtypes(),
    "pandas, odd index": lambda table: pd.DataFrame(table, index=np.arange(200)[::-1] * 1.5),
    "pandas from a matrix": lambda table: pd.DataFrame(as_matrix(table), columns=list(table)),
    "polars": pl.DataFrame,
    "polars, categories": lambda table: pl.DataFrame(table).with_columns(pl.col("ward").cast(pl.Categorical)),
    "polars, enumeration": lambda table: pl.DataFrame(table).with_columns(
        pl.col("ward").cast(pl.Enum(["1", "2", "3"]))
    ),
    "NumPy": lambda table: as_matrix(table),
    "NumPy by column": lambda table: np.asfortranarray(as_matrix(table)),
    "NumPy, every second row": lambda table: np.repeat(as_matrix(table), 2, axis=0)[::2],
    "NumPy, objects": lambda table: as_matrix(table).astype(object),
    "columns in another order": lambda table: pa.table(table).select(["pressure", "ward", "age", "smoker"]),
}


def as_matrix(table: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.column_stack([np.asarray(values).astype(float) for values in table.values()])


@pytest.mark.parametrize("name", MEMORY)
def test_tables_in_memory(name: str, study: nw.Study, table: dict[str, Any]) -> None:
    assert np.array_equal(matrix(study, MEMORY[name](table)), matrix(study, table))


def test_a_folder_of_parquet_files_as_a_data_set(study: nw.Study, table: dict[str, Any], tmp_path: Path) -> None:
    for start in range(0, 200, 50):
        parquet.write_table(pa.table(table).slice(start, 50), tmp_path / f"part-{start:03}.parquet")
    assert np.array_equal(matrix(study, ds.dataset(tmp_path)), matrix(study, table))


def test_more_rows_than_a_batch(study: nw.Study, table: dict[str, Any], tmp_path: Path) -> None:
    times = batch_rows(study) // 200 + 3
    many = {name: np.tile(values, times) for name, values in table.items()}
    path = tmp_path / "many.parquet"
    parquet.write_table(pa.table(many), path)
    for form in (many, pd.DataFrame(many), pl.DataFrame(many), pa.table(many), path):
        assert np.array_equal(matrix(study, form), matrix(study, table) * times)


def test_missing_values_in_every_form(study: nw.Study, table: dict[str, Any], tmp_path: Path) -> None:
    columns = {name: list(values) for name, values in table.items()}
    for position, name in enumerate(columns):
        columns[name][position] = None
    lenient = nw.Study.from_dict(study.to_dict() | {"missing": "centre"})
    expected, rows = gram_of(lenient, columns)
    assert rows.missing_by_column == dict.fromkeys(columns, 1)
    frame, path = pd.DataFrame(columns), tmp_path / "t.csv"
    arrow = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    for word in ("", "NA", "NaN", "null"):
        frame.to_csv(path, index=False, na_rep=word)
        assert np.array_equal(matrix(lenient, path), expected.matrix)
    masked = np.ma.masked_invalid(as_matrix(columns))
    for form in (frame, frame.convert_dtypes(), arrow, pl.from_arrow(arrow), as_matrix(columns), masked):
        assert np.array_equal(matrix(lenient, form), expected.matrix)
    with pytest.raises(nw.DataError, match="Column 'age', row 1: the value is missing"):
        gram_of(study, path)


def test_a_level_called_na_is_a_level(tmp_path: Path) -> None:
    levels = ("NA", "EU")
    study = nw.Study(
        (nw.Column.categorical("region", levels),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6, missing="centre"
    )
    path = tmp_path / "t.csv"
    path.write_text("region,y\nNA,NA\nEU,0.5\n,0.5\n")
    _, rows = gram_of(study, path)
    assert rows.missing_by_column == {"region": 1, "y": 1}


@pytest.mark.parametrize("words", [("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("1", "0"), ("1.0", "0.0")])
def test_truth_values_in_text(words: tuple[str, str], tmp_path: Path) -> None:
    study = nw.Study((nw.Column.boolean("b"),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6)
    path = tmp_path / "t.csv"
    path.write_text(f"b,y\n{words[0]},0\n{words[1]},0\n{words[0]},0\n")
    assert matrix(study, path)[0, 1] == 1 << 32


def test_quoted_cells_a_mark_of_unicode_and_line_breaks(tmp_path: Path) -> None:
    study = nw.Study((nw.Column("x", 0, 4),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6)
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"x",note,"y"\r\n"1","a, ""b""\nc",0.5\r\n 3 ,,1\r\n')
    expected = matrix(study, {"x": [1.0, 3.0], "y": [0.5, 1.0]})
    assert np.array_equal(matrix(study, path, extra_columns="ignore"), expected)


# Bad input: how to spoil the good table, and the words that tell about it.

Spoil = Callable[[dict[str, Any]], object]


def with_value(column: str, row: int, value: object) -> Spoil:
    """The table as lists, with one value exchanged (rows count from 1)."""

    def spoil(table: dict[str, Any]) -> object:
        columns = {name: list(values) for name, values in table.items()}
        columns[column][row - 1] = value
        return columns

    return spoil


def without(*names: str) -> Spoil:
    return lambda table: {name: values for name, values in table.items() if name not in names}


def as_text(edit: Callable[[str], str], name: str = "bad.csv") -> Spoil:
    """The table as a CSV file with its text edited; the tests run in an empty folder."""

    def spoil(table: dict[str, Any]) -> object:
        text = pd.DataFrame(table).to_csv(index=False)
        Path(name).write_text(edit(text))
        return name

    return spoil


def cell(column: int, row: int, value: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        lines = text.splitlines()
        cells = lines[row].split(",")
        cells[column] = value
        lines[row] = ",".join(cells)
        return "\n".join(lines) + "\n"

    return edit


def with_column(name: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        header, *rows = text.splitlines()
        return "\n".join([f"{header},{name}", *(f"{row},{SECRET}" for row in rows)]) + "\n"

    return edit


def raw_file(name: str, content: bytes) -> Spoil:
    def spoil(table: dict[str, Any]) -> object:
        Path(name).write_bytes(content)
        return name

    return spoil


def cut_off(name: str) -> Spoil:
    def spoil(table: dict[str, Any]) -> object:
        path = Path(name)
        FILES[f"t{''.join(path.suffixes)}"](pd.DataFrame(table), pa.table(table), path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return path

    return spoil


def damaged_parquet(table: dict[str, Any]) -> object:
    """A file whose end, with the list of columns, is whole, and whose first pages are not."""
    parquet.write_table(pa.table(table), "damaged.parquet", use_dictionary=False)
    content = bytearray(Path("damaged.parquet").read_bytes())
    content[4:400] = bytes(range(256)) + bytes(140)
    Path("damaged.parquet").write_bytes(content)
    return "damaged.parquet"


def failing_reader(table: dict[str, Any]) -> object:
    arrow = pa.table(table)

    def batches() -> Any:
        yield arrow.to_batches()[0]
        raise pa.ArrowInvalid(f"stumbled over {SECRET}")

    return pa.RecordBatchReader.from_batches(arrow.schema, batches())


def used_reader(table: dict[str, Any]) -> object:
    reader = pa.table(table).to_reader()
    reader.read_all()
    return reader


BAD: dict[str, tuple[Spoil, str]] = {
    "missing column": (without("smoker"), r"lacks column 'smoker'.*It has 'age', 'ward', 'pressure'\. Rename or add"),
    "missing columns": (without("smoker", "age"), r"lacks columns 'age', 'smoker'"),
    "extra column": (
        lambda table: table | {"zip": [SECRET] * 200},
        r"has column 'zip', which the study does not know\. Remove .* extra_columns=\"ignore\"",
    ),
    "many extra columns": (
        lambda table: pd.DataFrame(table | {f"e{i}": [SECRET] * 200 for i in range(20)}),
        r"columns 'e0', .*'e7' and 12 more",
    ),
    "extra column in a file": (
        as_text(with_column("zip")),
        r"bad\.csv has column 'zip', which the study does not know",
    ),
    "repeated column": (
        lambda table: pa.Table.from_arrays([*map(pa.array, table.values()), pa.array(table["age"])], [*table, "age"]),
        r"has column 'age' more than once",
    ),
    "repeated column in pandas": (
        lambda table: pd.concat([pd.DataFrame(table), pd.DataFrame(table)[["ward"]]], axis=1),
        r"has column 'ward' more than once",
    ),
    "repeated column in a file": (
        as_text(with_column("age")),
        r"bad\.csv has column 'age' more than once; keep the one that the study means",
    ),
    "no header": (
        as_text(lambda text: text.split("\n", 1)[1].replace("1", str(SECRET))),
        r"bad\.csv lacks columns 'age'.*It has none of the study's columns\..*in its first line",
    ),
    "text in a numeric column of a file": (
        as_text(cell(0, 17, SECRET_TEXT)),
        r"bad\.csv: column 'age', row 17: the cell is not a number, as the study says\. Correct",
    ),
    "text in a boolean column of a file": (
        as_text(cell(1, 200, SECRET_TEXT)),
        r"bad\.csv: column 'smoker', row 200: the cell is not true, false, 0 or 1",
    ),
    "text in a numeric list": (with_value("age", 17, SECRET_TEXT), r"Column 'age', row 17: text, where.*numeric"),
    "numbers written as text": (
        lambda table: pd.DataFrame(table).assign(age=pd.DataFrame(table)["age"].astype(str)),
        r"Column 'age' holds text; the study says it is numeric\. Convert it to numbers",
    ),
    "truth values written as text": (
        lambda table: pl.DataFrame(table).with_columns(smoker=pl.Series(["no"] * 200)),
        r"Column 'smoker' holds text; the study says it is boolean\. Convert it to true and false",
    ),
    "dates": (
        lambda table: pd.DataFrame(table).assign(age=pd.Timestamp("1999-01-01")),
        r"Column 'age' holds dates or times; the study says it is numeric",
    ),
    "lists in a cell": (
        lambda table: pa.table(table | {"age": [[SECRET]] * 200}),
        r"Column 'age' holds values of type list<.*>; the study says it is numeric",
    ),
    "lists as levels": (
        lambda table: pa.table(table | {"ward": [[SECRET_TEXT]] * 200}),
        r"Column 'ward' holds values of type list<.*>; the study says it is categorical",
    ),
    "values of several kinds": (
        with_value("ward", 5, object()),
        r"Column 'ward', between rows 1 and 200: the values are of different kinds",
    ),
    "NaN": (with_value("age", 9, math.nan), r"Column 'age', row 9: the value is missing"),
    "NaN in the target": (with_value("pressure", 200, None), r"Column 'pressure', row 200: the value is missing"),
    "infinity": (with_value("age", 9, math.inf), r"Column 'age', row 9: the value is infinite"),
    "infinity in a file": (as_text(cell(3, 9, "inf")), r"Column 'pressure', row 9: the value is infinite"),
    "empty cell": (as_text(cell(2, 9, "")), r"Column 'ward', row 9: the value is missing"),
    "unknown level": (
        with_value("ward", 42, SECRET_TEXT),
        r"Column 'ward', row 42: the value is not one of the levels that the study declares \('1', '2', '3'\)\. Co",
    ),
    "unknown level in a file": (as_text(cell(2, 42, SECRET_TEXT)), r"Column 'ward', row 42: the value is not one of"),
    "unknown number as a level": (
        lambda table: pd.DataFrame(table).assign(ward=SECRET),
        r"Column 'ward', row 1: the value is not one of the levels",
    ),
    "a truth value that is neither": (
        lambda table: table | {"smoker": np.where(np.arange(200) == 11, SECRET, 1.0)},
        r"Column 'smoker', row 12: the value is not true, false, 0 or 1",
    ),
    "ragged row": (
        as_text(lambda text: text + f"1,0,1,100,{SECRET}\n"),
        r"bad\.csv: row 201 has more or fewer cells than the first line has names",
    ),
    "a quotation mark that is not closed": (
        as_text(lambda text: text + f'1,0,"{SECRET_TEXT},100\n' + f"{SECRET}\n" * 10),
        r"bad\.csv: row 201 has more or fewer cells than the first line has names",
    ),
    "a quotation mark that is not closed in a long file": (
        as_text(lambda text: text + f'1,0,"{SECRET_TEXT},100\n' + f"{SECRET}\n" * 1_200_000),
        r"bad\.csv: a line is longer than 4 MB; is a quotation mark not closed\?",
    ),
    "text that is not UTF-8": (
        raw_file("bad.csv", b"age,smoker,ward,pressure\n20,1,\xff\xfe,100\n"),
        r"bad\.csv: column 'ward', row 1: the cell is not readable UTF-8 text",
    ),
    "empty file": (raw_file("bad.csv", b""), r"bad\.csv: the file is empty; it needs the columns' names"),
    "header and no rows": (as_text(lambda text: text.split("\n", 1)[0] + "\n"), r"bad\.csv has no rows"),
    "no rows": (lambda table: {name: values[:0] for name, values in table.items()}, r"The table has no rows"),
    "a reader that was read": (used_reader, r"has no rows \(a reader can be read only once\)"),
    "no file": (lambda table: "nowhere.csv", r"nowhere\.csv: no such file; check the name"),
    "a folder": (lambda table: Path.cwd(), r"this is a folder; name one file, or pass pyarrow\.dataset"),
    "unknown ending": (raw_file("t.xlsx", b"?"), r"t\.xlsx: this kind of file can't be read; .*\.csv, .*\.parquet"),
    "not Parquet": (
        raw_file("bad.parquet", b"age,y\n1,2\n"),
        r"bad\.parquet: can't be read as a Parquet file; it is dam",
    ),
    "half a Parquet file": (cut_off("half.parquet"), r"half\.parquet: can't be read as a Parquet file"),
    "damaged Parquet pages": (damaged_parquet, r"damaged\.parquet: can't be read as a Parquet file"),
    "not Arrow": (raw_file("bad.arrow", b"age,y\n1,2\n"), r"bad\.arrow: can't be read as an Arrow file"),
    "half an Arrow file": (cut_off("half.feather"), r"half\.feather: can't be read as an Arrow file"),
    "half a compressed file": (cut_off("half.csv.gz"), r"half\.csv\.gz: can't be read as text in columns"),
    "not compressed": (raw_file("bad.csv.gz", b"age,y\n"), r"bad\.csv\.gz: can't be read as text in columns"),
    "a reader that fails": (failing_reader, r"The table can't be read to its end \(ArrowInvalid\)"),
    "too few columns in an array": (
        lambda table: np.full((200, 3), SECRET),
        r"The array has shape \(200, 3\); the study needs \(rows, 4\): the features .* then the target",
    ),
    "one dimension": (lambda table: np.full(200, SECRET), r"The array has shape \(200,\); the study needs \(rows, 4\)"),
    "columns of different length": (
        lambda table: table | {"age": table["age"][:-1]},
        r"column 'age' has fewer rows than others have",
    ),
    "a column that is no array": (lambda table: table | {"age": SECRET}, r"column 'age' is not an array of one dim"),
    "a column that is text": (lambda table: table | {"age": "x" * 200}, r"column 'age' is not an array of one dim"),
    "a column that is a matrix": (lambda table: table | {"age": np.ones((200, 2))}, r"column 'age' is not an array of"),
    "no table at all": (lambda table: 12, r"A table of type 'int' can't be read; give the path of a CSV"),
    "a polars plan": (lambda table: pl.LazyFrame(table), r"A table of type 'LazyFrame' can't be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_and_nothing_is_spent(
    name: str,
    study: nw.Study,
    table: dict[str, Any],
    ledger: nw.Ledger,
    folder: Path,
    nothing_spent: Callable[[], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    spoil, words = BAD[name]
    bad = spoil(table)
    with nothing_spent(), pytest.raises(nw.DataError, match=words) as caught:
        nw.Holder(study, ledger=ledger).release(bad, folder / "release.json")
    assert_quotes_nothing(caught.value)
    if isinstance(bad, pa.RecordBatchReader):
        bad = spoil(table)
    with nothing_spent(), pytest.raises(nw.DataError, match=words):
        nw.Holder(study, ledger=ledger).dry_run(bad)


def assert_quotes_nothing(error: BaseException) -> None:
    """Neither the error, nor what it carries along, nor its traceback shows a cell."""
    import traceback

    shown = io.StringIO()
    traceback.print_exception(error, file=shown)
    chain: BaseException | None = error
    while chain is not None:
        shown.write(f"{chain!r} {chain}")
        chain = chain.__cause__ or chain.__context__
    for secret in (str(SECRET), str(SECRET)[:6], SECRET_TEXT):
        assert secret not in shown.getvalue()


def test_a_file_that_may_not_be_read(
    study: nw.Study, table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    write_text(pd.DataFrame(table), path)
    path.chmod(0)
    # The superuser may read all the same, so the answer of the system is set here too.
    monkeypatch.setattr("noisewise.holder.files.os.access", lambda path, mode: False)
    with pytest.raises(nw.DataError, match=r"t\.csv: you may not read this file; ask its owner"):
        gram_of(study, path)


def test_extra_columns_are_ignored_on_request(study: nw.Study, table: dict[str, Any], tmp_path: Path) -> None:
    more = {"id": np.arange(200), **table, "note": ["text"] * 200}
    write_text(pd.DataFrame(more), tmp_path / "t.csv")
    parquet.write_table(pa.table(more), tmp_path / "t.parquet")
    write_stream(pa.table(more), tmp_path / "t.arrow")
    feather.write_feather(pa.table(more), tmp_path / "t.feather")
    in_memory: list[object] = [more, pd.DataFrame(more), pl.DataFrame(more), pa.table(more), pa.table(more).to_reader()]
    files = [tmp_path / name for name in ("t.csv", "t.parquet", "t.arrow", "t.feather")]
    for form in (*in_memory, *files, ds.dataset(tmp_path / "t.parquet")):
        assert np.array_equal(matrix(study, form, extra_columns="ignore"), matrix(study, table))
    with pytest.raises(nw.DataError, match="extra_columns 'drop' is not known; use one of refuse, ignore"):
        matrix(study, more, extra_columns="drop")


def test_unread_columns_are_not_read(study: nw.Study, table: dict[str, Any], tmp_path: Path) -> None:
    """A damaged column that the study does not need does no harm, because nobody reads it."""
    path = tmp_path / "t.parquet"
    noise = np.random.default_rng(0).bytes(16)
    more = {"id": [noise.hex()] * 200, **table}
    parquet.write_table(pa.table(more), path, use_dictionary=False, compression="none", column_encoding="PLAIN")
    content = path.read_bytes()
    path.write_bytes(content.replace(noise.hex().encode(), b"\xff" * 32))
    assert np.array_equal(matrix(study, path, extra_columns="ignore"), matrix(study, table))
