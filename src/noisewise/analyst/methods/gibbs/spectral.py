"""The draw of a holder's sums in O(d^3), where its Gaussian noise is isotropic in svec coordinates (MATH 4).

Let w = (1, x, y), (x, y) ~ N(m, Omega), Omega = E diag(lambda) E', B = [[n, t'], [t, A]]. By the central limit theorem

    t ~ N(n m, n Omega),    A | t ~ normal about n Omega - n mm' + mt' + tm', with the covariance of sqrt(n) L G L',

G symmetric with variances 2 on and 1 off the diagonal, LL' = Omega. In the basis E the entries of A given t are
independent, of variances n lambda_a lambda_b (times 2 on the diagonal). The noise, sd s on diagonal entries and
s / sqrt 2 on all others, is that of (s / sqrt 2) G in every basis, so given t each entry is a problem of its own. With
A summed out, the noisy A informs t through V_ab = n lambda_a lambda_b + s^2 / 2, R = noisy A - n Lambda + n mm':

    precision of t:  diag(1 / (n lambda_c) + 2 / s^2 + sum_a m_a^2 / V_ac) + (m_a m_c / V_ac)
    precision times mean:  m_c / lambda_c + 2 noisy t_c / s^2 + sum_a R_ac m_a / V_ac.

One matrix of order d + 1 is factorised instead of one with an order of d^2 / 2. With no constant t is absent and m = 0.
"""

from typing import NamedTuple

import numpy as np

from noisewise.analyst.methods.gibbs.linear import compiled, draw_normal, draw_symmetric, factorise
from noisewise.gram import Floats


class Basis(NamedTuple):
    """Omega's eigenvalues and eigenvectors (columns), and the mean in that basis, for one distribution of rows."""

    values: Floats
    vectors: Floats
    m: Floats


class Turned(NamedTuple):
    """One holder's noisy sums in the basis, and what t needs."""

    A: Floats  # (q, q)
    t: Floats  # (q,)
    pull: Floats  # (q,)
    L: Floats  # (q, q), the factor of t's precision
    G: Floats  # (q, q)
    swap: Floats  # (q, q)


@compiled
def find_basis(m: Floats, Omega: Floats, constant: int, basis: Basis) -> None:
    values, vectors = np.linalg.eigh(Omega)
    q = values.size
    least = 1e-15 * values[q - 1]
    for a in range(q):
        basis.values[a] = max(values[a], least)
        basis.m[a] = 0.0
        for b in range(q):
            basis.vectors[a, b] = vectors[a, b]
    if constant == 1:
        for a in range(q):
            for b in range(q):
                basis.m[b] += vectors[a, b] * m[a + 1]


@compiled
def turn(basis: Basis, published: Floats, n: float, half: float, constant: int, work: Turned) -> None:
    """What stays the same over tries at one holder: ``half`` is s^2 / 2."""
    q = basis.values.size
    for a in range(q):
        for b in range(q):
            work.G[a, b] = published[a + constant, b + constant]
    np.dot(work.G, basis.vectors, work.swap)
    np.dot(basis.vectors.T, work.swap, work.A)
    if constant == 0:
        return
    for c in range(q):
        noisy = 0.0
        for a in range(q):
            noisy += basis.vectors[a, c] * published[0, a + 1]
        m, value = basis.m[c], basis.values[c]
        work.pull[c] = m / value + noisy / half
        work.L[c, c] = 1.0 / (n * value) + 1.0 / half
    for c in range(q):
        for a in range(q):
            V = n * basis.values[a] * basis.values[c] + half
            both = basis.m[a] * basis.m[c]
            R = work.A[a, c] + n * both - (n * basis.values[a] if a == c else 0.0)
            work.pull[c] += R * basis.m[a] / V
            if a < c:
                work.L[c, a] = both / V
            elif a == c:
                work.L[c, c] += both / V
            work.L[c, c] += basis.m[a] * basis.m[a] / V
    factorise(work.L)


@compiled
def draw_turned(
    rng: np.random.Generator, basis: Basis, n: float, half: float, constant: int, work: Turned, out: Floats
) -> None:
    """One draw of B given everything else, into ``out``; B[0, 0] = n is left alone."""
    q = basis.values.size
    draw_symmetric(rng, work.G)
    if constant == 1:
        for c in range(q):
            work.t[c] = work.pull[c]
        draw_normal(rng, work.L, work.t)
    for a in range(q):
        for b in range(a + 1):
            spread = n * basis.values[a] * basis.values[b]
            gain = spread / (spread + half)
            centre = n * basis.values[a] if a == b else 0.0
            if constant == 1:
                centre += basis.m[a] * work.t[b] + work.t[a] * basis.m[b] - n * basis.m[a] * basis.m[b]
            value = centre + gain * (work.A[a, b] - centre) + np.sqrt(gain * half) * work.G[a, b]
            work.G[a, b] = work.G[b, a] = value
    np.dot(basis.vectors, work.G, work.swap)
    np.dot(work.swap, basis.vectors.T, work.G)
    for a in range(q):
        for b in range(a + 1):
            out[a + constant, b + constant] = out[b + constant, a + constant] = work.G[a, b]
        if constant == 1:
            total = 0.0
            for c in range(q):
                total += basis.vectors[a, c] * work.t[c]
            out[0, a + 1] = out[a + 1, 0] = total
