"""normal-x: the compiled chain next to the same sweep in batched NumPy, and what its joint moves are worth.

Target: at d = 5, J = 10, 4 chains, at least 8 times faster per chain and iteration. The peer is vectorised over chains,
and over holders too wherever they move independently; both make the same moves with the same frozen scales on one core.
The paper's moves alone are timed as well: there NumPy vectorises everything over chains and holders.
"""

import time
from typing import NamedTuple

import numpy as np

import noisewise as nw
from benchmarks import text_table
from noisewise.analyst.diagnostics import rhat_and_ess
from noisewise.analyst.methods.believed import believed_covariates
from noisewise.analyst.methods.normal_x.chain import NormalXChain
from noisewise.analyst.methods.normal_x.start import constants, start
from noisewise.analyst.methods.normal_x.target import Data, State
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior

CHAINS, ROWS, NOISE = 4, 1000, 20.0


def problem(d: int, J: int) -> Problem:
    rng = np.random.default_rng(1)
    theta, made = rng.normal(0, 0.5, d), []
    for _ in range(J):
        X = rng.normal(0, 0.4, (ROWS, d))
        y = X @ theta + 0.3 * rng.standard_normal(ROWS)
        noise = np.tril(rng.normal(0, NOISE, (d, d)))
        S = X.T @ X + noise + np.tril(noise, -1).T
        made.append(nw.Release.from_statistics(S, X.T @ y + rng.normal(0, NOISE, d), ROWS, NOISE, NOISE))
    return Problem.of(made)


def warm_chains(d: int, J: int, joint: bool, warmup: int = 2000) -> tuple[Data, list[State], list[NormalXChain]]:
    given = problem(d, J)
    data = constants(given, Prior().in_scaled_units(given.units), believed_covariates(given, 0.2, None, 1.0), joint)
    states, chains = [], []
    for seed in range(CHAINS):
        rng = np.random.default_rng(seed)
        states.append(start(given, data, rng))
        chains.append(NormalXChain(data, states[-1], rng, 1))
        chains[-1].warm_up(warmup)
    return data, states, chains


class Batch(NamedTuple):
    """The state of all chains: (chains, ...)."""

    K: np.ndarray
    S: np.ndarray
    L: np.ndarray
    theta: np.ndarray
    log_v: np.ndarray
    log_step: np.ndarray


def bartlett(freedom: np.ndarray, d: int, sign: int, rng: np.random.Generator) -> np.ndarray:
    B = np.tril(rng.standard_normal((*freedom.shape, d, d)), -1)
    B[..., np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(freedom[..., None] + sign * np.arange(d)))
    return B


