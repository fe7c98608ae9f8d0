"""individual: what a latent row per person costs as people grow in number and noise gets small; exact beside it."""

import numpy as np

import noisewise as nw
from benchmarks import text_table
from benchmarks.exact import timed
from noisewise.analyst.methods.exact import Exact
from noisewise.analyst.methods.individual import Individual
from noisewise.analyst.model import Problem


def problem(d: int, n: int, noise: float, law: str = "gaussian") -> Problem:
    rng = np.random.default_rng(1)
    X = rng.normal(0, 0.4, (n, d))
    y = X @ rng.normal(0, 0.5, d) + 0.3 * rng.standard_normal(n)
    e = np.tril(rng.standard_normal((d + 1, d + 1)) if law == "gaussian" else rng.laplace(0, 0.5**0.5, (d + 1, d + 1)))
    A = np.column_stack([X, y]).T @ np.column_stack([X, y]) + noise * (e + np.tril(e, -1).T)
    sds = {"sd_S": noise, "sd_z": noise, "u": A[d, d], "sd_u": noise}
    return Problem.of([nw.Release.from_statistics(A[:d, :d], A[:d, d], n, noise=law, **sds)])


def run(quick: bool = False) -> str:
    timed(Exact(warmup=100), problem(1, 20, 5.0), 50)  # compile, or read what is on disk
    timed(Individual(warmup=100), problem(1, 20, 5.0), 50)
    sizes = ((1, 100, 10.0, "gaussian"), (1, 1000, 10.0, "gaussian"), (4, 1000, 10.0, "gaussian"))
    if not quick:
        sizes += ((4, 4000, 10.0, "gaussian"), (1, 100, 1.0, "gaussian"), (1, 100, 0.1, "gaussian"))
        sizes += ((1, 100, 1.0, "laplace"), (1, 100, 0.1, "laplace"))
    rows = []
    for d, n, noise, law in sizes:
        given = problem(d, n, noise, law)
        mine, its = timed(Individual(), given, 1000), timed(Exact(), given, 1000)
        depth = float(mine.result.statistics["tree_depth"].mean())
        numbers = (f"{mine.cpu:.1f}", f"{mine.ess:,.0f}", f"{depth:.1f}", f"{its.cpu:.1f}", f"{its.ess:,.0f}")
        rows.append((f"d = {d}, n = {n:,}, noise sd {noise:g}, {law}", *numbers))
    return text_table(
        "4 chains of 1,000 draws, no intercept; CPU seconds, smallest effective sample, mean log2 of gradients a draw",
        ("", "CPU s", "effective", "depth", "exact: CPU s", "effective"),
        rows,
    )
