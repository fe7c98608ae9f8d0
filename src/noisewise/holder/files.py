"""Files of rows as streams of Arrow batches: CSV, Parquet and Arrow files, in bounded memory.

Only the study's columns are read, and never the whole file at once. Arrow's own error texts quote the cell that they
stumble over, so none of them is passed on: what is raised here says the column, the row and the remedy.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from noisewise.column import Column
from noisewise.errors import DataError
from noisewise.holder.columns import ExtraColumns, check_names, column_names
from noisewise.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

# What one batch may weigh (8 bytes a value). Larger ones buy no speed, and a few are alive at a time.
BATCH_BYTES = 12 << 20
CSV_BLOCK_BYTES = 4 << 20
# A Parquet column is read through a buffer of this size instead of a row group at a time.
PARQUET_BUFFER_BYTES = 256 << 10

# How a missing value is written in a text file, unless a categorical column declares the word as a level.
MISSING_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
TRUE_WORDS = ("true", "True", "TRUE", "1", "1.0")
FALSE_WORDS = ("false", "False", "FALSE", "0", "0.0")

T = TypeVar("T")
Batches = Iterator["pa.RecordBatch"]
Opened = tuple[Callable[[], Batches], int | None]
"""What a reader gives: a function that starts the stream, and the number of rows if it is known."""


def open_file(path: Path, study: Study, extra: ExtraColumns) -> Opened:
    """The rows of a file, by the ending of its name."""
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name one file, or pass pyarrow.dataset.dataset({str(path)!r}).")
    if not path.exists():
        raise DataError(f"{path}: no such file; check the name.")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path}: you may not read this file; ask its owner for permission.")
    for endings, reader in _READERS.items():
        if path.name.lower().endswith(endings):
            return reader(path, study, extra)
    known = ", ".join(ending for endings in _READERS for ending in endings)
    raise DataError(f"{path}: this kind of file can't be read; the name has to end in one of {known}.")


def batch_rows(study: Study) -> int:
    """How many rows of the study's columns make a batch: a power of two."""
    values = BATCH_BYTES // (8 * (len(study.features) + 1))
    return 1 << max(10, min(16, values.bit_length() - 1))


def guarded(batches: Iterable["pa.RecordBatch"], explain: Callable[[Exception], str]) -> Batches:
    """The same batches; what Arrow raises on the way becomes a DataError, with no trace of Arrow's text."""
    stream = iter(batches)
    while True:
        batch, problem = _attempt(lambda: next(stream, None), explain)
        if problem is not None:
            raise DataError(problem)
        if batch is None:
            return
        yield batch


def _attempt(action: Callable[[], T], explain: Callable[[Exception], str]) -> tuple[T | None, str | None]:
    # The error is turned into words here and raised by the caller, outside of the handler, so that not even the new
    # error's __context__ keeps the old one, whose text may quote a cell.
    import pyarrow as pa

    try:
        return action(), None
    except (pa.ArrowException, OSError, UnicodeError) as error:
        return None, explain(error)


def _checked(action: Callable[[], T], explain: Callable[[Exception], str]) -> T:
    value, problem = _attempt(action, explain)
    if problem is not None or value is None:
        raise DataError(problem)
    return value


def _csv(path: Path, study: Study, extra: ExtraColumns) -> Opened:
    import pyarrow as pa
    from pyarrow import csv

    name = path.name.lower()
    parse = csv.ParseOptions(delimiter="\t" if ".tsv" in name else ",", newlines_in_values=True)
    # One thread keeps count of the rows, which Arrow's message then tells; it is as fast, the parser is sequential.
    read = csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False)

    def start(convert: csv.ConvertOptions) -> csv.CSVStreamingReader:
        file = pa.input_stream(str(path), compression="gzip" if name.endswith(".gz") else None)
        return csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert)

    names: list[str] = []

    def explain(error: Exception) -> str:
        return _csv_problem(path, str(error), names)

    with _checked(lambda: start(csv.ConvertOptions()), explain) as header:
        names += header.schema.names
    check_names(names, study, extra, str(path))
    columns = (*study.features, study.target)
    convert = csv.ConvertOptions(
        include_columns=column_names(study),
        column_types={column.name: _csv_type(column) for column in columns},
        null_values=MISSING_WORDS,
        true_values=TRUE_WORDS,
        false_values=FALSE_WORDS,
    )

    def batches() -> Batches:
        with _checked(lambda: start(convert), explain) as reader:
            for batch in guarded(reader, explain):
                yield _without_missing_words(batch, columns)

    return batches, None


