"""The log density of ``individual`` and its gradient: one latent row per person, compiled once for every d, J and n.

Person i has standard normal latents e_i (d of them) and t_i. With c_i = e_i (normal covariates) or c_i uniform on the
bounds through the normal distribution function, the row r_i = (1, c_i, t_i) becomes w_i = (1, x_i, y_i) = M r_i with

    M = [[1, 0, 0], [mu, L, 0], [theta_0 + theta'mu, theta'L, sigma]],

so a holder's sums are A_j = M G_j M' with G_j = sum of r r'. All that grows with n is G_j and, backwards, a product of
the rows with one small matrix. A holder's latents lie variable by variable, each in one piece of memory. The shared
unknowns are those of ``exact``. A name with ``bar`` is the derivative of the log density by that quantity.
"""

import math

import numpy as np

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.layout import item, matrix, number, vector, whole
from noisewise.analyst.methods.exact.shared import seen_through, shared, shared_back
from noisewise.analyst.methods.exact.special import noise
from noisewise.gram import Floats

ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_PI = math.sqrt(2.0 * math.pi)


@compiled
def people(data: Floats, j: int, x: Floats) -> Floats:
    """(d + 1, n): the latents of holder j, t last; a view."""
    d, n, i = whole(data, at.D), int(item(data, at.N, j)), int(item(data, at.START, j))
    return x[i : i + (d + 1) * n].reshape((d + 1, n))


@compiled
def rows_of(data: Floats, latents: Floats) -> Floats:
    """(d + 1, n): c, the latents themselves or uniform on the bounds (mean - half, mean + half), and t."""
    if whole(data, at.BLOCKS) > 0:
        return latents
    rows = latents.copy()
    for a in range(whole(data, at.D)):
        mean = item(data, at.MEAN_MU, a)
        for i in range(rows.shape[1]):
            # in scaled units a feature's upper bound is 1
            rows[a, i] = mean + (1.0 - mean) * math.erf(ROOT_HALF * latents[a, i])
    return rows


@compiled
def latent_back(data: Floats, a: int, e: float, bar: float) -> float:
    """From the derivative by row entry a to that by its latent e, its standard normal density included."""
    if whole(data, at.BLOCKS) == 0 and a < whole(data, at.D):
        bar *= (1.0 - item(data, at.MEAN_MU, a)) * 2.0 * math.exp(-0.5 * e * e) / ROOT_TWO_PI
    return bar - e


@compiled
def dot(a: Floats, b: Floats) -> float:
    """In four partial sums: the compiler, which may not reorder a sum, would add one term at a time."""
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    fours = a.size // 4 * 4
    for i in range(0, fours, 4):
        one += a[i] * b[i]
        two += a[i + 1] * b[i + 1]
        three += a[i + 2] * b[i + 2]
        four += a[i + 3] * b[i + 3]
    for i in range(fours, a.size):
        one += a[i] * b[i]
    return float((one + two) + (three + four))


@compiled
def gram(rows: Floats) -> Floats:
    """G = sum of r r' with r = (1, c, t)."""
    k, n = rows.shape
    G = np.empty((k + 1, k + 1))
    G[0, 0] = n
    for a in range(k):
        total = 0.0
        for i in range(n):
            total += rows[a, i]
        G[a + 1, 0] = G[0, a + 1] = total
        for b in range(a + 1):
            G[a + 1, b + 1] = G[b + 1, a + 1] = dot(rows[a], rows[b])
    return G


@compiled
def row_map(data: Floats, theta: Floats, sigma: float, L: Floats, mu: Floats) -> Floats:
    """M: from (1, c, t) to (1, x, y)."""
    d, first = whole(data, at.D), whole(data, at.FIRST)
    M = np.zeros((d + 2, d + 2))
    M[0, 0] = 1.0
    if first == 1:
        M[d + 1, 0] = theta[0]
    for a in range(d):
        if whole(data, at.BLOCKS) == 0:
            M[a + 1, a + 1] = 1.0
        else:
            M[a + 1, 0] = mu[a]
            for b in range(a + 1):
                M[a + 1, b + 1] = L[a, b]
        for b in range(d + 1):
            M[d + 1, b] += theta[a + first] * M[a + 1, b]
    M[d + 1, d + 1] = sigma
    return M


@compiled
def row_map_back(
    data: Floats, theta: Floats, M: Floats, Mbar: Floats, thetabar: Floats, Lbar: Floats, mubar: Floats
) -> float:
    """The chain rule through ``row_map``; returns the derivative by sigma."""
    d, first = whole(data, at.D), whole(data, at.FIRST)
    if first == 1:
        thetabar[0] += Mbar[d + 1, 0]
    for a in range(d):
        for b in range(d + 1):
            thetabar[a + first] += Mbar[d + 1, b] * M[a + 1, b]
            Mbar[a + 1, b] += theta[a + first] * Mbar[d + 1, b]
        if whole(data, at.BLOCKS) > 0:
            mubar[a] += Mbar[a + 1, 0]
            for b in range(a + 1):
                Lbar[a, b] += Mbar[a + 1, b + 1]
    return float(Mbar[d + 1, d + 1])