def propose(K: np.ndarray, log_step: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    d = K.shape[-1]
    alpha = np.clip(2.0 * np.exp(-2.0 * log_step), d + 1.0, 1e12)
    B = bartlett(alpha, d, -1, rng) / np.sqrt(alpha)[..., None, None]
    log_det = 2.0 * np.log(np.diagonal(B, axis1=-2, axis2=-1)).sum(-1)
    trace = (B**2).sum((-2, -1)) - (np.linalg.inv(B) ** 2).sum((-2, -1))
    return K @ B, 0.5 * alpha * trace - (alpha - 0.5 * (d + 1)) * log_det, log_det


def noise_fit(data: Data, S: np.ndarray) -> np.ndarray:
    return -0.5 * (np.tril(data.weight) * (data.S - S) ** 2).sum((-2, -1))


def fit_z(data: Data, S: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
    G = np.linalg.cholesky(v[:, None, None, None] * S + data.noise[:, :, None] * np.eye(S.shape[-1]))
    e = np.linalg.solve(G, (data.z - (S @ theta[:, None, :, None])[..., 0])[..., None])[..., 0]
    return -np.log(np.diagonal(G, axis1=-2, axis2=-1)).sum(-1) - 0.5 * (e**2).sum(-1)


def contributions(data: Data, holders: slice, S: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What holders add to (precision, pull) of theta, as the blocks of X'X, and to the log evidence."""
    G = np.linalg.cholesky(v[:, None, None, None] * S + data.noise[holders, :, None] * np.eye(S.shape[-1]))
    z = np.broadcast_to(data.z[holders, :, None], (*S.shape[:-1], 1))
    X = np.linalg.solve(G, np.concatenate([S, z], axis=-1))
    inner = np.swapaxes(X, -1, -2) @ X
    gap = np.tril(data.weight[holders]) * (data.S[holders] - S) ** 2
    log_det = np.log(np.diagonal(G, axis1=-2, axis2=-1)).sum(-1)
    return inner, -0.5 * gap.sum((-2, -1)) - log_det - 0.5 * inner[..., -1, -1]


def theta_evidence(data: Data, inner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    P = np.linalg.cholesky(data.precision + inner[:, :-1, :-1])
    h = np.linalg.solve(P, (data.pull + inner[:, :-1, -1])[..., None])[..., 0]
    return 0.5 * (h**2).sum(-1) - np.log(np.diagonal(P, axis1=-2, axis2=-1)).sum(-1), P, h


def choose(accept: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(accept.reshape(accept.shape + (1,) * (new.ndim - accept.ndim)), new, old)


def choleskys(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors, and which matrices have one; an identity stands where there is none."""
    try:
        return np.linalg.cholesky(S), np.ones(S.shape[:-2], dtype=bool)
    except np.linalg.LinAlgError:  # rare: then find out which
        definite = np.linalg.eigvalsh(S)[..., 0] > 0
        return np.linalg.cholesky(choose(definite, S, np.broadcast_to(np.eye(S.shape[-1]), S.shape))), definite


def symmetric(sd: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    lower = np.tril(sd * rng.standard_normal(shape))
    return lower + np.swapaxes(np.tril(lower, -1), -1, -2)


def half_log_det(K: np.ndarray) -> np.ndarray:
    return np.log(np.diagonal(K, axis1=-2, axis2=-1)).sum(-1)


def trace(L: np.ndarray, K: np.ndarray) -> np.ndarray:
    return (np.linalg.solve(L, K) ** 2).sum((-2, -1))


def numpy_sweep(data: Data, state: Batch, rng: np.random.Generator, joint: bool) -> Batch:
    """The sweep of ``NormalXChain`` without a constant, for all chains at once; ``joint=False``: the paper's moves."""
    K, S, L, theta, log_v, log_step = state
    C, J, d = K.shape[:3]
    G = np.linalg.cholesky(data.Lambda + S.sum(1))
    B = bartlett(np.full(C, data.kappa + data.n.sum() - d + 1.0), d, 1, rng)
    L = np.swapaxes(np.linalg.solve(np.swapaxes(B, -1, -2), np.swapaxes(G, -1, -2)), -1, -2)
    v, everyone = np.exp(log_v), slice(None)
    inner, c = contributions(data, everyone, S, v)
    if joint:
        K, S, L, inner, c = numpy_move_all(data, K, S, L, v, inner, c, log_step, rng)
        K, S, inner, c = numpy_move_entries(data, K, S, L, v, inner, c, log_step, rng)
    _, P, h = theta_evidence(data, inner.sum(1))
    theta = np.linalg.solve(np.swapaxes(P, -1, -2), (h + rng.standard_normal((C, d)))[..., None])[..., 0]
    proposal = log_v + np.exp(log_step[:, 3 * J + 2]) * rng.standard_normal(C)
    ratio = -data.shape * (proposal - log_v) - data.scale * (np.exp(-proposal) - np.exp(-log_v))
    # as in the compiled sweep: the fit at the old v follows from the contributions, with no factorisation
    both = np.concatenate([theta, np.full((C, 1), -1.0)], axis=1)[:, None, :, None]
    old_fit = c + 0.5 * inner[..., -1, -1] - 0.5 * (np.swapaxes(both, -1, -2) @ inner @ both)[..., 0, 0]
    new_fit = fit_z(data, S, np.exp(proposal), theta) + noise_fit(data, S)
    accept = np.log(rng.random(C)) < ratio + (new_fit - old_fit).sum(1)
    log_v, here = choose(accept, proposal, log_v), choose(accept, new_fit, old_fit)
    new_K, ratio, log_det = propose(K, log_step[:, :J], rng)
    new_S = new_K @ np.swapaxes(new_K, -1, -2)
    there = noise_fit(data, new_S) + fit_z(data, new_S, np.exp(log_v), theta)
    ratio = ratio + there - here + 0.5 * (data.freedom - d - 1.0) * log_det
    ratio = ratio - 0.5 * (trace(L[:, None], new_K) - trace(L[:, None], K))
    accept = np.log(rng.random((C, J))) < ratio
    return Batch(choose(accept, new_K, K), choose(accept, new_S, S), L, theta, log_v, log_step)


def numpy_move_all(data, K, S, L, v, inner, c, log_step, rng):  # type: ignore[no-untyped-def]
    """Sigma_x with all scatters; one coin for all chains, which spares NumPy half the work."""
    C, J, d = K.shape[:3]
    definite = np.ones(C, dtype=bool)
    if rng.random() < 0.5:
        new_L, ratio, log_det = propose(L, log_step[:, 3 * J], rng)
    else:
        step = np.exp(log_step[:, 3 * J + 3])[:, None, None]
        new_L, definite = choleskys(L @ np.swapaxes(L, -1, -2) + step * symmetric(data.sd_all, (C, d, d), rng))
        ratio, log_det = np.zeros(C), 2.0 * (half_log_det(new_L) - half_log_det(L))
    new_K = new_L[:, None] @ np.linalg.solve(L[:, None], K)
    new_S = new_K @ np.swapaxes(new_K, -1, -2)
    new_inner, new_c = contributions(data, slice(None), new_S, v)
    ratio = ratio + theta_evidence(data, new_inner.sum(1))[0] + new_c.sum(1)
    ratio = ratio - theta_evidence(data, inner.sum(1))[0] - c.sum(1) - 0.5 * (data.kappa + d + 1.0) * log_det
    ratio = ratio - 0.5 * (trace(new_L, data.root_Lambda) - trace(L, data.root_Lambda))
    accept = definite & (np.log(rng.random(C)) < ratio)
    pairs = ((new_K, K), (new_S, S), (new_L, L), (new_inner, inner), (new_c, c))
    return tuple(choose(accept, new, old) for new, old in pairs)


def numpy_move_entries(data, K, S, L, v, inner, c, log_step, rng):  # type: ignore[no-untyped-def]
    """Each S_j in turn: with theta integrated out a holder's move needs the others' last states."""
    C, J, d = K.shape[:3]
    total = inner.sum(1)
    here = theta_evidence(data, total)[0]
    for j in range(J):
        step = np.exp(log_step[:, 2 * J + j])[:, None, None]
        new_S = S[:, j] + step * symmetric(data.sd[j], (C, d, d), rng)
        new_K, definite = choleskys(new_S)
        new_S = choose(definite, new_S, S[:, j])
        new_inner, new_c = (value[:, 0] for value in contributions(data, slice(j, j + 1), new_S[:, None], v))
        there = theta_evidence(data, total - inner[:, j] + new_inner)[0]
        ratio = there - here + new_c - c[:, j] - 0.5 * (trace(L, new_K) - trace(L, K[:, j]))
        ratio = ratio + (data.freedom[j] - d - 1.0) * (half_log_det(new_K) - half_log_det(K[:, j]))
        accept = definite & (np.log(rng.random(C)) < ratio)
        total = choose(accept, total - inner[:, j] + new_inner, total)
        here = np.where(accept, there, here)
        for array, new in ((K, new_K), (S, new_S), (inner, new_inner), (c, new_c)):
            array[:, j] = choose(accept, new, array[:, j])
    return K, S, inner, c


def stacked(states: list[State]) -> Batch:
    arrays = {name: np.stack([getattr(state, name) for state in states]) for name in Batch._fields}
    return Batch(**{**arrays, "log_v": arrays["log_v"][:, 0]})


class Speed(NamedTuple):
    """Seconds per chain and iteration, and how far posterior means are apart, in sds."""

    ours: float
    theirs: float
    gap: float


def compare(d: int, J: int, joint: bool, sweeps: int, rounds: int) -> Speed:
    data, states, chains = warm_chains(d, J, joint)
    kept = np.empty((sweeps, d + 1 + d * (d + 1) // 2))
    ours, theirs, mine, others = [], [], [], []
    rng, batch, part = np.random.default_rng(9), stacked(states), max(1, sweeps // 4)
    for _ in range(rounds):  # in turn, and by CPU time, so that a busy machine slows both alike or neither
        begin = time.process_time()
        for chain in chains:
            chain.draw(1, kept)
            mine.append(kept[:, :d].copy())
        ours.append((time.process_time() - begin) / (CHAINS * sweeps))
        begin = time.process_time()
        for _ in range(part):
            batch = numpy_sweep(data, batch, rng, joint)
            others.append(batch.theta)
        theirs.append((time.process_time() - begin) / (CHAINS * part))
    a, b = np.concatenate(mine), np.concatenate(others)
    gap = float(np.max(np.abs(a.mean(axis=0) - b.mean(axis=0)) / a.std(axis=0)))
    return Speed(min(ours), min(theirs), gap)


def effective(d: int, J: int, sweeps: int, joint: bool) -> tuple[float, float]:
    """The least effective draws of theta in a thousand sweeps, and R-hat."""
    _, _, chains = warm_chains(d, J, joint)
    kept = np.empty((CHAINS, sweeps, d + 1 + d * (d + 1) // 2))
    for chain, part in zip(chains, kept, strict=True):
        chain.draw(1, part)
    rhat, bulk, _ = rhat_and_ess(kept[..., :d])
    return 1000.0 * bulk / (CHAINS * sweeps), rhat


def run(quick: bool = False) -> str:
    sweeps, rounds = (200, 3) if quick else (1000, 5)
    rows, cost = [], {}
    for joint, name in ((False, "the paper's moves"), (True, "all moves")):
        for d, J in ((2, 1), (5, 1), (5, 10), (10, 10)):
            speed = compare(d, J, joint, sweeps, rounds)
            cost[joint, d, J] = speed.ours
            numbers = (f"{1e6 * speed.ours:.1f}", f"{1e6 * speed.theirs:.1f}", f"{speed.theirs / speed.ours:.1f}")
            rows.append((f"{name}, d = {d}, J = {J}", *numbers, "8" if (d, J) == (5, 10) else "", f"{speed.gap:.2f}"))
    length = 2_000 if quick else 20_000
    notes = []
    for joint, name in ((False, "the paper's moves"), (True, "all moves")):
        found, rhat = effective(5, 10, length, joint)
        notes.append(
            f"{name}, d = 5, J = 10: {found:.1f} effective draws of theta in 1,000 sweeps (R-hat {rhat:.3f}), "
            f"{found / 1000 / cost[joint, 5, 10]:,.0f} a second"
        )
    return text_table(
        f"n_j = {ROWS:,}, noise sd {NOISE:g} on every entry, {CHAINS} chains, one core; least of {rounds} rounds",
        ("us per chain and iteration", "ours", "NumPy", "ratio", "target", "gap of means, sds"),
        rows,
        notes,
    )
