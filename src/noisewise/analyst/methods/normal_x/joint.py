"""The moves of normal-x with theta integrated out: all holders at once, and each S_j in the shape of the noise.

They are what lets the chain move where noise outweighs the sampling error; ``normal_x`` says why.
"""

import math

import numpy as np

from noisewise.analyst.methods.normal_x.algebra import (
    add,
    backward,
    cholesky,
    compiled,
    copy,
    copy_vector,
    half_log_det,
    inlined,
    propose,
    relative,
    times,
)
from noisewise.analyst.methods.normal_x.target import contribute, decide, distance, scatter_of, theta_evidence


@compiled
def _shift_entries(n, S, sd, step, first, new_S, new_xbar, new_K, rng):
    """Every unknown entry of S plus a normal shift, ``step`` noise sds wide; returns half the log determinant of C'."""
    p, d = S.shape[0], new_K.shape[0]
    for a in range(p):
        for b in range(a + 1):
            shift = step * sd[a, b] * rng.standard_normal() if sd[a, b] > 0.0 else 0.0
            new_S[a, b] = new_S[b, a] = S[a, b] + shift
    for a in range(d):
        new_xbar[a] = new_S[a + 1, 0] / n if first else 0.0
    for a in range(d):
        for b in range(a + 1):
            new_K[a, b] = new_S[a + first, b + first] - n * new_xbar[a] * new_xbar[b]
    return cholesky(new_K)


@inlined
def _evidence(data, S, v, work, slot):
    """log p(all Shat, zhat | all S, v), theta integrated out; keeps each holder's part in the slot."""
    copy(data.precision, work.P)
    copy_vector(data.pull, work.h)
    total = 0.0
    for j in range(S.shape[0]):
        M, m = work.M[slot, j], work.m[slot, j]
        work.c[slot, j] = contribute(data.S[j], data.weight[j], data.z[j], data.noise[j], S[j], v, work.G, work.X, M, m)
        total += work.c[slot, j]
        add(M, m, 1.0, work.P, work.h)
    return total + theta_evidence(work.P, work.h)


@compiled
def _shift_covariance(L, sd, log_step, out, rng):
    """out out' = L L' plus a normal shift of every entry; the log ratio of proposals (0, or -inf) and determinants."""
    step = math.exp(log_step)
    for a in range(L.shape[0]):
        for b in range(a + 1):
            out[a, b] = step * sd[a, b] * rng.standard_normal()
            for c in range(b + 1):
                out[a, b] += L[a, c] * L[b, c]
    half = cholesky(out)
    if half == -np.inf:
        copy(L, out)  # anything definite: the proposal is refused
        return -np.inf, 0.0
    return 0.0, 2.0 * (half - half_log_det(L))


@inlined
def draw_theta(data, state, work, gain, steps, rng):
    """The moves with theta integrated out (unless the paper's alone are wanted), then theta; the slot in use."""
    here = _evidence(data, state.S, math.exp(state.log_v[0]), work, 0)
    slot = 0
    if data.joint:
        slot = _move_all(data, state, work, here, gain, steps, rng)
    copy_vector(work.h, state.theta)
    for a in range(state.theta.size):
        state.theta[a] += rng.standard_normal()
    backward(work.P, state.theta)
    return slot


