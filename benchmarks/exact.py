"""exact next to normal-x, the paper's sampler of the same model: effective draws of theta a CPU second.

Ten holders of 1000 rows, epsilon 1, S and z released (y'y is left out: normal-x does not read it). Warm-up, pilot and
repeated runs are all in the time. normal-x runs twice: with our joint moves, and with the moves of the paper's
Algorithm 1 alone, for long, so that its effective draws can be counted. Targets: 50 times the latter at d = 5, 10 times
at d = 14; at d = 30 a posterior with R-hat below 1.01 and 400 effective draws within five minutes on two cores. Then
exact under Laplace noise, with its kink rounded and kept.
"""

import time
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import noisewise as nw
from benchmarks import text_table
from noisewise.analyst.diagnostics import rhat_and_ess
from noisewise.analyst.methods.base import Draws, Method, Run
from noisewise.analyst.methods.exact import Exact, anchor
from noisewise.analyst.methods.normal_x import NormalX
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior
from noisewise.privacy.noise import SimulatedNoise

J, ROWS = 10, 1000
LONG = {5: 40_000, 14: 100_000}  # draws of the paper's chains, each of five sweeps


class Timed(NamedTuple):
    result: Draws
    cpu: float
    wall: float
    rhat: float
    ess: float


def problem(d: int, mechanism: str = "gaussian", J: int = J, rows: int = ROWS) -> Problem:
    """Normal features of standard deviation 0.4 with correlations, clipped to their bounds like any others."""
    rng = np.random.default_rng(d)
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(d)]
    delta = 1e-5 if mechanism == "gaussian" else None
    target = nw.Column("y", -2, 2)
    study = nw.Study(columns, target, epsilon=1.0, delta=delta, mechanism=mechanism, release_yy=False)
    mix = 0.3 * rng.standard_normal((d, d)) / np.sqrt(d) + np.eye(d)
    theta = rng.normal(0, 0.3, d)
    releases = []
    for j in range(J):
        X = 0.4 * rng.standard_normal((rows, d)) @ mix
        y = X @ theta + 0.3 * rng.standard_normal(rows)
        holder = nw.Holder(study, ledger=None, name=f"holder {j + 1}", noise=SimulatedNoise(rng))
        releases.append(holder.release(np.column_stack([X, y])))
    return Problem.of(releases)


def timed(method: Method, given: Problem, draws: int) -> Timed:
    prior = Prior().in_scaled_units(given.units)
    wall, cpu = time.perf_counter(), time.process_time()
    result = method.sample(given, prior, Run(draws, 4, np.random.SeedSequence(1)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    rhat, bulk, tail = rhat_and_ess(result.theta)
    return Timed(result, cpu, wall, rhat, min(bulk, tail))


def run(quick: bool = False) -> str:
    import warnings

    warnings.simplefilter("ignore", nw.UnrecordedSpendWarning)
    timed(Exact(warmup=100), problem(1), 50)  # compile, or read what is on disk
    timed(NormalX(warmup=10), problem(1), 50)
    rows, notes = [], []
    for d in (5,) if quick else (5, 14):
        given = problem(d)
        ours = timed(Exact(), given, 1000)
        rows.append((f"d = {d}, exact", *_cells(ours)))
        peers = (("normal-x", NormalX(), 4000), ("normal-x, the paper's moves", NormalX(joint=False), LONG[d]))
        for name, peer, long in peers:
            its = timed(peer, given, 1000 if quick else long)
            rows.append((f"d = {d}, {name}", *_cells(its)))
            notes.append(f"d = {d}: exact / {name}: {_compared(ours, its)}")
    if not quick:
        rows.append(("d = 30, exact", *_cells(timed(Exact(), problem(30), 1000))))
    laplace = problem(5, "laplace")
    rounded = timed(Exact(), laplace, 1000)
    with patch.object(anchor, "UNEVEN", 0.0):
        kept = timed(Exact(), laplace, 1000)
    rows += [("d = 5, exact, Laplace", *_cells(rounded)), ("d = 5, exact, Laplace, kink kept", *_cells(kept))]
    notes.append(f"d = 5, Laplace: exact with its kink rounded / kept: {_compared(rounded, kept)}")
    return text_table(
        f"J = {J}, n_j = {ROWS}, epsilon 1, intercept, 4 chains on all cores",
        ("", "effective", "R-hat", "CPU s", "wall s", "effective / CPU s", "divergences", "gradients / s"),
        rows,
        notes,
    )


def _compared(ours: Timed, its: Timed) -> str:
    means = [one.result.theta.mean(axis=(0, 1)) for one in (ours, its)]
    gaps = (means[0] - means[1]) / ours.result.theta.std(axis=(0, 1))
    ratio = ours.ess * its.cpu / (ours.cpu * its.ess)
    return f"{ratio:.1f} (effective a CPU second); largest difference of means: {np.abs(gaps).max():.2f} sd"


def _cells(one: Timed) -> tuple[str, ...]:
    statistics = one.result.statistics
    diverged = f"{statistics['divergences'].sum():.0f}" if "divergences" in statistics else ""
    gradients = f"{statistics['gradients'].sum() / one.cpu:,.0f}" if "gradients" in statistics else ""
    return (
        f"{one.ess:,.0f}",
        f"{one.rhat:.3f}",
        f"{one.cpu:.1f}",
        f"{one.wall:.1f}",
        f"{one.ess / one.cpu:,.1f}",
        diverged,
        gradients,
    )


if __name__ == "__main__":
    print(run())
