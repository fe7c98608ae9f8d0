"""The draw of a holder's sums for any noise, entry by entry: Laplace noise given its mixing variances, exact entries.

With s ~ N(a, P) and s + e observed, e ~ N(0, D): draw s0 and e0 from their laws; then
s0 + P (P + D)^{-1} (observed - s0 - e0) is a draw of s given the observation. D may be zero anywhere, and P itself is
never factorised.
"""

from typing import NamedTuple

import numpy as np

from noisewise.analyst.methods.gibbs.linear import backward, compiled, draw_symmetric, factorise_large, forward
from noisewise.analyst.methods.gibbs.moments import Indices
from noisewise.gram import Floats

# Of each variance; makes the factorisation sure where exact entries are almost collinear (a tiny v).
RIDGE = 1e-12


class Dense(NamedTuple):
    """Buffers for one holder: all of the order of the sums but ``G`` and ``swap`` (q, q) and ``h`` (q,)."""

    P: Floats
    L: Floats
    scale: Floats
    gap: Floats
    G: Floats
    swap: Floats
    h: Floats


@compiled
def prepare(work: Dense, variances: Floats) -> bool:
    """Factorises P + D, scaled to a unit diagonal; False if even that fails."""
    size = variances.size
    for e in range(size):
        work.scale[e] = 1.0 / np.sqrt(work.P[e, e] + variances[e])
    for e in range(size):
        for f in range(e):
            work.L[e, f] = work.P[e, f] * work.scale[e] * work.scale[f]
        work.L[e, e] = 1.0 + RIDGE
    return factorise_large(work.L)


@compiled
def normal_start(
    rng: np.random.Generator, m: Floats, L: Floats, n: float, constant: int, work: Dense, B: Floats
) -> None:
    """B ~ N(its mean, P) for normal rows: n (Omega + mm') + sqrt(n) (L G L' + mh' + hm'), h ~ N(0, Omega)."""
    k, q, root = m.size, L.shape[0], np.sqrt(n)
    draw_symmetric(rng, work.G)
    np.dot(L, work.G, work.swap)
    np.dot(work.swap, L.T, work.G)
    for i in range(q):
        work.h[i] = rng.standard_normal()
    for i in range(q - 1, -1, -1):
        total = 0.0
        for j in range(i + 1):
            total += L[i, j] * work.h[j]
        work.h[i] = total
    for a in range(k):
        i = a - constant
        for b in range(a + 1):
            j = b - constant
            value = n * m[a] * m[b]
            if i >= 0:
                value += root * work.h[i] * m[b]
            if j >= 0:
                value += root * work.h[j] * m[a]
                for c in range(j + 1):
                    value += n * L[i, c] * L[j, c]
                value += root * work.G[i, j]
            B[a, b] = B[b, a] = value


@compiled
def moments_start(
    rng: np.random.Generator,
    theta: Floats,
    v: float,
    eta: Floats,
    root_eta: Floats,
    root_xi: Floats,
    n: float,
    B: Floats,
) -> None:
    """B ~ N(its mean, P) from moments of b: S by a root of xi, z = S theta + c, u = theta'S theta + 2 theta'c + ..."""
    p, root = theta.size, np.sqrt(n)
    g = rng.standard_normal(root_xi.shape[1])
    pairs = root_xi @ g
    e = 0
    for i in range(p):
        for j in range(i, p):
            B[i, j] = B[j, i] = n * eta[i, j] + root * pairs[e]
            e += 1
    c = np.sqrt(n * v) * (root_eta @ rng.standard_normal(root_eta.shape[1]))
    u = n * v + np.sqrt(2.0 * n) * v * rng.standard_normal()
    for i in range(p):
        line = 0.0
        for j in range(p):
            line += B[i, j] * theta[j]
        B[i, p] = B[p, i] = line + c[i]
        u += theta[i] * (line + 2.0 * c[i])
    B[p, p] = u


@compiled
def correct(
    rng: np.random.Generator, published: Floats, variances: Floats, entries: Indices, work: Dense, B: Floats
) -> None:
    """B, a draw of N(its mean, P), becomes one that knows the published sums."""
    size = variances.size
    for e in range(size):
        a, b = entries[e]
        noise = np.sqrt(variances[e]) * rng.standard_normal()
        work.gap[e] = (published[a, b] - B[a, b] - noise) * work.scale[e]
    forward(work.L, work.gap)
    backward(work.L, work.gap)
    for e in range(size):
        work.gap[e] *= work.scale[e]
    for e in range(size):
        a, b = entries[e]
        if variances[e] == 0.0:
            B[a, b] = B[b, a] = published[a, b]
            continue
        total = 0.0
        for f in range(size):
            total += work.P[e, f] * work.gap[f]
        B[a, b] += total
        B[b, a] = B[a, b]
