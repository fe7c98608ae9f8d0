"""What all holders share: theta, v and the covariates' distribution, and the affine map that they are seen through."""

import math

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.covariates import covariate_block_back
from noisewise.analyst.methods.exact.layout import matrix, number, vector, whole
from noisewise.analyst.methods.exact.special import walled_log
from noisewise.gram import Floats

POWER = 2.0  # v is a square, and its prior's wall is exp(-1 / v)


@compiled
def regression(data: Floats, x: Floats, theta: Floats, thetabar: Floats) -> tuple[float, float, float]:
    """Fills theta; returns log v, the log prior of both and its derivative by log v; thetabar is set likewise."""
    p = whole(data, at.P)
    moved, _, jacobian, _ = walled_log(x[p], number(data, at.SCALE_V), POWER)
    log_v = number(data, at.LOG_V0) + moved
    shape, rate = number(data, at.SHAPE), number(data, at.SCALE) * math.exp(-log_v)
    start, root = vector(data, at.THETA0, 0, p), matrix(data, at.FACTOR_THETA, 0, p)
    mean, precision = vector(data, at.PRIOR_MEAN, 0, p), matrix(data, at.PRIOR_PRECISION, 0, p)
    for a in range(p):
        theta[a] = start[a]
        for b in range(a + 1):
            theta[a] += root[a, b] * x[b]
    log_p = jacobian - shape * log_v - rate
    for a in range(p):
        thetabar[a] = 0.0
        for b in range(p):
            thetabar[a] -= precision[a, b] * (theta[b] - mean[b])
        log_p += 0.5 * thetabar[a] * (theta[a] - mean[a])
    return log_v, log_p, rate - shape


@compiled
def seen_through(data: Floats, y: Floats) -> Floats:
    """x from what the sampler moves: the shared unknowns centre + rotation y, the others as they are."""
    x, size = y.copy(), whole(data, at.ROTATED)
    centre, rotation = vector(data, at.CENTRE, 0, size), matrix(data, at.ROTATION, 0, size)
    for a in range(size):
        x[a] = centre[a]
        for b in range(a + 1):
            x[a] += rotation[a, b] * y[b]
    return x


@compiled
def seen_through_back(data: Floats, grad: Floats) -> None:
    """The chain rule through ``seen_through``, in place: entry b needs only itself and those after it."""
    size = whole(data, at.ROTATED)
    rotation = matrix(data, at.ROTATION, 0, size)
    for a in range(size):
        bar = grad[a]
        grad[a] = 0.0
        for b in range(a + 1):
            grad[b] += rotation[a, b] * bar


@compiled
def shared_back(
    data: Floats,
    x: Floats,
    L: Floats,
    mu: Floats,
    Lbar: Floats,
    mubar: Floats,
    thetabar: Floats,
    log_vbar: float,
    grad: Floats,
) -> None:
    """The chain rule from theta, log v and the covariates' distributions to what the sampler moves: the last step."""
    p = whole(data, at.P)
    for block in range(whole(data, at.BLOCKS)):
        covariate_block_back(data, block, x, L[block], mu[block], Lbar[block], mubar[block], grad)
    root = matrix(data, at.FACTOR_THETA, 0, p)
    for a in range(p):
        for b in range(a + 1):
            grad[b] += root[a, b] * thetabar[a]
    _, slope, _, turn = walled_log(x[p], number(data, at.SCALE_V), POWER)
    grad[p] += slope * log_vbar + turn
    seen_through_back(data, grad)
