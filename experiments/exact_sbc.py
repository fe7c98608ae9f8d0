"""Simulation-based calibration of method "exact" over the grid of n, epsilon, d, J and noise law.

    python experiments/exact_sbc.py --trials 500            the whole grid; stop and start again as you like
    python experiments/exact_sbc.py --trials 20 --n 30 --epsilon 1
    python experiments/exact_sbc.py --covariates uniform bernoulli lognormal --method exact weak fixed-s

Every trial draws the parameters from the prior, rows from the model, noise from the study's own plan, fits, and writes
the rank of each true value among thinned draws as one line of the results file. What is there is not done again.
The table and figure (docs/exact-sbc.md, docs/exact-sbc.svg) are made from all lines that exist.
"""

import argparse
import itertools
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise.analyst.methods.base import Run
from noisewise.analyst.methods.exact import Exact
from noisewise.analyst.methods.fixed_s import FixedS
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior, ScaledPrior
from noisewise.column import Column
from noisewise.gram import Floats, Layout
from noisewise.privacy.calibration import plan_noise
from noisewise.release import Release
from noisewise.study import Study

THINNED = 99  # ranks lie in 0 ... 99
ROOT = Path(__file__).resolve().parent.parent


class Cell(NamedTuple):
    n: int
    epsilon: float
    d: int
    J: int
    law: str
    covariates: str
    method: str


def study_of(cell: Cell) -> Study:
    features = tuple(Column(f"x{i + 1}", -1, 1) for i in range(cell.d))
    delta = 1e-5 if cell.law == "gaussian" else None
    return Study(features, Column("y", -1, 1), epsilon=cell.epsilon, delta=delta, mechanism=cell.law)  # type: ignore[arg-type]


def rows_of(cell: Cell, mu: Floats, Sigma: Floats, rng: np.random.Generator) -> Floats:
    """Covariates in scaled units: the model's own, or others within their bounds."""
    shape = (cell.n, cell.d)
    if cell.covariates == "uniform":
        return rng.uniform(-1.0, 1.0, shape)
    if cell.covariates == "bernoulli":
        return np.where(rng.random(shape) < 0.3, 1.0, -1.0)
    if cell.covariates == "lognormal":  # of bounds 0 and 5
        return np.minimum(rng.lognormal(size=shape), 5.0) / 2.5 - 1.0
    return rng.multivariate_normal(mu, Sigma, cell.n, method="cholesky")


def simulate(cell: Cell, prior: ScaledPrior, rng: np.random.Generator) -> tuple[Problem, Floats]:
    """Releases of rows (nothing clipped or rounded: the model itself), and the true (theta, log v)."""
    from scipy.stats import invwishart

    d, study = cell.d, study_of(cell)
    Sigma = np.atleast_2d(invwishart(d + 2, Exact().covariate_scatter * np.eye(d)).rvs(random_state=rng))
    mu = Exact().mean_spread * rng.standard_normal(d)
    theta = rng.multivariate_normal(prior.mean, prior.covariance, method="cholesky")
    v = prior.scale / rng.gamma(prior.shape)
    layout, plan = Layout.of(study), plan_noise(study)
    releases = []
    for j in range(cell.J):
        x = rows_of(cell, mu, Sigma, rng)
        y = theta[0] + x @ theta[1:] + np.sqrt(v) * rng.standard_normal(cell.n)
        w = np.column_stack([np.ones(cell.n), x, y])
        standard = rng.standard_normal if cell.law == "gaussian" else rng.laplace
        values = layout.pick(w.T @ w) + np.array(plan.scales) * standard(size=len(plan.scales))
        releases.append(Release(layout, tuple(values.tolist()), 0, plan.law, plan.scales, study, holder=f"h{j}"))
    return Problem.of(releases), np.append(theta, np.log(v))


def trial(cell: Cell, number: int) -> dict[str, Any]:
    """One line of the results: ranks, whether 95% intervals hold the truth, and how the sampler fared."""
    kinds = [cell.law == "laplace", ("normal", "uniform", "bernoulli", "lognormal").index(cell.covariates)]
    rng = np.random.default_rng([number, cell.n, round(1000 * cell.epsilon), cell.d, cell.J, *kinds])
    from noisewise.analyst.diagnostics import rhat_and_ess
    from noisewise.analyst.units import Units

    prior = Prior().in_scaled_units(Units.of_study(study_of(cell)))
    problem, truth = simulate(cell, prior, rng)
    seed = np.random.SeedSequence(int(rng.integers(2**62)))
    began = time.process_time()
    method = FixedS() if cell.method == "fixed-s" else Exact("weak" if cell.method == "weak" else "normal", cores=1)
    result = method.sample(problem, prior, Run(500, 4, seed))
    draws = np.concatenate([result.theta, np.log(result.variance)[..., None]], axis=2)
    rhat, bulk, _ = rhat_and_ess(draws)
    flat = draws.reshape(-1, draws.shape[2])
    thinned = flat[np.linspace(0, len(flat) - 1, THINNED).round().astype(int)]
    lower, upper = np.quantile(flat, [0.025, 0.975], axis=0)
    return {
        "cell": list(cell),
        "trial": number,
        "ranks": (thinned < truth).sum(axis=0).tolist(),
        "covered": ((lower <= truth) & (truth <= upper)).tolist(),
        "divergences": float(result.statistics.get("divergences", np.zeros(1)).sum()),
        "sd": draws.std(axis=(0, 1))[:-1].mean(),
        "rhat": rhat,
        "ess": bulk,
        "seconds": time.process_time() - began,
    }


