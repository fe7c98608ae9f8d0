"""K_j, the lower triangular factor of S_j, for normal covariates: its law given L and mu, and the chain rule back.

Below the constant's column K = L T with T Bartlett's factor: off-diagonals standard normal, T_bb^2 chi-square with
n - b degrees of freedom, one less where there is a constant. The constant's column is sqrt n (1, mean) with
sqrt n mean = sqrt n mu + L e; e stands as the first column of T. Fewer rows than columns need no special care: T then
has fewer columns. Row by row: row g of K needs the rows of T above it, and memory is read in its order.

Every latent sits between two parametrisations by a fixed ``pull`` in [0, 1]: 0 where noise hides the entry (T itself is
the unknown, independent of L a priori), 1 where noise is small (K is, so that moving L does not drag a well known S).
"""

import math

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.layout import item, place, whole
from noisewise.analyst.methods.exact.special import bent_log, digamma
from noisewise.gram import Floats

LOG2 = math.log(2.0)
POWER = 1.0  # the density of T_bb has a factor exp(-T_bb^2 / 2)


@compiled
def normal_factor(
    data: Floats,
    j: int,
    block: int,
    n: float,
    L: Floats,
    log_L: Floats,
    mu: Floats,
    x: Floats,
    K: Floats,
    T: Floats,
    bend: Floats,
) -> float:
    """Fills K, T and what ``bent_log`` said of T's diagonal; returns the log density of the latents."""
    p, d, first = whole(data, at.P), whole(data, at.D), whole(data, at.FIRST)
    columns, i = first + int(item(data, at.RANK, j)), int(item(data, at.AT_FACTOR, j))
    centre, pull, scale = (
        place(data, at.K, j, p * p),
        place(data, at.PULL_K, j, p * p),
        place(data, at.SCALE_K, j, p * p),
    )
    log_p, K[0, 0] = 0.0, math.sqrt(n)  # without a constant the first entry is set again below
    for a in range(d):
        g, size = a + first, L[block, a, a]
        last, row = min(g, columns), g * p
        for f in range(last):
            K[g, f] = 0.0
        if first == 1:
            K[g, 0] = K[0, 0] * mu[block, a]
        for c in range(a):
            for f in range(min(c + first + 1, columns)):
                K[g, f] += L[block, a, c] * T[c, f]
        for f in range(last):
            known, e = K[g, f], row + f
            T[a, f] = data[pull + e] * (data[centre + e] - known) / size + data[scale + e] * x[i + f]
            K[g, f] = known + size * T[a, f]
            log_p -= 0.5 * T[a, f] * T[a, f]
        i += last
        if g < columns:
            moved, bend[a, 0], jacobian, bend[a, 1] = bent_log(x[i], data[scale + row + g], POWER)
            # the anchor holds what is constant: log T given n where noise hides it, log K where it is known
            log_T = data[centre + row + g] - data[pull + row + g] * log_L[block, a] + moved
            freedom = n - g
            if item(data, at.SD_N, j) != 0.0:  # else constants
                log_T += 0.5 * (1.0 - data[pull + row + g]) * math.log(freedom / (item(data, at.N, j) - g))
                log_p -= math.lgamma(0.5 * freedom)
            T[a, g] = math.exp(log_T)
            K[g, g] = size * T[a, g]
            log_p += jacobian + freedom * (log_T - 0.5 * LOG2) - 0.5 * T[a, g] * T[a, g]
            i += 1
    return log_p


@compiled
def normal_factor_back(
    data: Floats,
    j: int,
    block: int,
    n: float,
    L: Floats,
    mu: Floats,
    K: Floats,
    T: Floats,
    bend: Floats,
    Kbar: Floats,
    Tbar: Floats,
    Lbar: Floats,
    mubar: Floats,
    grad: Floats,
) -> float:
    """The chain rule through ``normal_factor``; uses Kbar up; returns the derivative by n."""
    p, d, first = whole(data, at.P), whole(data, at.D), whole(data, at.FIRST)
    columns, i, nbar = first + int(item(data, at.RANK, j)), int(item(data, at.AT_W, j)), 0.0
    centre, pull, scale = (
        place(data, at.K, j, p * p),
        place(data, at.PULL_K, j, p * p),
        place(data, at.SCALE_K, j, p * p),
    )
    Tbar[:] = 0.0
    for a in range(d - 1, -1, -1):
        g, size = a + first, L[block, a, a]
        last, row = min(g, columns), g * p
        i -= min(g + 1, columns)
        sizebar = 0.0
        for f in range(last):
            e, bar, t = row + f, Kbar[g, f], T[a, f]
            own = Tbar[a, f] + bar * size - t
            grad[i + f] += data[scale + e] * own
            free = data[pull + e] * own / size
            sizebar += bar * t - free * (data[centre + e] - K[g, f] + size * t) / size
            Kbar[g, f] = bar - free
        if g < columns:
            e, bar, t, freedom = row + g, Kbar[g, g], T[a, g], n - g
            own = (Tbar[a, g] + bar * size) * t + freedom - t * t
            grad[i + g] += bend[a, 0] * own + bend[a, 1]
            sizebar += bar * t - data[pull + e] * own / size
            if item(data, at.SD_N, j) != 0.0:
                nbar += math.log(t) - 0.5 * LOG2 - 0.5 * digamma(0.5 * freedom)
                nbar += 0.5 * (1.0 - data[pull + e]) * own / freedom
        Lbar[block, a, a] += sizebar
        if first == 1:
            mubar[block, a] += K[0, 0] * Kbar[g, 0]
            Kbar[0, 0] += mu[block, a] * Kbar[g, 0]
        for c in range(a):
            inner = 0.0
            for f in range(min(c + first + 1, columns)):
                inner += Kbar[g, f] * T[c, f]
                Tbar[c, f] += L[block, a, c] * Kbar[g, f]
            Lbar[block, a, c] += inner
    if first == 1:
        nbar += 0.5 * Kbar[0, 0] / K[0, 0]
    return nbar
