"""The compiled chain of normal-x (000, Alg. 1). See ``normal_x`` for the model and the moves."""

import math
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from noisewise.analyst.methods.normal_x.algebra import (
    backward,
    bartlett,
    cholesky,
    copy,
    copy_vector,
    forward,
    inlined,
    propose,
    relative,
)
from noisewise.analyst.methods.normal_x.joint import draw_theta
from noisewise.analyst.methods.normal_x.target import (
    Data,
    State,
    decide,
    distance,
    fit,
    fit_of_contribution,
    scatter_of,
    workspace,
)
from noisewise.gram import Floats


class NormalXChain:
    """One chain for the shared runner; keeps (theta, v, lower triangle of sum_j S_j)."""

    def __init__(self, data: Data, state: State, rng: np.random.Generator, steps: int):
        J, d = state.xbar.shape
        self._arguments = (data, state, workspace(J, d, state.theta.size), rng, steps)
        self._state = state

    def warm_up(self, sweeps: int) -> None:
        _compile()(*self._arguments, sweeps, True, np.empty((0, 0)))

    def draw(self, thin: int, kept: Floats) -> None:
        _compile()(*self._arguments, thin, False, kept)

    def statistics(self) -> dict[str, Floats]:
        state, J = self._state, self._state.xbar.shape[0]
        rate = state.accepted / np.maximum(state.tried, 1.0)
        scatters = slice(0, J)
        out = {
            "acceptance_scatter": rate[scatters],
            "acceptance_entries": rate[2 * J : 3 * J],
            "acceptance_all_scatters": rate[3 * J],
            "acceptance_all_entries": rate[3 * J + 3],
            "acceptance_variance": rate[3 * J + 2],
            "log_alpha": math.log(2.0) - 2.0 * state.log_step[scatters],
        }
        if state.theta.size > state.mu.size:
            out |= {"acceptance_mean": rate[J : 2 * J], "acceptance_all_means": rate[3 * J + 1]}
        return {name: np.array(value) for name, value in out.items()}


@inlined
def _move_holder(data, state, work, j, gain, steps, rng):
    """Scatter and mean of one holder, given Sigma_x, mu, theta and v."""
    d, J, n, first = state.mu.size, state.K.shape[0], data.n[j], data.first
    v = math.exp(state.log_v[0])
    K, xbar, S = state.K[j], state.xbar[j], state.S[j]
    new_K, new_xbar, new_S, e = work.new_K[j], work.new_xbar[j], work.new_S[j], work.e
    S_hat, weight, z_hat, noise = data.S[j], data.weight[j], data.z[j], data.noise[j]
    here = work.fits[0, j]
    trace = relative(state.L, K, work.Y)
    for _ in range(steps):
        ratio, log_det = propose(K, state.log_step[j], work.B, work.Y, new_K, rng)
        scatter_of(n, xbar, new_K, first, new_S)
        there = fit(S_hat, weight, z_hat, noise, new_S, v, state.theta, work.G, e)
        new_trace = relative(state.L, new_K, work.Y)
        ratio += there - here + 0.5 * (data.freedom[j] - d - 1.0) * log_det - 0.5 * (new_trace - trace)
        if decide(state, j, ratio, 0.234 + 0.42 / (d * (d + 1.0)), gain, rng):
            copy(new_K, K)
            copy(new_S, S)
            here, trace = there, new_trace
        if first:
            step = math.exp(state.log_step[J + j]) / math.sqrt(n)
            for a in range(d):
                e[a] = step * rng.standard_normal()
            for a in range(d):
                new_xbar[a] = xbar[a]
                for b in range(a + 1):
                    new_xbar[a] += state.L[a, b] * e[b]
            prior = distance(state, xbar, e[:d]) - distance(state, new_xbar, e[:d])
            scatter_of(n, new_xbar, K, first, new_S)
            there = fit(S_hat, weight, z_hat, noise, new_S, v, state.theta, work.G, e)
            if decide(state, J + j, there - here + 0.5 * n * prior, 0.234 + 0.21 / d, gain, rng):
                copy_vector(new_xbar, xbar)
                copy(new_S, S)
                here = there


