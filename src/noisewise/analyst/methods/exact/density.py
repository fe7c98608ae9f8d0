"""The log density of ``exact`` and its gradient, written by hand and compiled once for every d and J.

All unknowns are one vector x of numbers of about unit scale; ``layout`` says where each one is and holds the
constants. K_j is a lower triangular factor of S_j, w_j = K_j' theta + sigma t_j, z_j = K_j w_j, u_j = |w_j|^2 + rss_j
(docs/exact.md). Holder by holder: the factor K, then S, z, u against what was released, then the chain rule backwards.
A name with ``bar`` is the derivative of the log density by that quantity; ``grad`` only gains, in any order.
"""

import math

import numpy as np

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.factor import normal_factor, normal_factor_back
from noisewise.analyst.methods.exact.layout import item, number, place, whole
from noisewise.analyst.methods.exact.shared import seen_through, shared, shared_back
from noisewise.analyst.methods.exact.special import bent_log, digamma, noise, softplus
from noisewise.gram import Floats

LOG2 = math.log(2.0)
POWER = 2.0  # rss is a square of latents, roughly


@compiled
def rows(data: Floats, j: int, x: Floats) -> tuple[float, float]:
    """The number of rows of holder j and its derivative by the latent (0 where n is public).

    n = low + sd softplus(centre + x): above what the degrees of freedom need, and linear in x where it is far above.
    """
    sd = abs(item(data, at.SD_N, j))
    if sd == 0.0:
        return item(data, at.N, j), 0.0
    value, slope = softplus(item(data, at.CENTRE_N, j) + x[int(item(data, at.START, j))])
    return item(data, at.LOW_N, j) + sd * value, sd * slope


@compiled
def count(data: Floats, j: int, softness: float, n: float, slope: float, nbar: float, x: Floats, grad: Floats) -> float:
    """Log density of a noisy number of rows, flat a priori above its lower end; and the chain rule through ``rows``."""
    i = int(item(data, at.START, j))
    log_p, bar = noise(item(data, at.NOISY_N, j) - n, item(data, at.SD_N, j), softness)
    # the Jacobian of the softplus, log sigmoid(argument), has the derivative sigmoid(-argument)
    jacobian, step = softplus(-(item(data, at.CENTRE_N, j) + x[i]))
    grad[i] += (nbar + bar) * slope + step
    return log_p - jacobian


@compiled
def released(
    data: Floats,
    j: int,
    softness: float,
    columns: int,
    K: Floats,
    w: Floats,
    rss: float,
    Kbar: Floats,
    wbar: Floats,
) -> tuple[float, float]:
    """Log density of the noisy S, z and u of holder j, and the derivative by rss; fills those by K and w."""
    p, first, log_p = whole(data, at.P), whole(data, at.FIRST), 0.0
    S, sd_S = place(data, at.S, j, p * p), place(data, at.SD_S, j, p * p)
    z, sd_z = place(data, at.Z, j, p), place(data, at.SD_Z, j, p)
    Kbar[:] = 0.0
    wbar[:] = 0.0
    for a in range(p):
        for b in range(first if a == 0 else 0, a + 1):  # with a constant the first entry is n
            inner, last = 0.0, min(b + 1, columns)
            for c in range(last):
                inner += K[a, c] * K[b, c]
            term, slope = noise(data[S + a * p + b] - inner, data[sd_S + a * p + b], softness)
            log_p += term
            for c in range(last):
                Kbar[a, c] += slope * K[b, c]
                Kbar[b, c] += slope * K[a, c]
        inner, last = 0.0, min(a + 1, columns)
        for c in range(last):
            inner += K[a, c] * w[c]
        term, slope = noise(data[z + a] - inner, data[sd_z + a], softness)
        log_p += term
        for c in range(last):
            wbar[c] += slope * K[a, c]
            Kbar[a, c] += slope * w[c]
    if whole(data, at.HAS_U) == 0:
        return log_p, 0.0
    total = rss
    for c in range(columns):
        total += w[c] * w[c]
    term, rssbar = noise(item(data, at.U, j) - total, item(data, at.SD_U, j), softness)
    for c in range(columns):
        wbar[c] += 2.0 * rssbar * w[c]
    return log_p + term, rssbar


