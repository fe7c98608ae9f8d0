"""Where what all holders share roughly is, and how well the releases tell it: theta, v, the covariates' distribution.

Nothing here changes the posterior: a poor guess costs speed alone.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, polygamma

from noisewise.analyst.fixed_scatter import Statistics, integrate_variance, split_into_components
from noisewise.analyst.methods.believed import NormalCovariates
from noisewise.analyst.methods.exact.sound import above_noise, centred_noise, root, sound_factor, sound_mean
from noisewise.analyst.methods.exact.weak import FLAT
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats

# The prior probability of a larger v than one that is guessed.
IMPLAUSIBLE = 1e-3
# By how many standard deviations of its noise a variance may be too high.
FAR = 3.0


class Regression(NamedTuple):
    mean: Floats
    covariance: Floats
    log_v: float
    sd_log_v: float
    sd_z: Floats  # (J, p): of what noise leaves of z - S theta
    sd_u: Floats  # (J,): of what it leaves of u - 2 theta'z + theta'S theta


def guess_regression(problem: Problem, prior: ScaledPrior, n: Floats, scatter: Floats) -> Regression:
    """theta and log v with S held at its anchor.

    The noise of S is counted as noise of z, of size sd_S theta, and of u, of size theta'E theta: else v would have to
    answer for what a wrong S leaves of u.
    """
    S = np.stack([K @ K.T for K in (sound_factor(problem, j, n[j], scatter[j]) for j in range(problem.J))])
    twice = 2.0 - np.eye(problem.order)
    sd_z, sd_u = problem.sd_z, problem.sd_u
    for _ in range(3):
        stats = Statistics(np.rint(n), S, problem.z, problem.u, sd_z, sd_u)
        grid = integrate_variance(stats, split_into_components(stats), prior)
        weights, conditional = grid.weights, grid.conditional
        mean = weights @ conditional.mean
        square = mean**2 + np.einsum("g,gij,gij->i", weights, conditional.factor, conditional.factor)
        sd_z = np.sqrt(problem.sd_z**2 + problem.sd_S**2 @ square)
        sd_u = np.sqrt(problem.sd_u**2 + (twice * problem.sd_S**2 @ square) @ square)
    off = conditional.mean - mean
    covariance = np.einsum("g,gij,gkj->ik", weights, conditional.factor, conditional.factor)
    covariance += np.einsum("g,gi,gj->ij", weights, off, off)
    log_v = float(weights @ grid.log_v)
    sd_log_v = float(np.sqrt(weights @ (grid.log_v - log_v) ** 2))
    # where noise hides S, u can ask for a v that the prior all but excludes: likelier S is larger than it was held at
    largest = float(np.log(prior.scale / gammaincinv(prior.shape, IMPLAUSIBLE)))
    if log_v > largest:
        log_v, sd_log_v = largest, float(np.sqrt(polygamma(1, prior.shape)))
    return Regression(mean, covariance, log_v, sd_log_v, sd_z, np.sqrt(sd_u**2 + 4.0 * problem.sd_z**2 @ square))


def share_of_mean(problem: Problem, n: Floats) -> float:
    """How far theta_0 + theta'mu is the unknown in place of theta_0: wholly, unless noise hides even the mean of y.

    The mean's square is in y'y and it is in z itself; the less noisy one counts. In the tails both are polynomials of
    theta and mu of degree up to eight, which steps overshoot; seen so, of the mean alone. A tenth of the scale on which
    noise and prior are even is enough for that to matter.
    """
    told = n.sum() / np.sqrt((problem.sd_z[:, 0] ** 2).sum() + 1e-12)
    if problem.u is not None:
        told = max(told, n.sum() / np.sqrt((problem.sd_u**2).sum() + 1e-12))
    return float(10.0 * told / (1.0 + 10.0 * told))


class CovariateGuess(NamedTuple):
    """``factor`` of Sigma and, of its scale, what features are sure to have; where its unknowns are, and how wide they
    are; the mean, and a factor of its covariance."""

    factor: Floats
    sure: Floats
    where: Floats
    scale: Floats
    mu0: Floats
    factor_mu: Floats


def guess_covariates(
    problem: Problem, prior: NormalCovariates, weak: bool, n: Floats, group: list[int]
) -> CovariateGuess:
    """One distribution of covariates, from the holders of ``group``."""
    first = int(problem.units.constant)
    total = float(n[group].sum())
    noise = np.sqrt((problem.sd_S[group] ** 2).sum(axis=0))
    # holders are added up before the floor: their noise averages out
    raw = problem.S[group].sum(axis=0)[first:, first:]
    means = [sound_mean(problem, j, n[j]) for j in group]
    centred = raw - sum(n[j] * np.outer(mean, mean) for mean, j in zip(means, group, strict=True))
    noise_of = [centred_noise(problem, j, mean) for mean, j in zip(means, group, strict=True)]
    whole_noise = np.sqrt(np.sum(np.square(noise_of), axis=0))
    Sigma = (above_noise(centred, float(whole_noise.max()), total) + prior.Lambda) / (total + prior.kappa)
    factor = root(Sigma)
    size, diagonal = np.diag(factor), np.diag_indices_from(factor)
    relative = whole_noise / (total * np.outer(size, size))
    told = 1.0 / (1.0 / max(total, 1.0) + relative**2)
    sure = np.ones_like(size)
    if weak:
        # nothing but data keeps a variance from 0, where a latent that is held at its anchor would cost without end
        sure = np.sqrt(np.clip(1.0 - FAR * np.diag(whole_noise) / (total * np.diag(Sigma)), 0.0, 1.0))
        where, expected = np.clip(factor / size[:, None], -2.0, 2.0), np.full_like(told, size.size + 2.0)
        where[diagonal], expected[diagonal] = np.log((factor**2).sum(axis=1)), FLAT**2
        told[diagonal] = 1.0 / (2.0 / max(total, 1.0) + (np.diag(whole_noise) / (total * np.diag(Sigma))) ** 2)
    else:
        where, expected = factor, np.ones_like(told)
        told[diagonal] *= 2.0
    scale = 1.0 / np.sqrt(expected + told)
    if not first:
        return CovariateGuess(factor, sure, where, scale, np.zeros_like(size), np.eye(size.size))
    known = np.linalg.inv(Sigma / total + np.diag((noise[0, 1:] / total) ** 2))  # once a fit
    covariance = np.linalg.inv(np.diag(prior.precision) + known)
    mean = covariance @ (prior.precision * prior.mean + known @ (problem.S[group, 0, 1:].sum(axis=0) / total))
    return CovariateGuess(factor, sure, where, scale, mean, root(covariance))
