"""One distribution of covariates: Sigma = L L' with its inverse-Wishart prior, the mean mu with its normal one.

L = K0 R with K0 a fixed anchor and R lower triangular, log R_ii and R_ab functions of one x each: Sigma moves
relative to what the data say of it, and x has unit scale. mu is there where the model has a constant.
"""

import math

import numpy as np

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.layout import item, number, place, whole
from noisewise.analyst.methods.exact.special import walled_log
from noisewise.gram import Floats

POWER = 1.0  # Sigma's entries are squares of R, and its prior's wall is exp(-1 / R^2)


@compiled
def block_start(data: Floats, block: int) -> int:
    """Where its unknowns are in x: those of the covariance row by row, then those of the mean."""
    return whole(data, at.P) + 1 + block * whole(data, at.BLOCK_SIZE)


@compiled
def mean_of_block(data: Floats, block: int, x: Floats, mu: Floats) -> None:
    """Fills mu; with no constant it stays as it came, 0."""
    if whole(data, at.FIRST) == 0:
        return
    d = whole(data, at.D)
    i = block_start(data, block) + d * (d + 1) // 2
    mu0, factor = place(data, at.MU0, block, d), place(data, at.FACTOR_MU, block, d * d)
    for a in range(d):
        mu[block, a] = data[mu0 + a]
        for b in range(a + 1):
            mu[block, a] += data[factor + a * d + b] * x[i + b]


@compiled
def mean_of_block_back(data: Floats, block: int, mubar: Floats, grad: Floats) -> None:
    """The chain rule through ``mean_of_block``."""
    if whole(data, at.FIRST) == 0:
        return
    d = whole(data, at.D)
    i, factor = block_start(data, block) + d * (d + 1) // 2, place(data, at.FACTOR_MU, block, d * d)
    for a in range(d):
        for b in range(a + 1):
            grad[i + b] += data[factor + a * d + b] * mubar[block, a]


@compiled
def covariate_block(
    data: Floats, block: int, x: Floats, L: Floats, log_L: Floats, mu: Floats, R: Floats, X: Floats
) -> float:
    """Fills L, the logarithms of its diagonal and mu (and R, X, which the way back needs); returns the log prior."""
    d, kappa, i = whole(data, at.D), number(data, at.KAPPA), block_start(data, block)
    K0, scale, root = (
        place(data, at.K0, block, d * d),
        place(data, at.SCALE_R, block, d * d),
        place(data, at.FACTOR_LAMBDA, 0, 0),
    )
    log_p = 0.0
    for a in range(d):
        for b in range(a):
            R[block, a, b] = data[scale + a * d + b] * x[i + b]
        log_R, _, log_slope, _ = walled_log(x[i + a], data[scale + a * d + a], POWER)
        R[block, a, a] = math.exp(log_R)
        # density of Sigma, of L given Sigma, of log R_aa given L_aa: |Sigma|^{-(kappa+d+1)/2} prod L_aa^{d-a} R_aa
        log_p += log_slope - (kappa + a) * log_R
        i += a + 1
        for b in range(a + 1):
            L[block, a, b], X[block, a, b] = 0.0, data[root + a * d + b]
        for c in range(a + 1):
            for b in range(c + 1):
                L[block, a, b] += data[K0 + a * d + c] * R[block, c, b]
        log_L[block, a] = math.log(L[block, a, a])
        # X = L^{-1} C with C C' = Lambda, so that tr(Lambda Sigma^{-1}) = |X|^2
        for c in range(a):
            for b in range(c + 1):
                X[block, a, b] -= L[block, a, c] * X[block, c, b]
        for b in range(a + 1):
            X[block, a, b] /= L[block, a, a]
            log_p -= 0.5 * X[block, a, b] * X[block, a, b]
    mean_of_block(data, block, x, mu)
    if whole(data, at.FIRST) == 1:
        for a in range(d):
            off = mu[block, a] - item(data, at.MEAN_MU, a)
            log_p -= 0.5 * item(data, at.PRECISION_MU, a) * off * off
    return log_p


@compiled
def covariate_block_back(
    data: Floats,
    block: int,
    x: Floats,
    L: Floats,
    mu: Floats,
    R: Floats,
    X: Floats,
    Lbar: Floats,
    mubar: Floats,
    grad: Floats,
) -> None:
    """The chain rule through ``covariate_block``; Lbar, mubar come in with what the holders added."""
    d, i, kappa = whole(data, at.D), block_start(data, block), number(data, at.KAPPA)
    K0, scale = place(data, at.K0, block, d * d), place(data, at.SCALE_R, block, d * d)
    _wishart_back(block, X, L, Lbar)
    for c in range(d):
        for b in range(c + 1):
            Rbar = 0.0
            for a in range(c, d):
                Rbar += data[K0 + a * d + c] * Lbar[block, a, b]
            if b == c:
                _, slope, _, bend = walled_log(x[i], data[scale + c * d + c], POWER)
                grad[i] += slope * (Rbar * R[block, c, c] - (kappa + c)) + bend
            else:
                grad[i] += data[scale + c * d + b] * Rbar
            i += 1
    if whole(data, at.FIRST) == 1:
        for a in range(d):
            mubar[block, a] -= item(data, at.PRECISION_MU, a) * (mu[block, a] - item(data, at.MEAN_MU, a))
    mean_of_block_back(data, block, mubar, grad)


@compiled
def _wishart_back(block: int, X: Floats, L: Floats, Lbar: Floats) -> None:
    """Lbar gains the gradient of -|X|^2 / 2, which is the lower triangle of L^{-T} X X'."""
    d = L.shape[1]
    Y = np.empty((d, d))
    for a in range(d):
        for b in range(a + 1):
            inner = 0.0
            for c in range(b + 1):
                inner += X[block, a, c] * X[block, b, c]
            Y[a, b] = inner
    for a in range(d - 1, -1, -1):
        for b in range(a + 1, d):
            for c in range(a + 1):
                Y[a, c] -= L[block, b, a] * Y[b, c]
        for c in range(a + 1):
            Y[a, c] /= L[block, a, a]
            Lbar[block, a, c] += Y[a, c]
