"""K_j, the lower triangular factor of S_j, for normal covariates: its law given L and mu, and the chain rule back.

Below the constant's column K = L T with T Bartlett's factor: off-diagonals standard normal, T_bb^2 chi-square with
n - b degrees of freedom, one less where there is a constant. The constant's column is sqrt n (1, mean) with
sqrt n mean = sqrt n mu + L e. Fewer rows than columns need no special care: T then has fewer columns.

Every latent sits between two parametrisations by a fixed ``pull`` in [0, 1]: 0 where noise hides the entry (T itself is
the unknown, independent of L a priori), 1 where noise is small (K is, so that moving L does not drag a well known S).
"""

import math

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.layout import item, matrix, whole
from noisewise.analyst.methods.exact.special import bent_log, digamma
from noisewise.gram import Floats

LOG2 = math.log(2.0)
POWER = 1.0  # the density of T_bb has a factor exp(-T_bb^2 / 2)


@compiled
def mean_column(data: Floats, j: int, n: float, L: Floats, mu: Floats, x: Floats, K: Floats, e: Floats) -> float:
    """Fills the constant's column of K, and e; returns the log density of its latents."""
    d, i = whole(data, at.D), int(item(data, at.AT_FACTOR, j))
    centre, pull, scale = (
        matrix(data, at.K, j, d + 1),
        matrix(data, at.PULL_K, j, d + 1),
        matrix(data, at.SCALE_K, j, d + 1),
    )
    root, log_p = math.sqrt(n), 0.0
    K[0, 0] = root
    for a in range(d):
        known = root * mu[a]
        for c in range(a):
            known += L[a, c] * e[c]
        e[a] = pull[a + 1, 0] * (centre[a + 1, 0] - known) / L[a, a] + scale[a + 1, 0] * x[i + a]
        K[a + 1, 0] = known + L[a, a] * e[a]
        log_p -= 0.5 * e[a] * e[a]
    return log_p


@compiled
def scatter_columns(data: Floats, j: int, n: float, L: Floats, x: Floats, K: Floats, T: Floats, bend: Floats) -> float:
    """Fills the other columns of K, T by columns (each in one piece of memory), and what ``bent_log`` said of T_bb."""
    p, d, first = whole(data, at.P), whole(data, at.D), whole(data, at.FIRST)
    i = int(item(data, at.AT_FACTOR, j)) + first * d
    centre, pull, scale = matrix(data, at.K, j, p), matrix(data, at.PULL_K, j, p), matrix(data, at.SCALE_K, j, p)
    noisy_n, log_p = item(data, at.SD_N, j) != 0.0, 0.0
    for b in range(int(item(data, at.RANK, j))):
        f, column = b + first, T[b]
        freedom = n - f
        moved, bend[b, 0], jacobian, bend[b, 1] = bent_log(x[i], scale[f, f], POWER)
        log_T = 0.5 * (1.0 - pull[f, f]) * math.log(freedom) + moved
        log_T += pull[f, f] * (centre[f, f] - math.log(L[b, b]))
        column[b] = math.exp(log_T)
        K[f, f] = L[b, b] * column[b]
        log_p += jacobian + freedom * (log_T - 0.5 * LOG2) - 0.5 * column[b] * column[b]
        if noisy_n:  # else a constant
            log_p -= math.lgamma(0.5 * freedom)
        for a in range(b + 1, d):
            g = a + first
            known = 0.0
            for c in range(b, a):
                known += L[a, c] * column[c]
            column[a] = pull[g, f] * (centre[g, f] - known) / L[a, a] + scale[g, f] * x[i + a - b]
            K[g, f] = known + L[a, a] * column[a]
            log_p -= 0.5 * column[a] * column[a]
        i += d - b
    return log_p


@compiled
def mean_column_back(
    data: Floats,
    j: int,
    n: float,
    L: Floats,
    mu: Floats,
    e: Floats,
    K: Floats,
    Kbar: Floats,
    ebar: Floats,
    Lbar: Floats,
    mubar: Floats,
    grad: Floats,
) -> float:
    """The chain rule through ``mean_column``; ebar is scratch; returns the derivative by n."""
    d, i = whole(data, at.D), int(item(data, at.AT_FACTOR, j))
    centre, pull, scale = (
        matrix(data, at.K, j, d + 1),
        matrix(data, at.PULL_K, j, d + 1),
        matrix(data, at.SCALE_K, j, d + 1),
    )
    root, rootbar = math.sqrt(n), Kbar[0, 0]
    ebar[:] = 0.0
    for a in range(d - 1, -1, -1):
        bar = Kbar[a + 1, 0]
        own = ebar[a] + bar * L[a, a] - e[a]
        grad[i + a] += scale[a + 1, 0] * own
        free = pull[a + 1, 0] * own / L[a, a]
        known = K[a + 1, 0] - L[a, a] * e[a]
        Lbar[a, a] += bar * e[a] - free * (centre[a + 1, 0] - known) / L[a, a]
        bar -= free
        mubar[a] += root * bar
        rootbar += mu[a] * bar
        for c in range(a):
            Lbar[a, c] += bar * e[c]
            ebar[c] += bar * L[a, c]
    return float(0.5 * rootbar / root)


@compiled
def scatter_columns_back(
    data: Floats,
    j: int,
    n: float,
    L: Floats,
    T: Floats,
    bend: Floats,
    K: Floats,
    Kbar: Floats,
    bars: Floats,
    Lbar: Floats,
    grad: Floats,
) -> float:
    """The chain rule through ``scatter_columns``; bars is scratch; returns the derivative by n."""
    p, d, first = whole(data, at.P), whole(data, at.D), whole(data, at.FIRST)
    i, nbar = int(item(data, at.AT_FACTOR, j)) + first * d, 0.0
    centre, pull, scale = matrix(data, at.K, j, p), matrix(data, at.PULL_K, j, p), matrix(data, at.SCALE_K, j, p)
    noisy_n = item(data, at.SD_N, j) != 0.0
    for b in range(int(item(data, at.RANK, j))):
        f, column = b + first, T[b]
        bars[:] = 0.0
        for a in range(d - 1, b, -1):
            g = a + first
            bar = Kbar[g, f]
            own = bars[a] + bar * L[a, a] - column[a]
            grad[i + a - b] += scale[g, f] * own
            free = pull[g, f] * own / L[a, a]
            known = K[g, f] - L[a, a] * column[a]
            Lbar[a, a] += bar * column[a] - free * (centre[g, f] - known) / L[a, a]
            bar -= free
            for c in range(b, a):
                Lbar[a, c] += bar * column[c]
                bars[c] += bar * L[a, c]
        freedom, bar = n - f, Kbar[f, f]
        own = (bars[b] + bar * L[b, b]) * column[b] + freedom - column[b] * column[b]
        grad[i] += bend[b, 0] * own + bend[b, 1]
        Lbar[b, b] += bar * column[b] - pull[f, f] * own / L[b, b]
        if noisy_n:
            nbar += math.log(column[b]) - 0.5 * LOG2 - 0.5 * digamma(0.5 * freedom)
            nbar += 0.5 * (1.0 - pull[f, f]) * own / freedom
        i += d - b
    return nbar