def _csv_type(column: Column) -> "pa.DataType":
    import pyarrow as pa

    if column.kind == "categorical":
        return pa.dictionary(pa.int32(), pa.string())
    return pa.bool_() if column.kind == "boolean" else pa.float64()


def _without_missing_words(batch: "pa.RecordBatch", columns: tuple[Column, ...]) -> "pa.RecordBatch":
    """Empty cells and the like in categorical columns are missing values, unless a level is written so."""
    import pyarrow as pa
    from pyarrow import compute

    for position, column in enumerate(columns):
        if column.kind == "categorical":
            array = batch.column(position)
            words = pa.array([word for word in MISSING_WORDS if word not in column.levels])
            empty = compute.is_in(array.dictionary, words)
            texts = compute.if_else(empty, pa.scalar(None, pa.string()), array.dictionary)
            array = pa.DictionaryArray.from_arrays(array.indices, texts)
            batch = batch.set_column(position, column.name, array)
    return batch


def _csv_problem(path: Path, text: str, names: list[str]) -> str:
    """Arrow's message without the cell that it quotes; its rows count the header as the first."""
    where = re.match(r"(?:In CSV column #(\d+): |CSV parse error: )(?:Row #(\d+): )?", text)
    row = f"row {int(where[2]) - 1}" if where and where[2] else "a row"
    if where and where[1]:
        column = repr(names[int(where[1])]) if int(where[1]) < len(names) else f"number {int(where[1]) + 1}"
        kind = re.search(r"conversion error to (\w+)", text)
        words = {"double": "a number", "bool": "true, false, 0 or 1"}
        wanted = words.get(kind[1] if kind else "", "readable UTF-8 text")
        return f"{path}: column {column}, {row}: the cell is not {wanted}, as the study says. Correct the cell."
    if where:
        return f"{path}: {row} has more or fewer cells than the first line has names. Correct the row."
    if "Empty CSV" in text:
        return f"{path}: the file is empty; it needs the columns' names in its first line, and rows."
    if "straddling" in text or "out of sync" in text:
        return f"{path}: a line is longer than {CSV_BLOCK_BYTES >> 20} MB; is a quotation mark not closed?"
    return f"{path}: can't be read as text in columns; it is damaged, cut off or of another kind."


def _parquet(path: Path, study: Study, extra: ExtraColumns) -> Opened:
    from pyarrow import parquet

    def explain(error: Exception) -> str:
        return f"{path}: can't be read as a Parquet file; it is damaged, cut off or of another kind."

    # Pre-buffering would hold whole row groups (a file's worth at worst) in memory.
    def start() -> parquet.ParquetFile:
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=PARQUET_BUFFER_BYTES)

    with _checked(start, explain) as file:
        check_names(file.schema_arrow.names, study, extra, str(path))
        rows = file.metadata.num_rows
    names = column_names(study)

    def batches() -> Batches:
        with _checked(start, explain) as file:
            stream = file.iter_batches(batch_size=batch_rows(study), columns=names)
            for batch in guarded(stream, explain):
                yield batch.select(names)

    return batches, rows


def _arrow(path: Path, study: Study, extra: ExtraColumns) -> Opened:
    import pyarrow as pa

    def explain(error: Exception) -> str:
        return f"{path}: can't be read as an Arrow file; it is damaged, cut off or of another kind."

    names = column_names(study)

    # A mapped file costs no memory of its own, whatever the size of the batches it was written in.
    def start(fields: list[int] | None = None) -> "pa.RecordBatchFileReader | pa.RecordBatchStreamReader":
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        source = pa.memory_map(str(path))
        try:
            return pa.ipc.open_file(source, options=options)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source, options=options)

    with _checked(start, explain) as file:
        found = file.schema.names
        check_names(found, study, extra, str(path))
    fields = sorted(found.index(name) for name in names)

    def batches() -> Batches:
        with _checked(lambda: start(fields), explain) as file:
            if isinstance(file, pa.RecordBatchFileReader):
                stream = (file.get_batch(position) for position in range(file.num_record_batches))
            else:
                stream = iter(file)
            for batch in guarded(stream, explain):
                yield batch.select(names)

    return batches, None


_READERS: dict[tuple[str, ...], Callable[[Path, Study, ExtraColumns], Opened]] = {
    (".csv", ".csv.gz", ".tsv", ".tsv.gz"): _csv,
    (".parquet", ".pq"): _parquet,
    (".arrow", ".feather", ".ipc"): _arrow,
}
