"""The target of normal-x: its constants, what the chain carries, and the likelihood of the noisy entries."""

import math
from typing import NamedTuple

import numpy as np

from noisewise.analyst.methods.normal_x.algebra import cholesky, compiled, forward
from noisewise.gram import Floats


class Data(NamedTuple):
    """Constants. ``first`` is 1 with a constant in the model, d = p - first; ``joint`` 0: the paper's moves alone."""

    first: int
    joint: int
    n: Floats  # (J,)
    freedom: Floats  # (J,): of the centred scatter
    S: Floats  # (J, p, p) as released
    weight: Floats  # (J, p, p): 1 / sd^2, 0 where nothing is unknown
    sd: Floats  # (J, p, p): 0 where nothing is unknown
    sd_all: Floats  # (d, d): of the pooled scatter over the number of rows
    z: Floats  # (J, p)
    noise: Floats  # (J, p): sd_z^2
    precision: Floats  # (p, p): of theta a priori
    pull: Floats  # (p,): precision times prior mean
    shape: float
    scale: float
    Lambda: Floats  # (d, d)
    root_Lambda: Floats  # (d, d): its Cholesky factor
    kappa: float
    mu_mean: Floats  # (d,)
    mu_precision: Floats  # (d,)


class State(NamedTuple):
    """What the chain carries.

    Moves are numbered: scatter, mean and entries of each j; all scatters, all means, v, all entries.
    """

    K: Floats  # (J, d, d): Cholesky factors of the centred scatters
    xbar: Floats  # (J, d)
    S: Floats  # (J, p, p)
    L: Floats  # (d, d): Cholesky factor of Sigma_x
    mu: Floats  # (d,)
    theta: Floats  # (p,)
    log_v: Floats  # (1,)
    log_step: Floats  # (moves,): of the proposals; alpha = 2 / step^2
    accepted: Floats  # (moves,): sums of acceptance probabilities after the warm-up
    tried: Floats  # (moves,): proposals after the warm-up
    sweeps: Floats  # (1,): made in the warm-up


class Work(NamedTuple):
    """Scratch."""

    B: Floats  # (d, d)
    Y: Floats  # (d, d)
    new_L: Floats  # (d, d)
    new_K: Floats  # (J, d, d)
    new_xbar: Floats  # (J, d)
    new_S: Floats  # (J, p, p)
    G: Floats  # (p, p)
    X: Floats  # (p, p + 1)
    e: Floats  # (p,)
    M: Floats  # (2, J, p, p): what each holder adds to theta's precision, of the current and the proposed state
    m: Floats  # (2, J, p): to precision times mean
    c: Floats  # (2, J): to the log evidence
    total_M: Floats  # (p, p)
    total_m: Floats  # (p,)
    new_M: Floats  # (p, p)
    new_m: Floats  # (p,)
    P: Floats  # (p, p)
    h: Floats  # (p,)
    fits: Floats  # (2, J): log likelihoods of the holders, of the current and the proposed state


def workspace(J: int, d: int, p: int) -> Work:
    shapes = ((d, d), (d, d), (d, d), (J, d, d), (J, d), (J, p, p), (p, p), (p, p + 1), (p,))
    collapsed = ((2, J, p, p), (2, J, p), (2, J), (p, p), (p,), (p, p), (p,), (p, p), (p,), (2, J))
    return Work(*(np.zeros(shape) for shape in shapes + collapsed))


@compiled
def scatter_of(n, xbar, K, first, S):
    """Fill S from the mean and the factor of the centred scatter."""
    d = K.shape[0]
    if first:
        S[0, 0] = n
    for a in range(d):
        if first:
            S[0, a + 1] = S[a + 1, 0] = n * xbar[a]
        for b in range(a + 1):
            total = first * n * xbar[a] * xbar[b]
            for c in range(b + 1):
                total += K[a, c] * K[b, c]
            S[a + first, b + first] = S[b + first, a + first] = total


@compiled
def fit(S_hat, weight, z_hat, noise, S, v, theta, G, e):
    """log p(Shat_j | S_j) + log p(zhat_j | S_j, theta, v), z_j integrated out (000, eq. 10 corrected)."""
    p = theta.size
    total = 0.0
    for a in range(p):
        e[a] = z_hat[a]
        for b in range(p):
            e[a] -= S[a, b] * theta[b]
        for b in range(a + 1):
            gap = S_hat[a, b] - S[a, b]
            total -= 0.5 * weight[a, b] * gap * gap
            G[a, b] = v * S[a, b]
        G[a, a] += noise[a]
    half = cholesky(G)
    if half == -np.inf:
        return -np.inf
    return total - half - 0.5 * forward(G, e)


@compiled
def contribute(S_hat, weight, z_hat, noise, S, v, G, X, M, m):
    """What a holder adds to theta's precision (M), to precision times mean (m) and to the log evidence (eq. 12)."""
    p = S.shape[0]
    total = 0.0
    for a in range(p):
        X[a, p] = z_hat[a]
        m[a] = 0.0
        for b in range(p):
            X[a, b] = S[a, b]
        for b in range(a + 1):
            gap = S_hat[a, b] - S[a, b]
            total -= 0.5 * weight[a, b] * gap * gap
            G[a, b] = v * S[a, b]
            M[a, b] = 0.0
        G[a, a] += noise[a]
    half = cholesky(G)
    if half == -np.inf:
        return -np.inf
    for a in range(p):
        for b in range(a):
            for c in range(p + 1):
                X[a, c] -= G[a, b] * X[b, c]
        for c in range(p + 1):
            X[a, c] /= G[a, a]
        for b in range(p):
            m[b] += X[a, b] * X[a, p]
            for c in range(b + 1):
                M[b, c] += X[a, b] * X[a, c]
        total -= 0.5 * X[a, p] * X[a, p]
    return total - half


@compiled
def fit_of_contribution(c, M, m, theta):
    """What ``fit`` gives at theta, from what ``contribute`` found for the same S and v: no factorisation."""
    total = c
    for a in range(theta.size):
        inner = 0.5 * M[a, a] * theta[a]
        for b in range(a):
            inner += M[a, b] * theta[b]
        total += theta[a] * (m[a] - inner)
    return total


@compiled
def theta_evidence(P, h):
    """P becomes its Cholesky factor, h = P^{-1/2} h; returns what integrating theta out adds to the log evidence."""
    half = cholesky(P)
    if half == -np.inf:
        return -np.inf
    return 0.5 * forward(P, h) - half


@compiled
def distance(state, xbar, e):
    for a in range(e.size):
        e[a] = xbar[a] - state.mu[a]
    return forward(state.L, e)


@compiled
def decide(state, move, log_ratio, target, gain, rng):
    """Metropolis and Hastings's coin; in warm-up (gain > 0) the step moves towards its acceptance rate."""
    chance = math.exp(min(log_ratio, 0.0)) if log_ratio > -np.inf else 0.0  # NaN fails the comparison
    if gain > 0.0:
        state.log_step[move] += gain * (chance - target)
    else:
        state.accepted[move] += chance
        state.tried[move] += 1.0
    return rng.random() < chance
