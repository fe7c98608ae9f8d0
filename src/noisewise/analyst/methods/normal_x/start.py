"""Where chains of normal-x start, and the constants of its target."""

import numpy as np

from noisewise.analyst.methods.believed import NormalCovariates
from noisewise.analyst.methods.normal_x.target import Data, State
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats


def constants(problem: Problem, prior: ScaledPrior, believed: NormalCovariates, joint: bool = True) -> Data:
    """The target's constants, contiguous for the compiler."""
    first = int(problem.units.constant)
    known = problem.sd_S <= 0.0
    if first:
        known[:, 0, 0] = True  # n: exact, or rounded and taken for exact
    return Data(
        first=first,
        joint=int(joint),
        n=problem.public_n,
        freedom=problem.public_n - first,
        S=np.ascontiguousarray(problem.S),
        weight=np.where(known, 0.0, 1.0 / np.where(known, 1.0, problem.sd_S) ** 2),
        sd=np.where(known, 0.0, problem.sd_S),
        sd_all=np.sqrt((problem.sd_S[:, first:, first:] ** 2).sum(axis=0)) / problem.public_n.sum(),
        z=np.ascontiguousarray(problem.z),
        noise=problem.sd_z**2,
        precision=np.ascontiguousarray(prior.precision),
        pull=prior.precision @ prior.mean,
        shape=float(prior.shape),
        scale=float(prior.scale),
        Lambda=believed.Lambda,
        root_Lambda=np.asarray(np.linalg.cholesky(believed.Lambda), dtype=np.float64),
        kappa=believed.kappa,
        mu_mean=believed.mean,
        mu_precision=believed.precision,
    )


def start(problem: Problem, data: Data, rng: np.random.Generator) -> State:
    """A state near what was released, noised once more: chains start further apart than the posterior is wide."""
    J, p = data.z.shape
    d = p - data.first
    K, xbar, S = np.empty((J, d, d)), np.zeros((J, d)), np.zeros((J, p, p))
    for j in range(J):
        noisy = problem.S[j] + problem.sd_S[j] * _symmetric(rng, p)
        if data.first:
            raw, sd = noisy[0, 1:] / data.n[j], problem.sd_S[j, 0, 1:] / data.n[j]
            bound = np.maximum(1.0, np.abs(raw) - 5.0 * sd)  # features lie within 1, or the noise is too small to blame
            xbar[j] = np.clip(raw, -bound, bound)
        centred = noisy[data.first :, data.first :] - data.n[j] * np.outer(xbar[j], xbar[j])
        K[j] = _definite_factor(centred, float(problem.sd_S[j].mean()), float(data.n[j]))
        root = np.zeros((p, p))  # of S: the first column is sqrt n (1, xbar), the rest K
        root[data.first :, data.first :] = K[j]
        if data.first:
            root[:, 0] = np.sqrt(data.n[j]) * np.concatenate([[1.0], xbar[j]])
        S[j] = root @ root.T
    total = data.Lambda + (K @ K.transpose(0, 2, 1)).sum(axis=0)
    return State(
        K=K,
        xbar=xbar,
        S=S,
        L=np.linalg.cholesky(total / (data.kappa + data.n.sum())),
        mu=data.n @ xbar / data.n.sum(),
        theta=np.zeros(p),
        log_v=np.log([data.scale / rng.gamma(data.shape + 1.0)]),
        log_step=_first_steps(problem, K, data),
        accepted=np.zeros(3 * J + 4),
        tried=np.zeros(3 * J + 4),
        sweeps=np.zeros(1),
    )


def _symmetric(rng: np.random.Generator, p: int) -> Floats:
    lower = np.tril(rng.standard_normal((p, p)))
    return np.asarray(lower + np.tril(lower, -1).T)


def _definite_factor(centred: Floats, sd: float, n: float) -> Floats:
    """The Cholesky factor, eigenvalues kept between half a noise sd and what bounded features allow."""
    values, vectors = np.linalg.eigh(centred)
    top = max(n * len(values), values[-1] - 5.0 * sd)
    values = np.clip(values, max(0.5 * min(sd, n), 1e-9 * top), top)
    return np.linalg.cholesky((vectors * values) @ vectors.T)


def _first_steps(problem: Problem, K: Floats, data: Data) -> Floats:
    """A guess of every proposal's scale: the narrower of the noise and the model, over the root of the dimension."""
    d = K.shape[1]
    size = (K**2).sum(axis=(1, 2)) / d
    relative = problem.sd_S.mean(axis=(1, 2)) / size
    scatters = np.minimum(relative, np.sqrt(2.0 / data.n)) * 2.0 / (d + 1.0)
    means = np.minimum(1.0, relative * np.sqrt(data.n)) / np.sqrt(d)
    entries = np.minimum(1.0, np.sqrt(2.0 / data.n) / relative) * 2.0 / (d + 1.0)
    every = [min(1.0, relative.min()) * 2.0 / (d + 1.0), min(1.0, relative.min()) / np.sqrt(d), 1.0, 1.0 / (d + 1.0)]
    return np.asarray(np.log(np.concatenate([scatters, means, entries, every])))
