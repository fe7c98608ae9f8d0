"""K_j, the lower triangular factor of S_j, with nothing assumed about covariates but their bounds.

Row a of the centred factor is sqrt(n V_a) (c, 1) / sqrt(1 + |c|^2): V_a is the variance of feature a, c says how it
correlates with the features before it. Flat on means and variances, uniform in volume on correlation matrices: density
V_a of log V_a, (1 + |c|^2)^{-(d+1)/2} of c. The bounds (of second moments, and of their sum where rows are shrunk to a
radius) enter as a smooth wall, exp(-(moment / bound)^8 / 2), which a sampler can feel.
"""

import math

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.layout import item, number, place, whole
from noisewise.gram import Floats

POWER = 8


@compiled
def weak_factor(data: Floats, j: int, n: float, x: Floats, K: Floats) -> float:
    """Fills K; returns the log density of its latents, Jacobians included."""
    p, d, first, i = whole(data, at.P), whole(data, at.D), whole(data, at.FIRST), int(item(data, at.AT_FACTOR, j))
    centre, scale = place(data, at.K, j, p * p), place(data, at.SCALE_K, j, p * p)
    bound = number(data, at.LARGEST_MOMENT)
    log_p, trace = 0.0, 0.0
    if first == 1:
        K[0, 0] = math.sqrt(n)
    for a in range(first, p):
        moment = 0.0
        if first == 1:
            mean = data[centre + a * p + 0] + data[scale + a * p + 0] * x[i]
            i += 1
            K[a, 0] = math.sqrt(n) * mean
            moment = mean * mean
        log_V = data[centre + a * p + a] + data[scale + a * p + a] * x[i]
        i += 1
        length = 1.0
        for b in range(first, a):
            K[a, b] = data[centre + a * p + b] + data[scale + a * p + b] * x[i]
            length += K[a, b] * K[a, b]
            i += 1
        size = math.sqrt(n * math.exp(log_V) / length)
        for b in range(first, a):
            K[a, b] *= size
        K[a, a] = size
        log_p += log_V - 0.5 * (d + 1) * math.log(length)
        moment += math.exp(log_V)
        trace += moment
        log_p -= 0.5 * (moment / bound) ** POWER
    return log_p - 0.5 * float(trace / number(data, at.LARGEST_TRACE)) ** POWER


@compiled
def weak_factor_back(data: Floats, j: int, n: float, K: Floats, Kbar: Floats, grad: Floats) -> float:
    """The chain rule through ``weak_factor``; returns the derivative by n."""
    p, d, first, i = whole(data, at.P), whole(data, at.D), whole(data, at.FIRST), int(item(data, at.AT_FACTOR, j))
    scale = place(data, at.SCALE_K, j, p * p)
    bound, total = number(data, at.LARGEST_MOMENT), number(data, at.LARGEST_TRACE)
    root, nbar, trace = math.sqrt(n), 0.0, 0.0
    if first == 1:
        nbar = 0.5 * Kbar[0, 0] / root
    for a in range(first, p):
        for b in range(a + 1):
            trace += K[a, b] * K[a, b] / n
    steep_total = -0.5 * POWER * (trace / total) ** (POWER - 1) / total
    for a in range(first, p):
        size, variance, along, moment = K[a, a], 0.0, 0.0, 0.0
        for b in range(first, a + 1):
            variance += K[a, b] * K[a, b] / n
            along += Kbar[a, b] * K[a, b]
        if first == 1:
            moment = K[a, 0] * K[a, 0] / n
        length = n * variance / (size * size)
        steep = steep_total - 0.5 * POWER * ((moment + variance) / bound) ** (POWER - 1) / bound
        if first == 1:
            grad[i] += data[scale + a * p + 0] * (root * Kbar[a, 0] + 2.0 * steep * K[a, 0] / root)
            nbar += 0.5 * Kbar[a, 0] * K[a, 0] / n
            i += 1
        grad[i] += data[scale + a * p + a] * (0.5 * along + 1.0 + steep * variance)
        nbar += 0.5 * along / n
        i += 1
        for b in range(first, a):
            c = K[a, b] / size
            grad[i] += data[scale + a * p + b] * (Kbar[a, b] * size - (along + d + 1) * c / length)
            i += 1
    return nbar
