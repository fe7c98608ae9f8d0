"""One distribution of covariates: Sigma = L L' with its inverse-Wishart prior, the mean mu with its normal one.

L = K0 R with K0 a fixed anchor and R lower triangular, log R_ii and R_ab functions of one x each: Sigma moves
relative to what the data say of it, and x has unit scale. mu is there where the model has a constant.
"""

import math

import numpy as np

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.layout import item, matrix, number, vector, whole
from noisewise.analyst.methods.exact.special import walled_log
from noisewise.gram import Floats

POWER = 1.0  # Sigma's entries are squares of R, and its prior's wall is exp(-1 / R^2)


@compiled
def _start(data: Floats, block: int) -> int:
    return whole(data, at.P) + 1 + block * whole(data, at.BLOCK_SIZE)


@compiled
def _relative(data: Floats, block: int, x: Floats) -> tuple[Floats, float]:
    """R of this block, and the log Jacobian of its diagonal's logarithms."""
    d, i = whole(data, at.D), _start(data, block)
    scale = matrix(data, at.SCALE_R, block, d)
    R, jacobian = np.zeros((d, d)), 0.0
    for a in range(d):
        for b in range(a):
            R[a, b] = scale[a, b] * x[i]
            i += 1
        log_R, _, log_slope, _ = walled_log(x[i], scale[a, a], POWER)
        R[a, a] = math.exp(log_R)
        jacobian += log_slope
        i += 1
    return R, jacobian


@compiled
def _whitened(data: Floats, L: Floats) -> Floats:
    """X = L^{-1} C with C C' = Lambda, so that tr(Lambda Sigma^{-1}) = |X|^2."""
    d = whole(data, at.D)
    X = matrix(data, at.FACTOR_LAMBDA, 0, d).copy()
    for a in range(d):
        for b in range(a):
            for c in range(b + 1):
                X[a, c] -= L[a, b] * X[b, c]
        for c in range(a + 1):
            X[a, c] /= L[a, a]
    return X


@compiled
def covariate_block(data: Floats, block: int, x: Floats, L: Floats, mu: Floats) -> float:
    """Fills L and mu; returns their log prior, Jacobians included."""
    d, kappa = whole(data, at.D), number(data, at.KAPPA)
    K0 = matrix(data, at.K0, block, d)
    R, log_p = _relative(data, block, x)
    for a in range(d):
        for b in range(a + 1):
            inner = 0.0
            for c in range(b, a + 1):
                inner += K0[a, c] * R[c, b]
            L[a, b] = inner
        # density of Sigma, of L given Sigma, of log R_aa given L_aa: |Sigma|^{-(kappa+d+1)/2} prod L_aa^{d-a} R_aa
        log_p -= (kappa + a) * math.log(R[a, a])
    X = _whitened(data, L)
    for a in range(d):
        for c in range(a + 1):
            log_p -= 0.5 * X[a, c] * X[a, c]
    if whole(data, at.FIRST) == 1:
        i = _start(data, block) + d * (d + 1) // 2
        mu0, factor = vector(data, at.MU0, block, d), matrix(data, at.FACTOR_MU, block, d)
        for a in range(d):
            mu[a] = mu0[a]
            for b in range(a + 1):
                mu[a] += factor[a, b] * x[i + b]
            off = mu[a] - item(data, at.MEAN_MU, a)
            log_p -= 0.5 * item(data, at.PRECISION_MU, a) * off * off
    return log_p


@compiled
def covariate_block_back(
    data: Floats, block: int, x: Floats, L: Floats, mu: Floats, Lbar: Floats, mubar: Floats, grad: Floats
) -> None:
    """The chain rule through ``covariate_block``; Lbar and mubar come in with what the holders added."""
    d, i, kappa = whole(data, at.D), _start(data, block), number(data, at.KAPPA)
    K0, scale = matrix(data, at.K0, block, d), matrix(data, at.SCALE_R, block, d)
    R, _ = _relative(data, block, x)
    _wishart_back(_whitened(data, L), L, Lbar)
    for c in range(d):
        for b in range(c + 1):
            Rbar = 0.0
            for a in range(c, d):
                Rbar += K0[a, c] * Lbar[a, b]
            if b == c:
                _, slope, _, bend = walled_log(x[i], scale[c, c], POWER)
                grad[i] += slope * (Rbar * R[c, c] - (kappa + c)) + bend
            else:
                grad[i] += scale[c, b] * Rbar
            i += 1
    if whole(data, at.FIRST) == 1:
        factor = matrix(data, at.FACTOR_MU, block, d)
        for a in range(d):
            bar = mubar[a] - item(data, at.PRECISION_MU, a) * (mu[a] - item(data, at.MEAN_MU, a))
            for b in range(a + 1):
                grad[i + b] += factor[a, b] * bar


@compiled
def _wishart_back(X: Floats, L: Floats, Lbar: Floats) -> None:
    """Lbar gains the gradient of -|X|^2 / 2, which is the lower triangle of L^{-T} X X'."""
    d = L.shape[0]
    Y = np.zeros((d, d))
    for a in range(d):
        for b in range(d):
            for c in range(min(a, b) + 1):
                Y[a, b] += X[a, c] * X[b, c]
    for a in range(d - 1, -1, -1):
        for b in range(a + 1, d):
            for c in range(d):
                Y[a, c] -= L[b, a] * Y[b, c]
        for c in range(d):
            Y[a, c] /= L[a, a]
    for a in range(d):
        for b in range(a + 1):
            Lbar[a, b] += Y[a, b]
