"""The squared maximum mean discrepancy of two samples, estimated without bias (Gretton et al., JMLR 2012, eq. 3).

It is 0 in expectation where both samples have one law, and may then be negative. Paper 000 measures with it how far
private posteriors are from the non-private one (its Figure 4).
"""

import numpy as np

from noisewise.errors import DataError
from noisewise.gram import Floats

BLOCK = 1000  # rows of the kernel matrix held at a time


def mmd_squared(x: Floats, y: Floats, bandwidth: float | None = None) -> float:
    """Of draws (m, d) and (n, d), kernel exp(-|a - b|^2 / (2 bandwidth^2)); by default ``median_distance(x, y)``.

    Draws are taken as independent: thin a chain first.
    """
    x, y = _matrix(x, "x"), _matrix(y, "y")
    if x.shape[1] != y.shape[1]:
        raise DataError(
            f"Draws of {x.shape[1]} and of {y.shape[1]} quantities can't be compared; they are (m, d), (n, d)."
        )
    width = median_distance(x, y) if bandwidth is None else float(bandwidth)
    if not 0.0 < width < np.inf:
        raise DataError(f"The bandwidth is {width!r}; it is a positive number (are all draws the same?).")
    m, n = len(x), len(y)
    # the diagonal's ones are taken off: an unbiased estimate compares no draw with itself
    within_x = (_kernel_sum(x, x, width) - m) / (m * (m - 1))
    within_y = (_kernel_sum(y, y, width) - n) / (n * (n - 1))
    return float(within_x + within_y - 2.0 * _kernel_sum(x, y, width) / (m * n))


def median_distance(x: Floats, y: Floats) -> float:
    """The median distance between pooled draws (at most a thousand of them, evenly taken): the usual bandwidth."""
    pooled = np.vstack([_matrix(x, "x"), _matrix(y, "y")])
    some = pooled[:: max(1, len(pooled) // 1000)]
    distances = np.sqrt(_squares(some, some))
    return float(np.median(distances[np.triu_indices(len(some), 1)]))


def _matrix(draws: Floats, name: str) -> Floats:
    out = np.asarray(draws, dtype=float)
    out = out[:, None] if out.ndim == 1 else out
    if out.ndim != 2 or len(out) < 2 or not np.isfinite(out).all():
        raise DataError(f"{name} of shape {out.shape}: it is at least two rows of finite draws, (draws, quantities).")
    return out


def _squares(a: Floats, b: Floats) -> Floats:
    cross = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    return np.asarray(np.maximum(cross, 0.0))


def _kernel_sum(a: Floats, b: Floats, width: float) -> float:
    centre = b.mean(axis=0)  # distances do not change, and no digits are lost where all draws are far from 0
    a, b = a - centre, b - centre
    total = 0.0
    for start in range(0, len(a), BLOCK):
        total += float(np.exp(_squares(a[start : start + BLOCK], b) / (-2.0 * width**2)).sum())
    return total