@compiled
def explained(
    data: Floats,
    j: int,
    columns: int,
    K: Floats,
    theta: Floats,
    log_v: float,
    x: Floats,
    mean: Floats,
    w: Floats,
    spread: Floats,
) -> None:
    """w, between its law given theta (``mean`` = K' theta, sd sigma) and what z tells, by x times ``spread``."""
    p, i = whole(data, at.P), int(item(data, at.AT_W, j))
    centre, pull, scale = place(data, at.W, j, p), place(data, at.PULL_W, j, p), place(data, at.SCALE_W, j, p)
    mean[:] = 0.0
    for a in range(p):
        for c in range(min(a + 1, columns)):
            mean[c] += K[a, c] * theta[a]
    for c in range(columns):
        kept = 1.0 - data[pull + c]
        spread[c] = math.exp(0.5 * kept * log_v) * data[scale + c]
        w[c] = kept * mean[c] + data[pull + c] * data[centre + c] + spread[c] * x[i + c]


@compiled
def explained_back(
    data: Floats,
    j: int,
    columns: int,
    K: Floats,
    theta: Floats,
    log_v: float,
    x: Floats,
    mean: Floats,
    w: Floats,
    spread: Floats,
    wbar: Floats,
    Kbar: Floats,
    thetabar: Floats,
    grad: Floats,
) -> tuple[float, float]:
    """Log density of w given theta, and the derivative by log v; mean becomes its own derivative."""
    p, i, precision = whole(data, at.P), int(item(data, at.AT_W, j)), math.exp(-log_v)
    pulls, log_p, log_vbar = place(data, at.PULL_W, j, p), 0.0, 0.0
    for c in range(columns):
        off, pull = w[c] - mean[c], data[pulls + c]
        square, bar = off * off * precision, wbar[c] - off * precision
        step = bar * spread[c]
        grad[i + c] += step
        log_p -= 0.5 * (square + pull * log_v)
        log_vbar += 0.5 * (square - pull + (1.0 - pull) * step * x[i + c])
        mean[c] = off * precision + (1.0 - pull) * bar
    for a in range(p):
        inner = 0.0
        for c in range(min(a + 1, columns)):
            Kbar[a, c] += theta[a] * mean[c]
            inner += K[a, c] * mean[c]
        thetabar[a] += inner
    return log_p, log_vbar


@compiled
def residual(data: Floats, j: int, n: float, log_v: float, x: Floats) -> tuple[float, float]:
    """rss and its logarithm: v chi^2_{n - p}, on a log scale, between its law given v and what u tells."""
    if item(data, at.HAS_RSS, j) == 0.0:
        return 0.0, 0.0
    pull = item(data, at.PULL_RSS, j)
    step, _, _, _ = bent_log(x[int(item(data, at.AT_RSS, j))], item(data, at.SCALE_RSS, j), POWER)
    expected = log_v + math.log(n - whole(data, at.P))
    log_rss = (1.0 - pull) * expected + pull * item(data, at.LOG_RSS, j) + step
    return math.exp(log_rss), log_rss


@compiled
def residual_back(
    data: Floats, j: int, n: float, log_v: float, rss: float, log_rss: float, rssbar: float, x: Floats, grad: Floats
) -> tuple[float, float, float]:
    """Log density of rss; its derivatives by log v and by n."""
    if item(data, at.HAS_RSS, j) == 0.0:
        return 0.0, 0.0, 0.0
    freedom, scaled = n - whole(data, at.P), rss * math.exp(-log_v)
    i = int(item(data, at.AT_RSS, j))
    _, slope, jacobian, turn = bent_log(x[i], item(data, at.SCALE_RSS, j), POWER)
    log_p = 0.5 * (freedom * (log_rss - log_v - LOG2) - scaled) + jacobian
    bar = rssbar * rss + 0.5 * (freedom - scaled)
    grad[i] += bar * slope + turn
    kept, nbar = 1.0 - item(data, at.PULL_RSS, j), 0.0
    if item(data, at.SD_N, j) != 0.0:  # else n is a constant
        log_p -= math.lgamma(0.5 * freedom)
        nbar = 0.5 * (log_rss - log_v - LOG2 - digamma(0.5 * freedom)) + kept * bar / freedom
    return log_p, 0.5 * (scaled - freedom) + kept * bar, nbar