@inlined
def _draw_covariates(data, state, work, rng):
    """Sigma_x, then mu, from their full conditionals (000, eq. 11; B.2)."""
    J, d = state.xbar.shape
    G, e = work.new_L, work.e
    copy(data.Lambda, G)
    freedom = data.kappa
    for j in range(J):
        freedom += data.n[j]
        for a in range(d):
            for b in range(a + 1):
                if data.first:
                    G[a, b] += data.n[j] * (state.xbar[j, a] - state.mu[a]) * (state.xbar[j, b] - state.mu[b])
                for c in range(b + 1):
                    G[a, b] += state.K[j, a, c] * state.K[j, b, c]
    cholesky(G)
    # With B'B ~ W(I, freedom), B lower triangular, Sigma = (G B^{-1})(G B^{-1})', so L = G B^{-1} is its factor.
    bartlett(work.B, freedom - d + 1.0, 1.0, rng)
    for a in range(d):
        for b in range(a, -1, -1):
            total = G[a, b]
            for c in range(b + 1, a + 1):
                total -= state.L[a, c] * work.B[c, b]
            state.L[a, b] = total / work.B[b, b]
    if not data.first:
        return
    # mu = mu_mean + L m: its precision in m is L' diag(mu_precision) L + N I
    rows = freedom - data.kappa
    for a in range(d):
        e[a] = 0.0
    for j in range(J):
        for a in range(d):
            work.h[a] = state.xbar[j, a] - data.mu_mean[a]
        forward(state.L, work.h[:d])
        for a in range(d):
            e[a] += data.n[j] * work.h[a]
    for a in range(d):
        for b in range(a + 1):
            total = rows if a == b else 0.0
            for c in range(a, d):
                total += state.L[c, a] * data.mu_precision[c] * state.L[c, b]
            G[a, b] = total
    cholesky(G)
    forward(G, e[:d])
    for a in range(d):
        e[a] += rng.standard_normal()
    backward(G, e[:d])
    for a in range(d):
        state.mu[a] = data.mu_mean[a]
        for b in range(a + 1):
            state.mu[a] += state.L[a, b] * e[b]


@inlined
def _move_variance(data, state, work, slot, gain, rng):
    """Random walk on log v given theta and all S (000, A.4); leaves the holders' likelihoods in ``work.fits[0]``."""
    J = state.K.shape[0]
    old = state.log_v[0]
    new = old + math.exp(state.log_step[3 * J + 2]) * rng.standard_normal()
    ratio = -data.shape * (new - old) - data.scale * (math.exp(-new) - math.exp(-old))
    for j in range(J):
        S_hat, weight, z_hat, noise, S = data.S[j], data.weight[j], data.z[j], data.noise[j], state.S[j]
        work.fits[0, j] = fit_of_contribution(work.c[slot, j], work.M[slot, j], work.m[slot, j], state.theta)
        work.fits[1, j] = fit(S_hat, weight, z_hat, noise, S, math.exp(new), state.theta, work.G, work.e)
        ratio += work.fits[1, j] - work.fits[0, j]
    if decide(state, 3 * J + 2, ratio, 0.44, gain, rng):
        state.log_v[0] = new
        copy_vector(work.fits[1], work.fits[0])


@inlined
def _sweep(data, state, work, rng, steps, gain):
    _draw_covariates(data, state, work, rng)
    slot = draw_theta(data, state, work, gain, steps, rng)
    _move_variance(data, state, work, slot, gain, rng)
    for j in range(state.K.shape[0]):
        _move_holder(data, state, work, j, gain, steps, rng)


@cache
def _compile() -> Any:
    """The one function kept on disk; the compiler's key knows one file, so the digest of all of them goes into it."""
    version = zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))

    @njit(cache=True, nogil=True, error_model="numpy")
    def advance(data, state, work, rng, steps, sweeps, adapt, kept):
        """In warm-up make ``sweeps`` of them; after it that many for each row of ``kept``."""
        p = state.theta.size
        for row in range(1 if adapt else kept.shape[0]):
            for _ in range(sweeps):
                state.sweeps[0] += adapt
                gain = state.sweeps[0] ** -0.6 if adapt else 0.0
                _sweep(data, state, work, rng, steps, gain)
            if adapt:
                continue
            copy_vector(state.theta, kept[row, :p])
            kept[row, p] = math.exp(state.log_v[0])
            at = p + 1
            for a in range(p):
                for b in range(a + 1):
                    kept[row, at] = 0.0
                    for j in range(state.S.shape[0]):
                        kept[row, at] += state.S[j, a, b]
                    at += 1
        return version

    return advance
