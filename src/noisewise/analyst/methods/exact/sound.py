"""The noisy statistics of a holder made sound: what a table could have, near what was released.

Noise can leave a scatter matrix with negative eigenvalues, a mean outside the bounds, too few rows. Here n is above
what is needed, means and scatter are drawn towards what is typical where noise rules, eigenvalues are kept above it.
"""

import numpy as np

from noisewise.analyst.model import Problem
from noisewise.gram import Floats

# A variance of a feature in scaled units, and how far from it others may be.
TYPICAL, SPREAD = 0.1, 0.3


def root(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)


def sound_rows(problem: Problem) -> tuple[Floats, Floats, Floats]:
    """n (its anchor where it is noisy), the lower end of a noisy n, and where its softplus is centred."""
    low = np.full(problem.J, float(problem.order + 1))
    noisy = problem.sd_n > 0.0
    sd = np.where(noisy, problem.sd_n, 1.0)
    centre = np.maximum((problem.n - low) / sd, 0.0)
    anchor = low + sd * np.logaddexp(0.0, centre)
    return np.where(noisy, anchor, np.rint(problem.n)), low, centre


def sound_scatter(problem: Problem, j: int, n: float) -> Floats:
    """Holder j's centred scatter (or plain S with no constant), eigenvalues at least half the noise."""
    S, first = problem.S[j], int(problem.units.constant)
    mean = sound_mean(problem, j, n)
    return above_noise(S[first:, first:] - n * np.outer(mean, mean), float(centred_noise(problem, j, mean).max()), n)


def sound_mean(problem: Problem, j: int, n: float) -> Floats:
    """Holder j's means of features, drawn towards 0 where noise hides them (0 with no constant)."""
    if not problem.units.constant:
        return np.zeros(problem.order)
    return np.asarray(problem.S[j, 0, 1:] / n / (1.0 + (problem.sd_S[j, 0, 1:] / n) ** 2))


def centred_noise(problem: Problem, j: int, mean: Floats) -> Floats:
    """The noise of the centred scatter S_ab - s_a s_b / n, to first order: that of the sums counts, times the means."""
    first = int(problem.units.constant)
    sd = problem.sd_S[j, first:, first:]
    if not first:
        return sd
    cross = np.outer(problem.sd_S[j, 0, 1:], mean)
    return np.asarray(np.sqrt(sd**2 + cross**2 + cross.T**2 + 2.0 * np.diag(np.diag(cross) ** 2)))


def above_noise(S: Floats, noise: float, n: float) -> Floats:
    """A scatter matrix of n rows near S: eigenvalues drawn towards TYPICAL where noise rules, then kept above it."""
    values, vectors = np.linalg.eigh(S)
    told = (SPREAD * n) ** 2 / ((SPREAD * n) ** 2 + noise**2)
    values = told * values + (1.0 - told) * TYPICAL * n
    least = max(min(0.5 * noise, TYPICAL * n), 1e-8 * float(np.abs(values).max()), 1e-8)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def sound_factor(problem: Problem, j: int, n: float, scatter: Floats) -> Floats:
    """The lower triangular factor of holder j's S, from its centred scatter."""
    K = root(scatter)
    if not problem.units.constant:
        return K
    whole = np.zeros((K.shape[0] + 1, K.shape[0] + 1))
    whole[0, 0] = np.sqrt(n)
    whole[1:, 0] = np.sqrt(n) * sound_mean(problem, j, n)
    whole[1:, 1:] = K
    return whole
