"""Columns of a holder's table as NumPy arrays: which ones the study needs, and what their values mean.

Every reader delivers Arrow arrays. Here they become numbers (NaN where a value is missing) or positions among a
categorical column's levels, so that a value means the same whatever file or data frame it came from. Messages name
columns and rows (counted from 1, a header not counted) and never a value.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from noisewise.column import Column
from noisewise.errors import DataError
from noisewise.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

ExtraColumns = Literal["refuse", "ignore"]

# Marks among the positions of levels.
MISSING = -1
_UNKNOWN = -2
_SHOWN = 8


def column_names(study: Study) -> list[str]:
    """The columns that a table must have: the features in order, then the target."""
    return [column.name for column in (*study.features, study.target)]


def check_names(found: Sequence[object], study: Study, extra: ExtraColumns, label: str) -> None:
    """Raise unless the table has each of the study's columns once, and no others unless they are to be ignored."""
    if extra not in get_args(ExtraColumns):
        raise DataError(f"extra_columns {extra!r} is not known; use one of {', '.join(get_args(ExtraColumns))}.")
    needed = column_names(study)
    found = list(found)
    if missing := [name for name in needed if name not in found]:
        # Where nothing fits, the names may be the first row of a file without a header: values, so don't show them.
        names = f" It has {_listed(found)}." if len(missing) < len(needed) else " It has none of the study's columns."
        raise DataError(
            f"{label} lacks {_columns(missing)}, which the study needs.{names} Rename or add the columns; a text file "
            "needs their names in its first line."
        )
    if repeated := [name for name in needed if found.count(name) > 1]:
        raise DataError(f"{label} has {_columns(repeated)} more than once; keep the one that the study means.")
    others = [name for name in found if name not in needed]
    if others and extra == "refuse":
        raise DataError(
            f"{label} has {_columns(others)}, which the study does not know. Remove what is not needed, or say "
            'extra_columns="ignore" to leave such columns unread.'
        )


def numbers(array: "pa.Array", column: Column, first_row: int = 0) -> NDArray[Any]:
    """The values of a numeric or boolean column, NaN where one is missing; no copy where that can be avoided."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_float64(kind) and not array.null_count and column.kind == "numeric":
        plain: NDArray[np.float64] = array.to_numpy()  # nearly every column of nearly every table
        return plain
    if isinstance(kind, pa.BaseExtensionType):
        return numbers(array.storage, column, first_row)
    if pa.types.is_dictionary(kind):
        return numbers(array.dictionary_decode(), column, first_row)
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise DataError(
            f"Column {column.name!r} holds {_in_words(kind)}; the study says it is {column.kind}. Convert it to "
            f"{'true and false' if column.kind == 'boolean' else 'numbers'} first."
        )
    if array.null_count:
        array = array.cast(pa.float64(), safe=False)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    if column.kind == "boolean" and not pa.types.is_boolean(kind):
        _check_truth_values(values, column, first_row)
    return values


def _check_truth_values(values: NDArray[Any], column: Column, first_row: int) -> None:
    wrong = (values != 0) & (values != 1) & (values == values)
    if wrong.any():
        raise DataError(
            f"Column {column.name!r}, row {first_row + int(wrong.argmax()) + 1}: the value is not true, false, 0 or 1, "
            "as the study says. Correct it, or declare the column as numeric with bounds."
        )


def level_positions(array: "pa.Array", column: Column, first_row: int = 0) -> NDArray[np.int64]:
    """Where each value of a categorical column stands among its levels; MISSING where there is none."""
    import pyarrow as pa

    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_null(array.type):
        return np.full(len(array), MISSING, dtype=np.int64)
    if not pa.types.is_dictionary(array.type):
        if pa.types.is_nested(array.type):
            raise DataError(f"Column {column.name!r} holds {_in_words(array.type)}; the study says it is categorical.")
        array = array.dictionary_encode()
    # One more place, at the end, for what has no value.
    table = np.array([*(_position(value, column) for value in array.dictionary.to_pylist()), MISSING], dtype=np.int64)
    indices = array.indices
    if indices.null_count:  # wider first: the extra place may be beyond an 8-bit index
        indices = indices.cast(pa.int64()).fill_null(len(table) - 1)
    positions: NDArray[np.int64] = table[indices.to_numpy(zero_copy_only=False)]
    unknown = positions == _UNKNOWN
    if unknown.any():
        raise DataError(
            f"Column {column.name!r}, row {first_row + int(unknown.argmax()) + 1}: the value is not one of the levels "
            f"that the study declares ({_listed(column.levels)}). Correct the value, or agree on a study that "
            "declares it."
        )
    return positions


def _position(value: object, column: Column) -> int:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    level = column.level_of(value)
    return _UNKNOWN if level is None else column.levels.index(level)


def _in_words(kind: "pa.DataType") -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    return "dates or times" if types.is_temporal(kind) else f"values of type {kind}"


def _columns(names: Sequence[object]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {_listed(names)}"


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
