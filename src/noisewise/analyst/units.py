"""The public affine maps between scaled units, in which all modelling is done, and the user's units.

Scaled:  y' = (y - centre_y) / half_y,  x'_i = (x_i - centre_i) / half_i,  y' = theta_0 + sum theta_i x'_i + noise.
User's:  coef_i = theta_i half_y / half_i,  intercept = centre_y + half_y theta_0 - sum coef_i centre_i,
         sigma = half_y sigma'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from noisewise.errors import DataError
from noisewise.gram import Floats
from noisewise.study import Study


@dataclass(frozen=True)
class Units:
    """How theta (the constant first, where the model has one) becomes (intercept, coef) in the user's units."""

    names: tuple[str, ...]
    centres: tuple[float, ...]
    half_widths: tuple[float, ...]
    target: str
    target_centre: float
    target_half_width: float
    constant: bool
    average_rows: int = 1  # a row of the model is the average of so many, and its residual variance that part of v

    @classmethod
    def of_study(cls, study: Study) -> Self:
        return cls(
            names=tuple(feature.name for feature in study.encoded),
            centres=tuple(feature.centre for feature in study.encoded),
            half_widths=tuple(feature.half_width for feature in study.encoded),
            target=study.target.name,
            target_centre=study.target.centre,
            target_half_width=study.target.half_width,
            constant=study.intercept,
            average_rows=study.average_rows,
        )

    @classmethod
    def scaled(cls, d: int) -> Self:
        """For statistics with no study: the user's units are the scaled ones."""
        return cls(tuple(f"x{i + 1}" for i in range(d)), (0.0,) * d, (1.0,) * d, "y", 0.0, 1.0, constant=False)

    @property
    def order(self) -> int:
        """The length of theta."""
        return len(self.names) + self.constant

    @cached_property
    def linear(self) -> Floats:
        """(1 + d, order): (intercept, coef) = linear @ theta + offset."""
        slopes = self.target_half_width / np.array(self.half_widths)
        rows = np.diag(slopes)
        matrix = np.vstack([-np.array(self.centres) @ rows, rows])
        if self.constant:
            matrix = np.hstack([np.zeros((matrix.shape[0], 1)), matrix])
            matrix[0, 0] = self.target_half_width
        return matrix

    @cached_property
    def offset(self) -> Floats:
        out = np.zeros(1 + len(self.names))
        out[0] = self.target_centre
        return out

    def to_user(self, theta: Floats) -> Floats:
        """(..., order) in scaled units to (..., 1 + d) in the user's."""
        return np.asarray(theta @ self.linear.T + self.offset)

    @cached_property
    def prior_part(self) -> slice:
        """Which of (intercept, coef) a prior speaks of: all with a constant in the model, else coef alone."""
        return slice(0, None) if self.constant else slice(1, None)


def design(study: Study | None, d: int, X: Any) -> Floats:
    """Rows to predict for, as (rows, d) encoded features in the user's units: numbers as they are, indicators 0/1."""
    if study is None:
        return _matrix(X, d)
    columns = _columns(study, X)
    encoded = []
    for column in study.features:
        values = columns[column.name]
        if column.kind == "categorical":
            found = [column.level_of(value) for value in np.asarray(values).tolist()]
            if None in found:
                raise DataError(
                    f"Column {column.name!r}, row {found.index(None) + 1}: not one of its levels {list(column.levels)}."
                )
            levels = np.array(found, dtype=object)
            encoded += [(levels == level).astype(float) for level in column.levels if level != column.baseline]
        else:
            encoded.append(_numbers(column.name, values))
    return np.column_stack(encoded)


def _columns(study: Study, X: Any) -> dict[str, Any]:
    names = [column.name for column in study.features]
    if hasattr(X, "to_pydict"):  # an Arrow table or record batch
        X = {name: X.column(name).to_numpy(zero_copy_only=False) for name in X.schema.names if name in names}
    elif hasattr(X, "columns") and not isinstance(X, Mapping):  # pandas or polars
        X = {name: np.asarray(X[name]) for name in X.columns if name in names}
    if isinstance(X, Mapping):
        if missing := [name for name in names if name not in X]:
            raise DataError(f"Column {missing[0]!r} is missing; the study's features are {', '.join(names)}.")
        return {name: np.atleast_1d(np.asarray(X[name])) for name in names}
    array = np.asarray(X)
    if array.ndim == 1 and array.size == len(names):
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"An array of shape {array.shape} has not one column for each of {', '.join(names)}; "
            f"give rows x {len(names)}."
        )
    return {name: array[:, i] for i, name in enumerate(names)}


def _matrix(X: Any, d: int) -> Floats:
    array = np.atleast_2d(np.asarray(X, dtype=float))
    if array.ndim != 2 or array.shape[1] != d:
        raise DataError(f"An array of shape {array.shape} does not have {d} columns, one for each feature.")
    return array


def _numbers(name: str, values: Any) -> Floats:
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise DataError(f"Column {name!r} holds text where numbers are expected.") from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise DataError(f"Column {name!r}, row {bad[0] + 1}: missing or infinite; a prediction needs every value.")
    return numbers