def band(trials: int, coverage: float = 0.99, simulations: int = 20_000) -> float:
    """How far the ranks' distribution function may be from the straight line, at this coverage, if all is well.

    It holds over all ranks at once: the quantile of that distance for uniform ranks, by simulation.
    """
    rng = np.random.default_rng(0)
    distances = []
    for _ in range(simulations // 1000):
        counts = np.zeros((1000, THINNED + 1))
        ranks = rng.integers(0, THINNED + 1, size=(1000, trials))
        np.add.at(counts, (np.arange(1000)[:, None], ranks), 1.0)
        distances.append(np.abs(counts.cumsum(axis=1) / trials - np.arange(1, THINNED + 2) / (THINNED + 1)).max(axis=1))
    return float(np.quantile(np.concatenate(distances), coverage))


def distance(ranks: Floats) -> float:
    levels = np.arange(THINNED + 1)
    return float(np.abs((ranks[:, None] <= levels).mean(axis=0) - (levels + 1) / (THINNED + 1)).max())


def report(lines: list[dict[str, Any]], docs: Path) -> None:
    """The table and the figure."""
    cells: dict[Cell, list[dict[str, Any]]] = {}
    for line in lines:
        cells.setdefault(Cell(*line["cell"]), []).append(line)
    rows = []
    for cell, found in sorted(cells.items()):
        ranks, covered = (np.array([line[key] for line in found], dtype=float) for key in ("ranks", "covered"))
        far = max(distance(column) for column in ranks.T)
        # one band for all quantities of a cell: Bonferroni keeps 99% together
        limit = band(len(found), 1.0 - 0.01 / ranks.shape[1])
        each = covered.mean(axis=0)
        numbers = (far, limit, covered.mean(), each.min(), each.max(), np.mean([line["sd"] for line in found]))
        agreed, seconds = (
            np.mean([f(line) for line in found]) for f in (lambda x: x["rhat"] < 1.01, lambda x: x["seconds"])
        )
        diverged = sum(line["divergences"] for line in found)
        row = [*map(str, cell), len(found), *(f"{number:.3f}" for number in numbers)]
        rows.append("| " + " | ".join(map(str, [*row, f"{diverged:.0f}", f"{agreed:.2f}", f"{seconds:.1f}"])) + " |")
    head = (
        "# Calibration of `exact`\n\nMade by `experiments/exact_sbc.py`. Ranks of true values of theta and log v among "
        f"{THINNED} thinned draws; parameters drawn from the prior. *Distance*: the largest one of "
        "the ranks' distribution from uniform over all quantities; *band*: what 99% of correct samplers stay below, "
        "over all ranks and quantities of a cell at once. *Coverage* of 95% intervals: mean, least and largest over "
        "the quantities. *Agreed*: the share of fits with R-hat below 1.01. Seconds are CPU seconds a fit.\n\n"
        "| n | epsilon | d | J | noise | covariates | method | trials | distance | band | coverage | least | largest "
        "| sd of theta | divergences "
        "| agreed | s |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    (docs / "exact-sbc.md").write_text(head + "\n".join(rows) + "\n\n![Ranks](exact-sbc.svg)\n", encoding="utf-8")
    draw(cells, docs / "exact-sbc.svg")


def draw(cells: dict[Cell, list[dict[str, Any]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    levels = np.arange(THINNED + 1)
    for cell, found in cells.items():
        if (cell.covariates, cell.method) != ("normal", "exact"):
            continue  # where the model is not the one that made the rows, ranks need not be uniform
        ranks = np.array([line["ranks"] for line in found])
        scale = band(len(found), 0.99, 2000)
        for column in ranks.T:
            gap = (column[:, None] <= levels).mean(axis=0) - (levels + 1) / (THINNED + 1)
            axes.plot(levels / THINNED, gap / scale, color="tab:blue", alpha=0.3, linewidth=0.8)
    for edge in (-1, 1):
        axes.axhline(edge, color="black", linewidth=1)
    axes.set_xlabel("rank of the true value")
    axes.set_ylabel("distance from uniform, in 99% bands")
    figure.savefig(path)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--n", type=int, nargs="+", default=[10, 30, 100, 1000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.5, 1.0, 5.0])
    parser.add_argument("--d", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--holders", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--law", nargs="+", default=["gaussian", "laplace"])
    parser.add_argument("--covariates", nargs="+", default=["normal"])
    parser.add_argument("--method", nargs="+", default=["exact"], choices=["exact", "weak", "fixed-s"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this long; what is done is kept")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "exact-sbc.jsonl")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    if options.results.exists():
        lines = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines()]
    done = {(Cell(*line["cell"]), line["trial"]) for line in lines}
    grid = (options.n, options.epsilon, options.d, options.holders, options.law, options.covariates, options.method)
    cells = [Cell(*choice) for choice in itertools.product(*grid)]
    # trial by trial over all cells: an interrupted run has some of each
    wanted = [(cell, number) for number in range(options.trials) for cell in cells if (cell, number) not in done]
    began = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool, options.results.open("a", encoding="utf-8") as out:
        queue = iter(wanted)
        running = {pool.submit(trial, *work) for work in itertools.islice(queue, 2 * options.workers)}
        finished = 0
        while running:
            future = next(as_completed(running))
            running.remove(future)
            lines.append(future.result())
            out.write(json.dumps(lines[-1]) + "\n")
            out.flush()
            finished += 1
            if time.monotonic() - began < 60 * options.minutes:
                running |= {pool.submit(trial, *work) for work in itertools.islice(queue, 1)}
            if finished % 10 == 0:
                spent = time.monotonic() - began
                sys.stderr.write(f"\r{finished}/{len(wanted)} trials, {spent / 60:.1f} min ")
    sys.stderr.write("\n")
    if lines:
        report(lines, options.docs)


if __name__ == "__main__":
    main(sys.argv[1:])
