"""Small linear algebra and random draws of the Gibbs samplers, compiled; nothing here allocates."""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit

from noisewise.gram import Floats

Function = TypeVar("Function", bound=Callable[..., object])

# No fastmath: a seed has to give the same draws in every process (docs/decisions/0005).


def compiled(function: Function) -> Function:
    """Part of the machine code that ``chain`` keeps on disk as a whole."""
    return cast(Function, njit(nogil=True, error_model="numpy")(function))


def inner(function: Function) -> Function:
    """The same for what is called in one place only: it is compiled there, once and not twice."""
    return cast(Function, njit(nogil=True, error_model="numpy", inline="always")(function))


@compiled
def factorise(A: Floats) -> bool:
    """Cholesky's factor in the lower triangle of A, in place; False, with A spoilt, if A is not positive definite."""
    for i in range(A.shape[0]):
        for j in range(i):
            x = 0.0
            for c in range(j):
                x += A[i, c] * A[j, c]
            A[i, j] = (A[i, j] - x) / A[j, j]
        x = 0.0
        for c in range(i):
            x += A[i, c] * A[i, c]
        x = A[i, i] - x
        if not x > 0.0:
            return False
        A[i, i] = np.sqrt(x)
    return True


@compiled
def factorise_large(A: Floats) -> bool:
    """The same for the many sums of a holder; it uses the upper triangle as well, which mirrors the lower one after it.

    Row j of the upper factor is row j of A less multiples of the rows above it. That goes element by element, with
    vector instructions and no sum reordered, where ``factorise`` adds term by term: five times as fast at order 500.
    """
    size = A.shape[0]
    for i in range(size):
        for j in range(i):
            A[j, i] = A[i, j]
    for j in range(size):
        row, fours = A[j, j:], j // 4 * 4
        for c in range(0, fours, 4):
            one, two, three, four = A[c, j:], A[c + 1, j:], A[c + 2, j:], A[c + 3, j:]
            a, b, g, h = one[0], two[0], three[0], four[0]
            for k in range(row.size):
                row[k] -= (a * one[k] + b * two[k]) + (g * three[k] + h * four[k])
        for c in range(fours, j):
            one, a = A[c, j:], A[c, j]
            for k in range(row.size):
                row[k] -= a * one[k]
        if not row[0] > 0.0:
            return False
        root = np.sqrt(row[0])
        row[0] = root
        for k in range(1, row.size):
            row[k] /= root
    for i in range(size):
        for j in range(i):
            A[i, j] = A[j, i]
    return True


@compiled
def forward(L: Floats, x: Floats) -> None:
    """x becomes L^{-1} x."""
    for i in range(x.size):
        total = 0.0
        for c in range(i):
            total += L[i, c] * x[c]
        x[i] = (x[i] - total) / L[i, i]


@compiled
def backward(L: Floats, x: Floats) -> None:
    """x becomes L^{-T} x."""
    for i in range(x.size - 1, -1, -1):
        x[i] /= L[i, i]
        for c in range(i):
            x[c] -= L[i, c] * x[i]


@compiled
def whiten(L: Floats, A: Floats) -> None:
    """A, symmetric, becomes L^{-1} A L^{-T}."""
    for i in range(A.shape[0]):
        forward(L, A[i])
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j], A[j, i] = A[j, i], A[i, j]
    for i in range(A.shape[0]):
        forward(L, A[i])


@compiled
def draw_normal(rng: np.random.Generator, L: Floats, pull: Floats) -> None:
    """pull becomes a draw of N(P^{-1} pull, P^{-1}), where P = LL'."""
    forward(L, pull)
    for i in range(pull.size):
        pull[i] += rng.standard_normal()
    backward(L, pull)


@compiled
def draw_symmetric(rng: np.random.Generator, G: Floats) -> None:
    """A symmetric matrix of independent normals, variance 2 on the diagonal and 1 off it.

    Its law does not change under rotation, and L G L' has the covariance of gg' for g ~ N(0, LL').
    """
    for i in range(G.shape[0]):
        for j in range(i):
            G[i, j] = G[j, i] = rng.standard_normal()
        G[i, i] = np.sqrt(2.0) * rng.standard_normal()


@compiled
def draw_inverse_wishart(rng: np.random.Generator, L: Floats, freedom: float, F: Floats, T: Floats) -> None:
    """F becomes a draw of IW(LL', freedom), by F = L T^{-T} and FF', with T Bartlett's factor."""
    d = L.shape[0]
    for i in range(d):
        T[i, i] = np.sqrt(2.0 * rng.standard_gamma(0.5 * (freedom - i)))
        for j in range(i):
            T[i, j] = rng.standard_normal()
    for r in range(d):  # a row of L T^{-T} is T^{-1} times that row of L
        for i in range(d):
            F[r, i] = L[r, i] if i <= r else 0.0
        forward(T, F[r])
    square(F, T)
    F[:] = T


@compiled
def square(F: Floats, out: Floats) -> None:
    """out = FF'."""
    for i in range(F.shape[0]):
        for j in range(i + 1):
            total = 0.0
            for c in range(F.shape[1]):
                total += F[i, c] * F[j, c]
            out[i, j] = out[j, i] = total


@compiled
def draw_mixing_variance(rng: np.random.Generator, scale: float, residual: float) -> float:
    """The variance behind one Laplace residual, given it: 1 / inverse-Gaussian(1 / (b |r|), 1 / b^2) (002, Alg. 1).

    Michael, Schucany & Haas' draw written for the reciprocal, so that a residual of 0 needs no care.
    """
    h = scale * abs(residual)
    g = rng.standard_normal()
    half = 0.5 * (g * scale) ** 2
    large = h + half + np.sqrt(half * (2.0 * h + half))
    if large == 0.0:
        return 0.0
    return float(large if rng.random() * (h + large) <= large else h * h / large)
