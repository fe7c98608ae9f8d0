"""What is believed before any release: theta ~ N(mean, covariance), v = sigma^2 ~ inverse-gamma(shape, scale)."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from noisewise.analyst.units import Units
from noisewise.errors import FitError
from noisewise.gram import Floats


class ScaledPrior(NamedTuple):
    """A prior in scaled units, its covariance factorised once."""

    mean: Floats
    covariance: Floats
    precision: Floats
    shape: float
    scale: float


@dataclass(frozen=True, eq=False)
class Prior:
    """A normal prior for the coefficients and an inverse-gamma prior for the residual variance.

    ``mean`` is a number or a vector, ``covariance`` a number (times the identity), a vector (the diagonal) or a
    matrix; with an intercept its entry comes first. ``units="scaled"`` (the default) speaks of columns mapped to
    [-1, 1]; ``units="user"`` of the coefficients as they are reported.
    """

    mean: ArrayLike = 0.0
    covariance: ArrayLike = 1.0
    shape: float = 2.0
    scale: float = 0.1
    units: Literal["scaled", "user"] = "scaled"

    def __post_init__(self) -> None:
        if self.units not in ("scaled", "user"):
            raise FitError(f"Prior units {self.units!r} are not known; they are 'scaled' or 'user'.")
        for name in ("shape", "scale"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
                raise FitError(f"Prior {name} is {value!r}; the inverse-gamma law needs a positive number.")

    def in_scaled_units(self, units: Units) -> ScaledPrior:
        """The prior of theta, checked for its shape."""
        order = units.order
        mean, covariance = self._mean(order, units), self._covariance(order, units)
        scale = float(self.scale) / units.average_rows
        if self.units == "user":
            part = units.prior_part
            linear, offset = units.linear[part], units.offset[part]
            back = np.linalg.inv(linear)  # triangular and tiny, once a fit
            mean = back @ (mean - offset)
            covariance = back @ covariance @ back.T
            scale /= units.target_half_width**2
        factor = np.linalg.cholesky(covariance)
        half = np.linalg.solve(factor, np.eye(order))
        return ScaledPrior(mean, covariance, half.T @ half, float(self.shape), scale)

    def _mean(self, order: int, units: Units) -> Floats:
        mean = np.asarray(self.mean, dtype=float)
        if mean.shape not in ((), (order,)) or not np.isfinite(mean).all():
            raise FitError(
                f"Prior mean of shape {mean.shape}; it is one finite number or {order} of them, for {_words(units)}."
            )
        return np.broadcast_to(mean, (order,)).copy()

    def _covariance(self, order: int, units: Units) -> Floats:
        given = np.asarray(self.covariance, dtype=float)
        if given.shape not in ((), (order,), (order, order)) or not np.isfinite(given).all():
            raise FitError(
                f"Prior covariance of shape {given.shape}; it is one finite number, {order} variances or a "
                f"{order} x {order} matrix, for {_words(units)}."
            )
        full = given if given.ndim == 2 else np.diag(np.broadcast_to(given, (order,)))
        if not np.allclose(full, full.T) or np.linalg.eigvalsh(full).min() <= 0:
            raise FitError("Prior covariance is not symmetric and positive definite; every variance is above 0.")
        return np.asarray(full, dtype=float)


def _words(units: Units) -> str:
    return ", ".join((("intercept",) if units.constant else ()) + units.names)
