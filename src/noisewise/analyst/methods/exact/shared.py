"""What all holders share: theta, v and the covariates' distribution, and the affine map that they are seen through."""

import math

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.covariates import covariate_block, covariate_block_back
from noisewise.analyst.methods.exact.layout import item, number, place, whole
from noisewise.analyst.methods.exact.special import walled_log
from noisewise.analyst.methods.exact.weak import weak_block, weak_block_back
from noisewise.gram import Floats

POWER = 2.0  # v is a square, and its prior's wall is exp(-1 / v)


@compiled
def seen_through(data: Floats, y: Floats) -> Floats:
    """x from what the sampler moves: the shared unknowns centre + rotation y, the others as they are."""
    x, size, rotation = y.copy(), whole(data, at.ROTATED), place(data, at.ROTATION, 0, 0)
    for a in range(size):
        moved = item(data, at.CENTRE, a)
        for b in range(a + 1):
            moved += data[rotation + a * size + b] * y[b]
        x[a] = moved
    return x


@compiled
def seen_through_back(data: Floats, grad: Floats) -> None:
    """The chain rule through ``seen_through``, in place: entry b needs only itself and those after it."""
    size, rotation = whole(data, at.ROTATED), place(data, at.ROTATION, 0, 0)
    for a in range(size):
        bar = grad[a]
        grad[a] = 0.0
        for b in range(a + 1):
            grad[b] += data[rotation + a * size + b] * bar


@compiled
def _regression(data: Floats, x: Floats, mu: Floats, theta: Floats) -> tuple[float, float]:
    """Fills theta; returns log v and its log Jacobian."""
    p, root = whole(data, at.P), place(data, at.FACTOR_THETA, 0, 0)
    for a in range(p):
        theta[a] = item(data, at.THETA0, a)
        for b in range(a + 1):
            theta[a] += data[root + a * p + b] * x[b]
    if number(data, at.CENTRED) > 0.0:
        # what data know is the mean of y, theta_0 + theta'mu: so x_0 stands for that, and moves theta_0 with mu
        for a in range(p - 1):
            theta[0] -= number(data, at.CENTRED) * theta[a + 1] * (mu[0, a] - item(data, at.MU0, a))
    moved, _, jacobian, _ = walled_log(x[p], number(data, at.SCALE_V), POWER)
    return number(data, at.LOG_V0) + moved, jacobian


@compiled
def _prior(data: Floats, theta: Floats, log_v: float, thetabar: Floats) -> tuple[float, float]:
    """The log prior of theta and log v, and its derivative by log v; sets that by theta."""
    p, precision = whole(data, at.P), place(data, at.PRIOR_PRECISION, 0, 0)
    shape, rate = number(data, at.SHAPE), number(data, at.SCALE) * math.exp(-log_v)
    log_p = -shape * log_v - rate
    for a in range(p):
        thetabar[a] = 0.0
        for b in range(p):
            thetabar[a] -= data[precision + a * p + b] * (theta[b] - item(data, at.PRIOR_MEAN, b))
        log_p += 0.5 * thetabar[a] * (theta[a] - item(data, at.PRIOR_MEAN, a))
    return log_p, rate - shape


@compiled
def shared(
    data: Floats,
    x: Floats,
    L: Floats,
    log_L: Floats,
    mu: Floats,
    R: Floats,
    X: Floats,
    theta: Floats,
    thetabar: Floats,
) -> tuple[float, float, float]:
    """Fills all that holders share; returns log v, the log prior of all and its derivative by log v.

    L, R, X are (blocks, d, d); thetabar becomes the derivative of the log prior by theta.
    """
    log_p = 0.0
    for block in range(whole(data, at.BLOCKS)):
        if whole(data, at.WEAK) == 1:
            log_p += weak_block(data, block, x, L, log_L, mu, X)
        else:
            log_p += covariate_block(data, block, x, L, log_L, mu, R, X)
    log_v, jacobian = _regression(data, x, mu, theta)
    log_prior, log_vbar = _prior(data, theta, log_v, thetabar)
    return log_v, log_p + jacobian + log_prior, log_vbar


@compiled
def shared_back(
    data: Floats,
    x: Floats,
    L: Floats,
    mu: Floats,
    R: Floats,
    X: Floats,
    theta: Floats,
    Lbar: Floats,
    mubar: Floats,
    thetabar: Floats,
    log_vbar: float,
    grad: Floats,
) -> None:
    """The chain rule from all that holders share to what the sampler moves: the last step."""
    p, root = whole(data, at.P), place(data, at.FACTOR_THETA, 0, 0)
    if number(data, at.CENTRED) > 0.0:
        bar = number(data, at.CENTRED) * thetabar[0]
        for a in range(p - 1):
            thetabar[a + 1] -= bar * (mu[0, a] - item(data, at.MU0, a))
            mubar[0, a] -= bar * theta[a + 1]
    for block in range(whole(data, at.BLOCKS)):
        if whole(data, at.WEAK) == 1:
            weak_block_back(data, block, L, mu, X, Lbar, mubar, grad)
        else:
            covariate_block_back(data, block, x, L, mu, R, X, Lbar, mubar, grad)
    for a in range(p):
        for b in range(a + 1):
            grad[b] += data[root + a * p + b] * thetabar[a]
    _, slope, _, turn = walled_log(x[p], number(data, at.SCALE_V), POWER)
    grad[p] += slope * log_vbar + turn
    seen_through_back(data, grad)