@compiled
def released(data: Floats, j: int, softness: float, A: Floats, Abar: Floats) -> float:
    """Log density of what holder j released, given its sums A of (1, x, y); fills Abar, symmetric."""
    p, first, y = whole(data, at.P), whole(data, at.FIRST), A.shape[0] - 1
    skip, log_p = 1 - first, 0.0
    S, sd_S, z, sd_z = (
        matrix(data, at.S, j, p),
        matrix(data, at.SD_S, j, p),
        vector(data, at.Z, j, p),
        vector(data, at.SD_Z, j, p),
    )
    Abar[:] = 0.0
    for a in range(p):
        for b in range(first if a == 0 else 0, a + 1):  # with a constant the first entry is n
            term, slope = noise(S[a, b] - A[a + skip, b + skip], sd_S[a, b], softness)
            log_p += term
            Abar[a + skip, b + skip] += 0.5 * slope
            Abar[b + skip, a + skip] += 0.5 * slope
        term, slope = noise(z[a] - A[y, a + skip], sd_z[a], softness)
        log_p += term
        Abar[y, a + skip] = Abar[a + skip, y] = 0.5 * slope
    if whole(data, at.HAS_U) == 1:
        term, Abar[y, y] = noise(item(data, at.U, j) - A[y, y], item(data, at.SD_U, j), softness)
        log_p += term
    return log_p


@compiled
def product(A: Floats, B: Floats) -> Floats:
    out = np.zeros((A.shape[0], B.shape[1]))
    for a in range(A.shape[0]):
        for c in range(A.shape[1]):
            for b in range(B.shape[1]):
                out[a, b] += A[a, c] * B[c, b]
    return out


@compiled
def holder(data: Floats, j: int, softness: float, M: Floats, x: Floats, Mbar: Floats, grad: Floats) -> float:
    """Log density of holder j's latents and releases; their gradient into grad, that by M onto Mbar."""
    latents, latentsbar = people(data, j, x), people(data, j, grad)
    rows = rows_of(data, latents)
    k, n = rows.shape
    MG = product(M, gram(rows))
    Abar = np.empty((k + 1, k + 1))
    log_p = released(data, j, softness, product(MG, M.T), Abar)
    Mbar += 2.0 * product(Abar, MG)
    Gbar = product(M.T, product(Abar, M))
    for a in range(k):
        bars = latentsbar[a]
        bars[:] = 2.0 * Gbar[a + 1, 0]
        for b in range(k):
            slope = 2.0 * Gbar[a + 1, b + 1]
            for i in range(n):
                bars[i] += slope * rows[b, i]
        log_p -= 0.5 * dot(latents[a], latents[a])
        for i in range(n):
            bars[i] = latent_back(data, a, latents[a, i], bars[i])
    return log_p


@compiled
def log_density(y: Floats, grad: Floats, data: Floats, softness: float) -> float:
    """As that of ``exact``: log p(y, everything released) up to a constant; grad is overwritten with its gradient."""
    x = seen_through(data, y)
    p, d, blocks = whole(data, at.P), whole(data, at.D), whole(data, at.BLOCKS)
    L, Lbar = np.zeros((max(blocks, 1), d, d)), np.zeros((max(blocks, 1), d, d))
    R, X, log_L = np.empty((blocks, d, d)), np.empty((blocks, d, d)), np.empty((blocks, d))
    mu, mubar = np.zeros((max(blocks, 1), d)), np.zeros((max(blocks, 1), d))
    theta, thetabar = np.empty(p), np.empty(p)
    grad[:] = 0.0
    log_v, log_p, log_vbar = shared(data, x, L, log_L, mu, R, X, theta, thetabar)
    sigma = math.exp(0.5 * log_v)
    for block in range(max(blocks, 1)):
        M, Mbar = row_map(data, theta, sigma, L[block], mu[block]), np.zeros((d + 2, d + 2))
        for j in range(whole(data, at.J)):
            if blocks < 2 or j == block:
                log_p += holder(data, j, softness, M, x, Mbar, grad)
        log_vbar += 0.5 * sigma * row_map_back(data, theta, M, Mbar, thetabar, Lbar[block], mubar[block])
    shared_back(data, x, L, mu, R, X, theta, Lbar, mubar, thetabar, log_vbar, grad)
    return log_p


@compiled
def expand(y: Floats, out: Floats, data: Floats) -> None:
    """What is kept of a draw: theta, v, the lower triangle of sum_j S_j, row after row, and its log weight."""
    x = seen_through(data, y)
    p, d, blocks, skip = whole(data, at.P), whole(data, at.D), whole(data, at.BLOCKS), 1 - whole(data, at.FIRST)
    L, mu, scratch = np.zeros((max(blocks, 1), d, d)), np.zeros((max(blocks, 1), d)), np.empty(p)
    R, X, log_L = np.empty((blocks, d, d)), np.empty((blocks, d, d)), np.empty((blocks, d))
    out[:] = 0.0
    log_v, _, _ = shared(data, x, L, log_L, mu, R, X, out, scratch)
    out[p] = math.exp(log_v)
    for j in range(whole(data, at.J)):
        block = j if blocks > 1 else 0
        M = row_map(data, out[:p], 0.0, L[block], mu[block])
        A = product(product(M, gram(rows_of(data, people(data, j, x)))), M.T)
        i = p + 1
        for a in range(p):
            for b in range(a + 1):
                out[i] += A[a + skip, b + skip]
                i += 1
    softness = number(data, at.SOFTNESS)
    if softness > 0.0:
        grad = np.empty(y.size)
        out[-1] = log_density(y, grad, data, 0.0) - log_density(y, grad, data, softness)
