"""gibbs-update: a sweep next to a direct NumPy transcription of 002's Alg. 1 (``growth`` has other sizes).

The transcription keeps all d^2 + d + 1 entries of (vec S, z, u), as the paper counts them, and is kind to NumPy:
moments in closed form by einsum (the paper differentiates), one factorisation for the gain and one for the draw. All
are timed on one core, one chain, per sweep, rounds in turn, the least time of each. Target at d = 10: ten times faster.
Say OPENBLAS_NUM_THREADS=1 in front, or NumPy takes more cores than one.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

import noisewise as nw
from benchmarks import text_table
from noisewise.analyst.methods.base import Run
from noisewise.analyst.methods.gibbs import GibbsUpdate
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior
from noisewise.gram import Floats

ROWS, NOISE, TARGET = 2000, 10.0, 10.0


def release(d: int, holder: int = 0) -> nw.Release:
    """Sums of zero-mean normal rows with isotropic noise, no intercept (000, App. C.1)."""
    rng = np.random.default_rng([d, holder])
    X = 0.5 * rng.standard_normal((ROWS, d))
    y = X @ rng.normal(0, 0.5 / np.sqrt(d), d) + 0.3 * rng.standard_normal(ROWS)
    sd_S = np.full((d, d), NOISE / np.sqrt(2.0))
    np.fill_diagonal(sd_S, NOISE)
    noise = np.triu(sd_S * rng.standard_normal((d, d)))
    S = X.T @ X + noise + np.triu(noise, 1).T
    z = X.T @ y + NOISE / np.sqrt(2.0) * rng.standard_normal(d)
    u = float(y @ y + NOISE * rng.standard_normal())
    return nw.Release.from_statistics(S, z, ROWS, sd_S, NOISE / np.sqrt(2.0), u, NOISE)


def ours(d: int, holders: int, sweeps: int, *, spectral: bool) -> Callable[[], object]:
    problem = Problem.of([release(d, j) for j in range(holders)])
    prior = Prior().in_scaled_units(problem.units)
    method = GibbsUpdate(warmup=1, thin=sweeps, cores=1, spectral=spectral)
    return lambda: method.sample(problem, prior, Run(1, 1, np.random.SeedSequence(1)))


def transcription(d: int, sweeps: int) -> Callable[[], object]:
    """002, Alg. 1 with Gaussian noise (000, App. C.1), entry by entry as printed."""
    given = release(d).sufficient
    observed = np.concatenate([given.S.ravel(), given.z, [given.u]])
    noise = np.concatenate([given.sd_S.ravel(), given.sd_z, [given.sd_u]]) ** 2
    rng = np.random.default_rng(1)
    n, a0, b0, kappa, Lambda = ROWS, 2.0, 0.1, d + 2.0, 0.2 * np.eye(d)

    def sweep(theta: Floats, v: float, Sigma: Floats) -> tuple[Floats, float, Floats]:
        mean, covariance = moments(theta, v, Sigma)
        prior = n * covariance
        gain = np.linalg.solve(prior + np.diag(noise), prior).T
        posterior = prior - gain @ prior
        # each off-diagonal entry is there twice, so the covariance is singular and needs a ridge
        factor = np.linalg.cholesky(posterior + 1e-9 * np.trace(posterior) * np.eye(len(posterior)))
        s = n * mean + gain @ (observed - n * mean) + factor @ rng.standard_normal(len(mean))
        S, z, u = s[: d * d].reshape(d, d), s[d * d : -1], s[-1]
        values, vectors = np.linalg.eigh(np.block([[(S + S.T) / 2, z[:, None]], [z, u]]))
        B = (vectors * np.maximum(values, 1e-9)) @ vectors.T  # projected where it is impossible
        S, z, u = B[:d, :d], B[:d, d], B[d, d]
        half = np.linalg.inv(np.linalg.cholesky(Lambda + S))
        T = np.tril(rng.standard_normal((d, d)), -1) + np.diag(np.sqrt(rng.chisquare(n + kappa - np.arange(d))))
        W = half.T @ T
        Sigma = np.linalg.inv(W @ W.T)
        precision = np.eye(d) + S / v
        theta = np.linalg.solve(precision, z / v) + np.linalg.solve(
            np.linalg.cholesky(precision).T, rng.standard_normal(d)
        )
        v = (b0 + 0.5 * (u - 2 * theta @ z + theta @ S @ theta)) / rng.gamma(a0 + n / 2)
        return theta, v, Sigma

    def task() -> Floats:
        theta, v, Sigma = np.zeros(d), 0.1, np.eye(d) / 4
        for _ in range(sweeps):
            theta, v, Sigma = sweep(theta, v, Sigma)
        return theta

    return task


def moments(theta: Floats, v: float, eta: Floats) -> tuple[Floats, Floats]:
    """002, Eqs. 2 and 3 with xi of the zero-mean normal, as four-way arrays."""
    d = theta.size
    xi = np.einsum("ik,jl->ijkl", eta, eta) + np.einsum("il,jk->ijkl", eta, eta)
    line = eta @ theta
    mean = np.concatenate([eta.ravel(), line, [v + theta @ line]])
    once = xi @ theta
    twice = once @ theta
    thrice = np.einsum("ijkl,j,k,l->i", xi, theta, theta, theta, optimize=True)
    middle = v * eta + np.einsum("ikjl,k,l->ij", xi, theta, theta, optimize=True)
    last = 2 * v**2 + theta @ thrice + 4 * v * theta @ line
    side = (thrice + 2 * v * line)[:, None]
    flat, cross, edge = xi.reshape(d * d, d * d), once.reshape(d * d, d), twice.reshape(d * d, 1)
    return mean, np.block([[flat, cross, edge], [cross.T, middle, side], [edge.T, side.T, np.array([[last]])]])


def run(quick: bool = False) -> str:
    rounds = 2 if quick else 5
    ours(2, 1, 10, spectral=True)()  # compiles once, or reads the cache
    ten = in_turn(
        {
            "NumPy": (transcription(10, 50), 50),
            "dense": (ours(10, 1, 1000, spectral=False), 1000),
            "eigenbasis": (ours(10, 1, 3000, spectral=True), 3000),
        },
        rounds,
    )
    rows = [
        ("NumPy transcription, 111 entries", _us(ten["NumPy"]), ""),
        ("dense draw, 66 unique entries", _us(ten["dense"]), f"{ten['NumPy'] / ten['dense']:.0f}"),
        ("draw in the eigenbasis", _us(ten["eigenbasis"]), f"{ten['NumPy'] / ten['eigenbasis']:.0f}"),
    ]
    return text_table(
        f"one sweep at d = 10, J = 1, n = {ROWS}; target: at least {TARGET:.0f} times faster",
        ("", "us", "times faster"),
        rows,
    )


def in_turn(tasks: Mapping[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """The least CPU time of each, in seconds per sweep; rounds alternate so that a busy machine hits all alike."""
    least = dict.fromkeys(tasks, np.inf)
    for _ in range(rounds):
        for name, (task, sweeps) in tasks.items():
            start = time.process_time()
            task()
            least[name] = min(least[name], (time.process_time() - start) / sweeps)
    return least


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f}"
