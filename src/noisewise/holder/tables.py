"""Whatever a holder calls a table, as one stream of Arrow batches with the study's columns in order.

Files, Arrow tables, readers and data sets, pandas and polars data frames, dictionaries of arrays and NumPy arrays
all go the same way. A batch is a slice, so tables in memory are not copied whole, and files never are in memory.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from noisewise.column import Column
from noisewise.errors import DataError
from noisewise.holder.columns import ExtraColumns, check_names, column_names
from noisewise.holder.files import PARQUET_BUFFER_BYTES, Batches, Opened, batch_rows, guarded, open_file
from noisewise.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = "the path of a CSV, Parquet or Arrow file, a pyarrow, pandas or polars table, a dict of arrays or a NumPy array"


@dataclass(frozen=True, repr=False)
class Table:
    """A holder's rows, not yet read. ``rows`` is their number if it is known beforehand.

    ``from_disk`` tells that reading a batch takes time, so that it pays to read ahead.
    """

    label: str
    batches: Callable[[], Batches]
    rows: int | None
    from_disk: bool = False

    def __repr__(self) -> str:
        return "<Table: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A holder's table is secret and is not pickled.")


def open_table(table: object, study: Study, extra_columns: ExtraColumns = "refuse") -> Table:
    """The table as a stream; its columns are checked by name here, by content while they are read."""
    _need_pyarrow()
    import pyarrow as pa

    if isinstance(table, str | Path):
        return Table(str(table), *open_file(Path(table), study, extra_columns), from_disk=True)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    label = "The table"
    if isinstance(table, pa.Table):
        return Table(label, *_arrow_table(table, study, extra_columns))
    if _is_from("pyarrow.dataset", "Dataset", table):
        return Table("The data set", *_dataset(table, study, extra_columns), from_disk=True)
    if _is_from("pandas", "DataFrame", table):
        return Table("The data frame", *_data_frame(table, study, extra_columns))
    if hasattr(table, "__arrow_c_stream__"):
        return Table(label, *_stream(table, study, extra_columns))
    if isinstance(table, np.ndarray) and table.dtype.names:
        table = {name: table[name] for name in table.dtype.names}
    if isinstance(table, Mapping):
        return Table(label, *_columns(table, study, extra_columns, label))
    if isinstance(table, np.ndarray):
        return Table("The array", *_columns(_named(table, study), study, extra_columns, "The array"))
    raise DataError(f"A table of type {type(table).__name__!r} can't be read; give {KINDS}.")


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401  (only to see whether it is there)
    except ImportError:
        raise DataError("Reading tables needs pyarrow; install noisewise[holder].") from None


def _is_from(module: str, name: str, value: object) -> bool:
    """isinstance without importing a library that the caller may not have."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _unreadable(label: str) -> Callable[[Exception], str]:
    return lambda error: f"{label} can't be read to its end ({type(error).__name__}); check where it comes from."


def _arrow_table(table: "pa.Table", study: Study, extra: ExtraColumns) -> Opened:
    check_names(table.column_names, study, extra, "The table")

    def batches() -> Batches:
        return iter(table.select(column_names(study)).to_batches(max_chunksize=batch_rows(study)))

    return batches, table.num_rows


def _dataset(dataset: Any, study: Study, extra: ExtraColumns) -> Opened:
    from pyarrow import dataset as ds

    check_names(dataset.schema.names, study, extra, "The data set")
    options = None
    if isinstance(getattr(dataset, "format", None), ds.ParquetFileFormat):
        options = ds.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False
        )

    def batches() -> Batches:
        scanner = dataset.scanner(
            columns=column_names(study),
            batch_size=batch_rows(study),
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=options,
        )
        return guarded(scanner.to_batches(), _unreadable("The data set"))

    return batches, None


def _stream(table: Any, study: Study, extra: ExtraColumns) -> Opened:
    """Readers, polars data frames, and all else that speaks Arrow's stream interface."""
    import pyarrow as pa

    names = column_names(study)
    if _is_from("polars", "DataFrame", table):
        check_names(table.columns, study, extra, "The data frame")
        table = table.select(names)
    reader = pa.RecordBatchReader.from_stream(table)
    check_names(reader.schema.names, study, extra, "The table")
    size = batch_rows(study)

    def batches() -> Batches:
        for batch in guarded(reader, _unreadable("The table")):
            chosen = batch.select(names)
            for start in range(0, chosen.num_rows, size):
                yield chosen.slice(start, size)

    return batches, None


def _data_frame(frame: Any, study: Study, extra: ExtraColumns) -> Opened:
    check_names(list(frame.columns), study, extra, "The data frame")
    return _columns({name: frame[name] for name in column_names(study)}, study, extra, "The data frame")


def _named(array: "np.ndarray[Any, Any]", study: Study) -> dict[str, Any]:
    names = column_names(study)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"The array has shape {array.shape}; the study needs (rows, {len(names)}): the features in the study's "
            "order, then the target."
        )
    return {name: array[:, position] for position, name in enumerate(names)}


def _columns(columns: Mapping[Any, Any], study: Study, extra: ExtraColumns, label: str) -> Opened:
    """Arrays of equal length, cut into slices and converted a slice at a time."""
    check_names(list(columns), study, extra, label)
    chosen = {name: _sliceable(columns[name], name, label) for name in column_names(study)}
    lengths = {name: len(values) for name, values in chosen.items()}
    rows = max(lengths.values())
    if uneven := [name for name in lengths if lengths[name] < rows]:
        raise DataError(f"{label}: column {uneven[0]!r} has fewer rows than others have; columns are of equal length.")
    size = batch_rows(study)

    def batches() -> Batches:
        import pyarrow as pa

        for start in range(0, rows, size):
            stop = min(start + size, rows)
            arrays = [_array(chosen[column.name], start, stop, column) for column in (*study.features, study.target)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(chosen))

    return batches, rows


def _sliceable(values: Any, name: str, label: str) -> Any:
    import pyarrow as pa

    if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "iloc"):  # a polars Series, or Arrow's own
        return pa.chunked_array(values)
    known = isinstance(values, Sequence | np.ndarray | pa.Array) or hasattr(values, "iloc")
    if not known or isinstance(values, str | bytes) or getattr(values, "ndim", 1) != 1:
        raise DataError(f"{label}: column {name!r} is not an array of one dimension; give an array, list or series.")
    return values


def _array(values: Any, start: int, stop: int, column: Column) -> "pa.Array":
    """One slice of one column as an Arrow array, with no copy for plain numbers."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.slice(start, stop - start).chunks)
    if isinstance(values, pa.Array):
        return values.slice(start, stop - start)
    part = values.iloc[start:stop] if hasattr(values, "iloc") else values[start:stop]
    if isinstance(getattr(part, "dtype", None), np.dtype) and part.dtype.kind in "biuf":
        return pa.array(part if np.ma.isMaskedArray(part) else np.asarray(part))
    try:
        return pa.array(part, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        pass  # raised below and not here, since Arrow's text quotes a value and would stay attached
    if column.kind != "categorical":
        for row, value in enumerate(part, start=start + 1):
            if isinstance(value, str):
                raise DataError(
                    f"Column {column.name!r}, row {row}: text, where the study says {column.kind}. Correct the value."
                )
    raise DataError(
        f"Column {column.name!r}, between rows {start + 1} and {stop}: the values are of different kinds, or of one "
        "that can't be read. Make the column all numbers, all true and false, or all text."
    )
