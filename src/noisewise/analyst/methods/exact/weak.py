"""One distribution of covariates of which nothing is believed but bounds: its mean mu and its covariance L L'.

Row a of L is sqrt(V_a) U_a / |U_a| with U_a = (c, 1): V_a is the variance of feature a, c says how it correlates with
the features before it. Flat on means and standard deviations: density V_a^{1/2} of log V_a. Every single correlation is
uniform on (-1, 1), whatever the number of features (decision 0007): the density of correlation matrices is
|R|^{-(d+1)} prod_b (R^{-1})_bb^{-(d+1)/2} (Barnard, McCulloch and Meng 2000), of all c prod_b |G_b|^{-(d+1)}, where G_b
is column b of the inverse of U. The bounds (of second moments, and of their sum where rows are shrunk to a radius)
enter as a smooth wall, exp(-(moment / bound)^8 / 2), which a sampler can feel.
"""

import math

import numpy as np

from noisewise.analyst.methods.exact import layout as at
from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.covariates import block_start, mean_of_block, mean_of_block_back
from noisewise.analyst.methods.exact.layout import number, place, whole
from noisewise.gram import Floats

FLAT = 0.5  # the power of V in the density of log V
POWER = 8


@compiled
def weak_block(data: Floats, block: int, x: Floats, L: Floats, log_L: Floats, mu: Floats, G: Floats) -> float:
    """Fills L, the logarithms of its diagonal, mu and G; returns the log density of the latents, Jacobians included."""
    d, i, log_p, trace = whole(data, at.D), block_start(data, block), 0.0, 0.0
    centre, scale = place(data, at.K0, block, d * d), place(data, at.SCALE_R, block, d * d)
    mean_of_block(data, block, x, mu)
    for a in range(d):
        length, G[block, a, a] = 1.0, 1.0
        for b in range(a):
            L[block, a, b] = data[centre + a * d + b] + data[scale + a * d + b] * x[i + b]
            length += L[block, a, b] * L[block, a, b]
        for b in range(a):
            G[block, a, b] = 0.0
            for c in range(b, a):
                G[block, a, b] -= L[block, a, c] * G[block, c, b]
        log_V = data[centre + a * d + a] + data[scale + a * d + a] * x[i + a]
        i += a + 1
        log_L[block, a] = 0.5 * (log_V - math.log(length))
        L[block, a, a] = math.exp(log_L[block, a])
        for b in range(a):
            L[block, a, b] *= L[block, a, a]
        moment = math.exp(log_V) + mu[block, a] * mu[block, a]
        trace += moment
        log_p += FLAT * log_V
        log_p -= 0.5 * (moment / number(data, at.LARGEST_MOMENT)) ** POWER
    for b in range(d):
        log_p -= 0.5 * (d + 1) * math.log(_square(G, block, b))
    return log_p - 0.5 * float(trace / number(data, at.LARGEST_TRACE)) ** POWER


@compiled
def weak_block_back(
    data: Floats, block: int, L: Floats, mu: Floats, G: Floats, Lbar: Floats, mubar: Floats, grad: Floats
) -> None:
    """The chain rule through ``weak_block``; Lbar, mubar come in with what the holders added."""
    d, i, trace = whole(data, at.D), block_start(data, block), 0.0
    scale = place(data, at.SCALE_R, block, d * d)
    bound, total = number(data, at.LARGEST_MOMENT), number(data, at.LARGEST_TRACE)
    Ubar = _directions_back(block, L, G)
    for a in range(d):
        trace += mu[block, a] * mu[block, a]
        for b in range(a + 1):
            trace += L[block, a, b] * L[block, a, b]
    steep_total = -0.5 * POWER * (trace / total) ** (POWER - 1) / total
    for a in range(d):
        size, variance, along = L[block, a, a], 0.0, 0.0
        for b in range(a + 1):
            variance += L[block, a, b] * L[block, a, b]
            along += Lbar[block, a, b] * L[block, a, b]
        length = variance / (size * size)
        moment = variance + mu[block, a] * mu[block, a]
        steep = steep_total - 0.5 * POWER * (moment / bound) ** (POWER - 1) / bound
        mubar[block, a] += 2.0 * steep * mu[block, a]
        for b in range(a):
            c = L[block, a, b] / size
            grad[i + b] += data[scale + a * d + b] * (Lbar[block, a, b] * size - along * c / length + Ubar[a, b])
        grad[i + a] += data[scale + a * d + a] * (0.5 * along + FLAT + steep * variance)
        i += a + 1
    mean_of_block_back(data, block, mubar, grad)


@compiled
def _square(G: Floats, block: int, b: int) -> float:
    """Of the length of column b."""
    total = 0.0
    for a in range(b, G.shape[1]):
        total += G[block, a, b] * G[block, a, b]
    return total


@compiled
def _directions_back(block: int, L: Floats, G: Floats) -> Floats:
    """The gradient of -(d + 1) sum_b log |G_b| by U, whose inverse G is: its recursion, backwards."""
    d = L.shape[1]
    Gbar, Ubar = np.zeros((d, d)), np.zeros((d, d))
    for b in range(d):
        steep = (d + 1) / _square(G, block, b)
        for a in range(b + 1, d):
            Gbar[a, b] = -steep * G[block, a, b]
    for a in range(d - 1, 0, -1):
        for b in range(a):
            for c in range(b, a):
                Ubar[a, c] -= Gbar[a, b] * G[block, c, b]
                Gbar[c, b] -= Gbar[a, b] * L[block, a, c] / L[block, a, a]
    return Ubar
