"""What methods with normal covariates believe of them beforehand, from the options that they have in common.

    Sigma ~ inverse-Wishart(Lambda, kappa),   mu ~ N(middle of the bounds, (mean_spread times half their width)^2).

``covariate_scatter`` is Lambda in scaled units: a number for that multiple of the identity, or the matrix itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.analyst.model import Problem
from noisewise.column import is_finite_number
from noisewise.errors import FitError
from noisewise.gram import Floats

Scatter = float | tuple[tuple[float, ...], ...]  # what options hold; a list of lists or an array is taken, too


@dataclass(frozen=True, eq=False)
class NormalCovariates:
    """In scaled units, d features."""

    Lambda: Floats  # (d, d)
    kappa: float
    mean: Floats  # (d,): of mu
    precision: Floats  # (d,): of mu


def taken_scatter(value: Any) -> Scatter:
    """A positive number, or a positive definite matrix as tuples, so that options stay comparable."""
    if is_finite_number(value):
        if value > 0:
            return float(value)
    else:
        try:
            matrix = np.asarray(value, dtype=float)
            if matrix.ndim == 2 and np.allclose(matrix, matrix.T, rtol=1e-10, atol=0.0) and np.isfinite(matrix).all():
                np.linalg.cholesky(matrix)
                return tuple(map(tuple, matrix.tolist()))
        except (TypeError, ValueError, np.linalg.LinAlgError):
            pass
    raise FitError(
        f"covariate_scatter is {value!r}; it is a positive number, or a symmetric positive definite matrix with a row "
        "for each feature (in scaled units)."
    )


def believed_covariates(
    problem: Problem, scatter: Scatter, freedom: float | None, mean_spread: float
) -> NormalCovariates:
    """For the features of this problem."""
    d = len(problem.units.names)
    kappa = d + 2.0 if freedom is None else freedom
    if not is_finite_number(kappa) or not kappa > d - 1:
        raise FitError(
            f"covariate_freedom is {kappa!r}; with {d} features it is a number above {d - 1} (None: {d + 2})."
        )
    if isinstance(scatter, tuple) and len(scatter) != d:
        raise FitError(
            f"covariate_scatter has {len(scatter)} rows, and the releases have {d} features "
            f"({', '.join(problem.units.names)}); give one row and column for each, in this order."
        )
    Lambda = np.array(scatter) if isinstance(scatter, tuple) else scatter * np.eye(d)
    study = problem.study
    lowest = np.array([feature.lowest for feature in study.encoded]) if study else np.full(d, -1.0)
    return NormalCovariates(Lambda, float(kappa), (1.0 + lowest) / 2.0, (2.0 / (1.0 - lowest) / mean_spread) ** 2)
