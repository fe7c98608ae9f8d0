"""Lower triangular algebra for the chain of normal-x, in loops that allocate nothing.

Matrices are kept as lower triangular factors: a Wishart proposal multiplies a factor by another, so the factor of the
proposed matrix costs no factorisation.
"""

import math
from typing import Any

import numpy as np
from numba import njit

LARGEST_ALPHA = 1e12  # beyond it rounding blurs the acceptance ratio


def compiled(function: Any) -> Any:
    """Part of the machine code that ``chain`` keeps on disk as a whole; no fastmath (docs/decisions/0005)."""
    return njit(nogil=True, error_model="numpy")(function)


def inlined(function: Any) -> Any:
    """For what takes the whole state: handing on a few hundred numbers costs more than many a step."""
    return njit(nogil=True, inline="always")(function)


@compiled
def copy(source, out):
    """A plain loop: an assignment to a slice makes the compiler write out every case of overlap and broadcasting."""
    for a in range(source.shape[0]):
        for b in range(source.shape[1]):
            out[a, b] = source[a, b]


@compiled
def copy_vector(source, out):
    for a in range(source.size):
        out[a] = source[a]


@compiled
def add(M, m, sign, P, h):
    """P += sign M (lower triangles), h += sign m."""
    for a in range(m.size):
        h[a] += sign * m[a]
        for b in range(a + 1):
            P[a, b] += sign * M[a, b]


@compiled
def cholesky(A):
    """In place, lower triangle; returns half the log determinant, -inf where A is not positive definite."""
    half, product = 0.0, 1.0  # a logarithm of a product is cheaper than a sum of them; taken before it overflows
    for a in range(A.shape[0]):
        for b in range(a):
            total = A[a, b]
            for c in range(b):
                total -= A[a, c] * A[b, c]
            A[a, b] = total / A[b, b]
        total = A[a, a]
        for c in range(a):
            total -= A[a, c] * A[a, c]
        if not total > 0.0:
            return -np.inf
        A[a, a] = math.sqrt(total)
        product *= A[a, a]
        if product > 1e100 or product < 1e-100:
            half += math.log(product)
            product = 1.0
    return half + math.log(product)


@compiled
def half_log_det(L):
    """Of L L'."""
    half = 0.0
    for a in range(L.shape[0]):
        half += math.log(L[a, a])
    return half


@compiled
def forward(L, x):
    """x becomes L^{-1} x; returns its squared length."""
    square = 0.0
    for a in range(x.size):
        for b in range(a):
            x[a] -= L[a, b] * x[b]
        x[a] /= L[a, a]
        square += x[a] * x[a]
    return square


@compiled
def backward(L, x):
    """x becomes L^{-T} x."""
    for a in range(x.size - 1, -1, -1):
        for b in range(a + 1, x.size):
            x[a] -= L[b, a] * x[b]
        x[a] /= L[a, a]


@compiled
def relative(L, K, Y):
    """Y = L^{-1} K, all lower triangular; returns its squared length, tr(Sigma^{-1} C)."""
    square = 0.0
    for a in range(L.shape[0]):
        for c in range(a + 1):
            total = K[a, c]
            for b in range(c, a):
                total -= L[a, b] * Y[b, c]
            Y[a, c] = total / L[a, a]
            square += Y[a, c] * Y[a, c]
    return square


@compiled
def times(L, B, out):
    """out = L B, all lower triangular."""
    for a in range(L.shape[0]):
        for b in range(a + 1):
            total = 0.0
            for c in range(b, a + 1):
                total += L[a, c] * B[c, b]
            out[a, b] = total


@compiled
def bartlett(B, freedom, slope, rng):
    """Standard normals below the diagonal; squares of its entries chi-square with freedom + slope a."""
    for a in range(B.shape[0]):
        for b in range(a):
            B[a, b] = rng.standard_normal()
        B[a, a] = math.sqrt(2.0 * rng.standard_gamma(0.5 * (freedom + slope * a)))


@compiled
def propose(K, log_step, B, Y, out, rng):
    """out out' ~ W(K K' / alpha, alpha); returns the log ratio of proposal densities and of determinants (000, A.3)."""
    d = K.shape[0]
    alpha = min(max(2.0 * math.exp(-2.0 * log_step), d + 1.0), LARGEST_ALPHA)
    bartlett(B, alpha, -1.0, rng)
    product, trace, back, shrink = 1.0, 0.0, 0.0, 1.0 / math.sqrt(alpha)
    for a in range(d):
        for b in range(a + 1):
            B[a, b] *= shrink
            trace += B[a, b] * B[a, b]
        product *= B[a, a]  # each is near 1, and 50 of them can't underflow
    log_det = 2.0 * math.log(product)
    for c in range(d):  # Y = B^{-1}
        for a in range(c, d):
            total = 1.0 if a == c else 0.0
            for b in range(c, a):
                total -= B[a, b] * Y[b, c]
            Y[a, c] = total / B[a, a]
            back += Y[a, c] * Y[a, c]
    times(K, B, out)
    return 0.5 * alpha * (trace - back) - (alpha - 0.5 * (d + 1)) * log_det, log_det
