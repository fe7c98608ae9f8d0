"""From releases to the constants of a chain, and where a chain starts."""

import numpy as np

from noisewise.analyst.methods.gibbs.model import DENSE, EXACT, SPECTRAL, Covariates, Model, State
from noisewise.analyst.methods.gibbs.moments import pairs_of_tensor, second_moments, unique_entries
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import ScaledPrior
from noisewise.gram import Floats

ISOTROPIC = 1e-9  # the relative difference up to which noise counts as isotropic


def constants(
    problem: Problem, prior: ScaledPrior, covariates: Covariates, *, wishart: bool, tries: int, spectral: bool
) -> Model:
    """``spectral=False`` draws the sums of all holders the dense way."""
    first, J = int(problem.units.constant), problem.J
    B, sd = augmented(problem)
    if first:
        B[:, 0, 0] = problem.public_n
    entries = unique_entries(B.shape[1], bool(first))
    sds = sd[:, entries[:, 0], entries[:, 1]]
    may = spectral and problem.law == "gaussian" and covariates.fourth is None and (first or not covariates.mu.any())
    blocks = 1 if covariates.shared else J
    d = covariates.mu.size
    eta = second_moments(covariates.mu, covariates.covariance, bool(first))
    xi = np.zeros((0, 0)) if covariates.fourth is None else pairs_of_tensor(eta, covariates.fourth)
    root_xi = _root(xi)
    return Model(
        constant=first,
        n=problem.public_n,
        B=B,
        scales=sds / np.sqrt(2.0) if problem.law == "laplace" else sds,
        way=np.array([_way(one, bool(may), first) for one in sd], dtype=np.int64),
        block=np.zeros(J, dtype=np.int64) if covariates.shared else np.arange(J, dtype=np.int64),
        entries=entries,
        laplace=problem.law == "laplace",
        wishart=wishart,
        tries=tries,
        prior_mean=prior.mean,
        prior_precision=np.ascontiguousarray(prior.precision),
        shape=prior.shape,
        scale=prior.scale,
        update=covariates.update,
        mu=np.tile(covariates.mu, (blocks, 1)),
        factor=np.tile(np.linalg.cholesky(covariates.covariance), (blocks, 1, 1)).reshape(blocks, d, d),
        scatter=covariates.scatter,
        freedom=covariates.freedom,
        mean=covariates.mean,
        mean_precision=covariates.mean_precision,
        strength=covariates.strength,
        general=covariates.fourth is not None,
        eta=eta,
        xi=root_xi @ root_xi.T,  # without eigenvalues that rounding has made negative
        root_eta=_root(eta),
        root_xi=root_xi,
    )


def augmented(problem: Problem) -> tuple[Floats, Floats]:
    """B = [[S, z], [z', u]] of every holder as published, and the noise's standard deviation on each entry."""
    p = problem.order
    B, sd = np.zeros((2, problem.J, p + 1, p + 1))
    B[:, :p, :p], sd[:, :p, :p] = problem.S, problem.sd_S
    B[:, :p, p], sd[:, :p, p] = problem.z, problem.sd_z
    B[:, p, :p], sd[:, p, :p] = problem.z, problem.sd_z
    B[:, p, p], sd[:, p, p] = problem.u, problem.sd_u
    if problem.units.constant:
        sd[:, 0, 0] = 0.0
    return B, sd


def _way(sd: Floats, may: bool, first: int) -> int:
    if not sd.any():
        return EXACT
    s = sd[-1, -1]
    isotropic = np.full(sd.shape, s / np.sqrt(2.0))
    np.fill_diagonal(isotropic, s)
    if first:
        isotropic[0, 0] = 0.0
    return SPECTRAL if may and s > 0.0 and np.allclose(sd, isotropic, rtol=ISOTROPIC, atol=0.0) else DENSE


def _root(matrix: Floats) -> Floats:
    """A square root of a positive semi-definite matrix that may be singular."""
    values, vectors = np.linalg.eigh(matrix)
    return np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def start(model: Model, rng: np.random.Generator) -> State:
    """Possible sums near the published ones, noise added once more so that chains start apart; the rest follows."""
    J, d = model.n.size, model.mu.shape[1]
    B = np.stack([_possible(model, j, rng) for j in range(J)])
    mu = model.mu.copy()
    if model.constant and model.update:
        for block in range(len(mu)):
            here = model.block == block
            mu[block] = B[here, 0, 1 : 1 + d].sum(axis=0) / model.n[here].sum()
    rows = B[:, -1, -1].sum() / model.n.sum()
    scales = model.scales
    return State(
        B=B,
        variances=2.0 * scales**2 if model.laplace else scales**2,
        mu=mu,
        factor=model.factor.copy(),
        theta=model.prior_mean.copy(),
        v=np.array([max(rows, 1e-12)]),
        begun=np.zeros(J),
        possible=np.zeros(J),
        taken=np.zeros(J),
        sweeps=np.zeros(2),
    )


def _possible(model: Model, j: int, rng: np.random.Generator) -> Floats:
    """Eigenvalues of the scatter lie in what n rows of scaled columns can have, or what little noise says."""
    if model.way[j] == EXACT:
        return np.array(model.B[j])
    n, first = model.n[j], model.constant
    B = np.array(model.B[j])
    rows, columns = model.entries.T
    noise = model.scales[j] * rng.standard_normal(len(rows))
    B[rows, columns] += noise
    B[columns, rows] = B[rows, columns]
    q = B.shape[0] - first
    mean = np.clip(B[0, 1:] / n, -1.0, 1.0) if first else np.zeros(q)
    values, vectors = np.linalg.eigh(B[first:, first:] - n * np.outer(mean, mean))
    believed = np.linalg.eigvalsh(model.B[j][first:, first:])[-1] - 4.0 * np.sqrt(q) * model.scales[j].max()
    values = np.clip(values, 0.01 * n, max(n * q, believed))
    B[first:, first:] = (vectors * values) @ vectors.T + n * np.outer(mean, mean)
    if first:
        B[0, 1:] = B[1:, 0] = n * mean
        B[0, 0] = n
    return B