@compiled
def log_density(y: Floats, grad: Floats, data: Floats, softness: float) -> float:
    """log p(y, everything released) up to a constant; grad is overwritten with its gradient.

    Laplace noise has its kink rounded over ``softness`` scales; 0 is the model itself.
    """
    x = seen_through(data, y)
    p, d, blocks = whole(data, at.P), whole(data, at.D), whole(data, at.BLOCKS)
    L, R, X, Lbar = (
        np.empty((blocks, d, d)),
        np.empty((blocks, d, d)),
        np.empty((blocks, d, d)),
        np.zeros((blocks, d, d)),
    )
    log_L, mu, mubar = np.empty((blocks, d)), np.zeros((blocks, d)), np.zeros((blocks, d))
    K, Kbar, T, Tbar = np.empty((p, p)), np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    theta, thetabar, w, wbar = np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    mean, spread, bend = np.empty(p), np.empty(p), np.empty((p, 2))
    grad[:] = 0.0
    log_v, log_p, log_vbar = shared(data, x, L, log_L, mu, R, X, theta, thetabar)
    for j in range(whole(data, at.J)):
        block, columns = j if blocks > 1 else 0, whole(data, at.FIRST) + int(item(data, at.RANK, j))
        n, slope_n = rows(data, j, x)
        log_p += normal_factor(data, j, block, n, L, log_L, mu, x, K, T, bend)
        explained(data, j, columns, K, theta, log_v, x, mean, w, spread)
        rss, log_rss = residual(data, j, n, log_v, x)
        log_noise, rssbar = released(data, j, softness, columns, K, w, rss, Kbar, wbar)
        log_rest, step_v, nbar = residual_back(data, j, n, log_v, rss, log_rss, rssbar, x, grad)
        log_w, step_w = explained_back(
            data, j, columns, K, theta, log_v, x, mean, w, spread, wbar, Kbar, thetabar, grad
        )
        log_p += log_noise + log_rest + log_w
        log_vbar += step_v + step_w
        nbar += normal_factor_back(data, j, block, n, L, mu, K, T, bend, Kbar, Tbar, Lbar, mubar, grad)
        if slope_n != 0.0:
            log_p += count(data, j, softness, n, slope_n, nbar, x, grad)
    shared_back(data, x, L, mu, R, X, theta, Lbar, mubar, thetabar, log_vbar, grad)
    return log_p


@compiled
def expand(y: Floats, out: Floats, data: Floats) -> None:
    """What is kept of a draw: theta, v, the lower triangle of sum_j S_j, row after row, and its log weight."""
    x = seen_through(data, y)
    p, d, blocks = whole(data, at.P), whole(data, at.D), whole(data, at.BLOCKS)
    L, R, X, mu = np.empty((blocks, d, d)), np.empty((blocks, d, d)), np.empty((blocks, d, d)), np.zeros((blocks, d))
    K, T, bend = np.empty((p, p)), np.empty((p, p)), np.empty((p, 2))
    log_L, scratch = np.empty((blocks, d)), np.empty(p)
    out[:] = 0.0
    log_v, _, _ = shared(data, x, L, log_L, mu, R, X, out, scratch)
    out[p] = math.exp(log_v)
    for j in range(whole(data, at.J)):
        columns = whole(data, at.FIRST) + int(item(data, at.RANK, j))
        n, _ = rows(data, j, x)
        normal_factor(data, j, j if blocks > 1 else 0, n, L, log_L, mu, x, K, T, bend)
        i = p + 1
        for a in range(p):
            for b in range(a + 1):
                for c in range(min(b + 1, columns)):
                    out[i] += K[a, c] * K[b, c]
                i += 1
    softness = number(data, at.SOFTNESS)
    if softness > 0.0:
        grad = np.empty(y.size)
        out[-1] = log_density(y, grad, data, 0.0) - log_density(y, grad, data, softness)