@inlined
def _move_all(data, state, work, here, gain, steps, rng):
    """Sigma_x with all scatters, mu with all means, then each S_j; returns the slot of the last state."""
    J, d = state.xbar.shape
    v, slot = math.exp(state.log_v[0]), 0
    # a fair coin between two shapes of proposal: relative to Sigma_x, or as the noise is
    move = 3 * J if rng.random() < 0.5 else 3 * J + 3
    if move == 3 * J:
        ratio, log_det = propose(state.L, state.log_step[move], work.B, work.Y, work.new_L, rng)
    else:
        ratio, log_det = _shift_covariance(state.L, data.sd_all, state.log_step[move], work.new_L, rng)
    for j in range(J):
        relative(state.L, state.K[j], work.Y)
        times(work.new_L, work.Y, work.new_K[j])
        distance(state, state.xbar[j], work.e[:d])
        for a in range(d):
            work.new_xbar[j, a] = state.mu[a]
            for b in range(a + 1):
                work.new_xbar[j, a] += work.new_L[a, b] * work.e[b]
        scatter_of(data.n[j], work.new_xbar[j], work.new_K[j], data.first, work.new_S[j])
    there = _evidence(data, work.new_S, v, work, 1) if ratio > -np.inf else 0.0
    new_trace = relative(work.new_L, data.root_Lambda, work.Y)
    ratio -= 0.5 * (data.kappa + d + 1.0) * log_det
    ratio -= 0.5 * (new_trace - relative(state.L, data.root_Lambda, work.Y))
    if decide(state, move, ratio + there - here, 0.234 + 0.42 / (d * (d + 1.0)), gain, rng):
        copy(work.new_L, state.L)
        copy(work.new_xbar, state.xbar)
        for j in range(J):
            copy(work.new_K[j], state.K[j])
            copy(work.new_S[j], state.S[j])
        here, slot = there, 1
    if data.first:
        shift, prior = work.new_m, 0.0
        for a in range(d):
            work.h[a] = math.exp(state.log_step[3 * J + 1]) * rng.standard_normal()
        for a in range(d):
            shift[a] = 0.0
            for b in range(a + 1):
                shift[a] += state.L[a, b] * work.h[b]
            off = state.mu[a] - data.mu_mean[a]
            prior -= 0.5 * data.mu_precision[a] * shift[a] * (2.0 * off + shift[a])
        for j in range(J):
            for a in range(d):
                work.new_xbar[j, a] = state.xbar[j, a] + shift[a]
            scatter_of(data.n[j], work.new_xbar[j], state.K[j], data.first, work.new_S[j])
        there = _evidence(data, work.new_S, v, work, 1 - slot)
        if decide(state, 3 * J + 1, prior + there - here, 0.234 + 0.21 / d, gain, rng):
            for a in range(d):
                state.mu[a] += shift[a]
            copy(work.new_xbar, state.xbar)
            for j in range(J):
                copy(work.new_S[j], state.S[j])
            slot = 1 - slot
    _move_entries(data, state, work, slot, v, gain, steps, rng)
    return slot


@inlined
def _move_entries(data, state, work, slot, v, gain, steps, rng):
    """Each S_j by a random walk in its entries, shaped as the noise is; leaves theta's law in P and h."""
    J, d = state.xbar.shape
    e, L, total_M, total_m, M, m = work.e[:d], state.L, work.total_M, work.total_m, work.new_M, work.new_m
    copy(data.precision, total_M)
    copy_vector(data.pull, total_m)
    for j in range(J):
        add(work.M[slot, j], work.m[slot, j], 1.0, total_M, total_m)
    copy(total_M, work.P)
    copy_vector(total_m, work.h)
    here = theta_evidence(work.P, work.h)
    for _ in range(steps):
        for j in range(J):
            n, K, xbar = data.n[j], state.K[j], state.xbar[j]
            new_K, new_xbar, new_S = work.new_K[j], work.new_xbar[j], work.new_S[j]
            ratio, there, c = -np.inf, 0.0, 0.0
            step = math.exp(state.log_step[2 * J + j])
            half = _shift_entries(n, state.S[j], data.sd[j], step, data.first, new_S, new_xbar, new_K, rng)
            if half > -np.inf:
                c = contribute(data.S[j], data.weight[j], data.z[j], data.noise[j], new_S, v, work.G, work.X, M, m)
                copy(total_M, work.P)
                copy_vector(total_m, work.h)
                add(work.M[slot, j], work.m[slot, j], -1.0, work.P, work.h)
                add(M, m, 1.0, work.P, work.h)
                there = theta_evidence(work.P, work.h)
                ratio = there - here + c - work.c[slot, j] + (data.freedom[j] - d - 1.0) * (half - half_log_det(K))
                ratio += 0.5 * (relative(L, K, work.Y) - relative(L, new_K, work.B))
                if data.first:
                    ratio += 0.5 * n * (distance(state, xbar, e) - distance(state, new_xbar, e))
            if decide(state, 2 * J + j, ratio, 0.234 + 0.42 / (d * (d + 1.0)), gain, rng):
                add(work.M[slot, j], work.m[slot, j], -1.0, total_M, total_m)
                add(M, m, 1.0, total_M, total_m)
                copy(M, work.M[slot, j])
                copy_vector(m, work.m[slot, j])
                work.c[slot, j], here = c, there
                copy(new_K, K)
                copy_vector(new_xbar, xbar)
                copy(new_S, state.S[j])
    copy(total_M, work.P)
    copy_vector(total_m, work.h)
    theta_evidence(work.P, work.h)
