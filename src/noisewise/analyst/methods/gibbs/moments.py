"""Mean and covariance of the sums that a holder releases, in closed form (002, Eqs. 2 and 3, corrected).

A row is w = (1, x, y) or, with no constant in the model, (x, y). The sums are the unique entries of B = sum of ww',
row by row in its upper triangle; n itself, B[0, 0] beside a constant, is public and is no part of them.

Normal covariates make w normal with mean m and covariance Omega (zero in the constant's row); Isserlis' theorem gives

    Cov(w_a w_b, w_c w_e) = Omega_ac Omega_be + Omega_ae Omega_bc
                            + m_a m_c Omega_be + m_a m_e Omega_bc + m_b m_c Omega_ae + m_b m_e Omega_ac.

Other covariates need E[bb'] = eta and Cov(b_i b_j, b_k b_l) = xi, b = (1, x) or x. With y = theta'b + e the sums are
linear in bb' but for e: by = bb'theta + be and y^2 = theta'bb'theta + 2 theta'b e + e^2. That gives 002's Eq. 3.
"""

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.methods.gibbs.linear import compiled
from noisewise.gram import Floats

Indices = NDArray[np.int64]


def unique_entries(order: int, constant: bool) -> Indices:
    """(row, column) of every sum in B of that order."""
    rows, columns = np.triu_indices(order)
    return np.ascontiguousarray(np.stack([rows, columns], axis=1)[int(constant) :]).astype(np.int64)


@compiled
def joint_normal(
    theta: Floats, v: float, mu: Floats, factor: Floats, constant: int, m: Floats, L: Floats, Omega: Floats
) -> None:
    """Fills m (k,), and of (x, y) the factor L and the covariance Omega = LL', from x ~ N(mu, factor factor')."""
    d = mu.size
    if constant == 1:
        m[0] = 1.0
    m[constant + d] = theta[0] if constant == 1 else 0.0
    for i in range(d):
        m[constant + i] = mu[i]
        m[constant + d] += theta[constant + i] * mu[i]
    L[:] = 0.0
    for i in range(d):
        for j in range(i + 1):
            L[i, j] = factor[i, j]
            L[d, j] += theta[constant + i] * factor[i, j]
    L[d, d] = np.sqrt(v)
    for i in range(d + 1):
        for j in range(i + 1):
            total = 0.0
            for c in range(j + 1):
                total += L[i, c] * L[j, c]
            Omega[i, j] = Omega[j, i] = total


@compiled
def normal_covariance(m: Floats, Omega: Floats, constant: int, entries: Indices, n: float, out: Floats) -> None:
    """out = n Cov of the sums' terms for w ~ N(m, Omega), by Isserlis; Omega is of (x, y)."""
    k = m.size
    padded, moment = np.zeros((k, k)), np.empty((k, k))
    for a in range(k):
        for b in range(k):
            if a >= constant and b >= constant:
                padded[a, b] = Omega[a - constant, b - constant]
            moment[a, b] = padded[a, b] + m[a] * m[b]
    for e in range(entries.shape[0]):
        a, b = entries[e]
        for f in range(e + 1):
            c, g = entries[f]
            value = padded[a, c] * moment[b, g] + padded[a, g] * moment[b, c]
            value += m[a] * (m[c] * padded[b, g] + m[g] * padded[b, c])
            out[e, f] = out[f, e] = n * value


@compiled
def pair(i: int, j: int, p: int) -> int:
    """Where (i, j) stands in the upper triangle of a matrix of order p."""
    if i > j:
        i, j = j, i
    return i * p - i * (i - 1) // 2 + j - i


@compiled
def _combine(theta: Floats, rows: Floats, out: Floats) -> None:
    """From values of b_i b_j, row by row, those of every b_i b_j, b_i theta'b and (theta'b)^2, in the order of B."""
    p = theta.size
    out[:] = 0.0
    last = pair(p, p, p + 1)
    for i in range(p):
        y = pair(i, p, p + 1)
        for j in range(p):
            here = pair(i, j, p)
            if i <= j:
                out[pair(i, j, p + 1)] = rows[here]
            out[y] += theta[j] * rows[here]
        out[last] += theta[i] * out[y]


@compiled
def regression_covariance(
    theta: Floats, v: float, eta: Floats, xi: Floats, constant: int, n: float, out: Floats
) -> None:
    """out = n Cov of the sums' terms from moments of b: eta (p, p), xi over pairs i <= j of b."""
    p = theta.size
    size = (p + 1) * (p + 2) // 2
    half, full = np.empty((size, xi.shape[0])), np.empty((size, size))
    _combine(theta, xi, half)
    _combine(theta, np.ascontiguousarray(half.T), full)
    last = size - 1
    for i in range(p):
        a, line = pair(i, p, p + 1), 0.0
        for j in range(p):
            full[a, pair(j, p, p + 1)] += v * eta[i, j]
            line += eta[i, j] * theta[j]
        full[a, last] += 2.0 * v * line
        full[last, a] += 2.0 * v * line
        full[last, last] += 4.0 * v * theta[i] * line
    full[last, last] += 2.0 * v * v
    out[:] = n * full[constant:, constant:]


def second_moments(mean: Floats, covariance: Floats, constant: bool) -> Floats:
    """eta = E[bb'], b = (1, x) or x."""
    b = np.concatenate([np.ones(int(constant)), mean])
    eta = np.outer(b, b)
    eta[int(constant) :, int(constant) :] += covariance
    return eta


def pairs_of_tensor(eta: Floats, fourth: Floats) -> Floats:
    """xi over pairs i <= j from the fourth moments E[b_i b_j b_k b_l]."""
    i, j = np.triu_indices(eta.shape[0])
    return np.asarray(fourth[i[:, None], j[:, None], i[None, :], j[None, :]] - np.outer(eta[i, j], eta[i, j]))
