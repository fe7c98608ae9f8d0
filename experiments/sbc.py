"""Simulation-based calibration over a grid of sizes: ``python -m experiments.sbc --output FOLDER``.

Parameters and statistics are drawn from the full model with normal features, exactly (Wishart, normal and chi-square
laws; no rows are made), the noise is what a study with that epsilon prescribes, and every method fits the same
statistics. One file a cell is written when it is done, so a run that was cut off goes on where it was.
``--page docs/calibration.md`` puts the table into that page, between its markers, and the figures into the folder
``figures`` beside it.
"""

import argparse
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import noisewise as nw
from noisewise.analyst.fitting import METHODS
from noisewise.analyst.methods.base import Method, Run
from noisewise.analyst.model import Problem
from noisewise.analyst.prior import Prior
from noisewise.analyst.units import Units
from noisewise.evaluation.calibration import Band, covered, plot_ecdf_difference, rank_of, uniformity
from noisewise.gram import Layout
from noisewise.privacy.calibration import plan_noise

ROWS, EPSILONS, DELTA = (10, 100, 1000), (0.1, 1.0), 1e-5
SHAPES = {"1 + intercept": (1, True), "3": (3, False)}
LEVELS = (0.5, 0.9)
SCATTER = 0.2  # of normal-x's and exact's prior of Sigma_x, times the identity
BEGIN, END = "<!-- sbc: begin -->", "<!-- sbc: end -->"
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "normal-x": {"warmup": 2000, "thin": 50, "steps": 1, "cores": 1},
    "exact": {"warmup": 400, "cores": 1},
}


class Cell(NamedTuple):
    """One method at one size."""

    method: str
    shape: str
    n: int
    epsilon: float
    trials: int
    draws: int

    def path(self, folder: Path) -> Path:
        d, constant = SHAPES[self.shape]
        size = f"d{d}{'c' if constant else ''}_n{self.n}_e{self.epsilon:g}_m{self.trials}_l{self.draws}"
        return folder / f"{self.method}_{size}.npz"


class Result(NamedTuple):
    """(trials, quantities) and (levels, trials, quantities)."""

    names: tuple[str, ...]
    ranks: np.ndarray
    inside: np.ndarray
    seconds: float


def study_of(cell: Cell) -> nw.Study:
    d, constant = SHAPES[cell.shape]
    columns = [nw.Column(f"x{i + 1}", -1, 1) for i in range(d)]
    return nw.Study(columns, nw.Column("y", -1, 1), epsilon=cell.epsilon, delta=DELTA, intercept=constant)


def simulate(study: nw.Study, scales: np.ndarray, n: int, rng: np.random.Generator) -> tuple[Problem, np.ndarray]:
    """(theta, v) from the prior and one release's statistics given them, as a problem; scaled units throughout."""
    from scipy.stats import invwishart, wishart

    d, first = study.d, int(study.intercept)
    prior = Prior().in_scaled_units(Units.of_study(study))
    theta, v = rng.multivariate_normal(prior.mean, prior.covariance), prior.scale / rng.gamma(prior.shape)
    Sigma = np.atleast_2d(invwishart(d + 2, SCATTER * np.eye(d)).rvs(random_state=rng))
    S = np.atleast_2d(wishart(n - first, Sigma).rvs(random_state=rng))
    if first:
        mu = rng.standard_normal(d)
        xbar = rng.multivariate_normal(mu, Sigma / n, method="cholesky")
        S = np.block([[np.full((1, 1), n), n * xbar[None]], [n * xbar[:, None], S + n * np.outer(xbar, xbar)]])
    # z = K (K'theta + sqrt(v) e) with S = K K', and u = |K^{-1}z|^2 + v chi^2
    K = np.linalg.cholesky(S)
    w = K.T @ theta + np.sqrt(v) * rng.standard_normal(len(theta))
    A = np.zeros((d + 2, d + 2))
    y, at = d + 1, 1 - first
    A[0, 0] = n
    A[at:y, at:y] = S
    A[at:y, y] = A[y, at:y] = K @ w
    A[y, y] = w @ w + v * rng.chisquare(n - len(theta))
    layout = Layout.of(study)
    noisy = layout.pick(A) + scales * rng.standard_normal(len(scales))
    release = nw.Release(layout, tuple(noisy.tolist()), 0, "gaussian", tuple(scales.tolist()), study=study)
    return Problem.of([release]), np.append(theta, v)


def method_of(name: str) -> Method:
    if name not in METHODS:
        raise SystemExit(f"Method {name!r} is not known; use some of {', '.join(METHODS)}.")
    return METHODS[name](**OPTIONS.get(name, {}))


def run_cell(cell: Cell, folder: Path) -> Cell:
    """All trials of a cell; the file appears when they are done."""
    study, method = study_of(cell), method_of(cell.method)
    scales = np.array(plan_noise(study).scales)
    prior = Prior().in_scaled_units(Units.of_study(study))
    ranks, inside, start = [], [], time.perf_counter()
    for trial in range(cell.trials):
        # the method is not part of the seed: all methods see the same statistics
        seed = np.random.SeedSequence([study.d, cell.n, round(1000 * cell.epsilon), trial])
        data, sampling = seed.spawn(2)
        problem, truth = simulate(study, scales, cell.n, np.random.default_rng(data))
        result = method.sample(problem, prior, Run(cell.draws, 1, sampling))
        draws = np.column_stack([result.theta[0], result.variance[0]])
        ranks.append(rank_of(truth, draws))
        inside.append([covered(truth, draws, level) for level in LEVELS])
    names = [*(["intercept"] if study.intercept else []), *(f"slope {i + 1}" for i in range(study.d)), "v"]
    partial = cell.path(folder).with_suffix(".part.npz")
    np.savez(
        partial,
        names=np.array(names),
        ranks=np.array(ranks),
        inside=np.array(inside).transpose(1, 0, 2),
        seconds=time.perf_counter() - start,
    )
    os.replace(partial, cell.path(folder))
    return cell


def load(cell: Cell, folder: Path) -> Result:
    with np.load(cell.path(folder)) as file:
        return Result(tuple(file["names"].tolist()), file["ranks"], file["inside"], float(file["seconds"]))


def run_all(cells: Iterable[Cell], folder: Path, cores: int) -> None:
    """The cells that have no file yet, on several cores."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = list(cells)
    left = [cell for cell in cells if not cell.path(folder).exists()]
    print(f"{len(cells) - len(left)} of {len(cells)} cells are there; {len(left)} to run on {cores} cores.", flush=True)
    start = time.perf_counter()
    with ProcessPoolExecutor(cores) as pool:
        futures = [pool.submit(run_cell, cell, folder) for cell in left]
        for done, future in enumerate(as_completed(futures), 1):
            cell = future.result()
            spent = time.perf_counter() - start
            print(f"{done}/{len(left)}  {spent:.0f} s  {cell.path(folder).stem}", flush=True)


def table(cells: Iterable[Cell], folder: Path, band: Band) -> str:
    """A row a cell: where the ranks leave the band, the smallest p-values, how often 90% intervals hold the truth."""
    lines = [
        "| method | d | n | epsilon | outside the 99% band | band p: theta, v | KS p: theta, v "
        "| chi-square p: theta, v | 50% holds: theta, v | 90% holds: theta, v |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for cell in cells:
        result = load(cell, folder)
        found = [uniformity(ranks, band) for ranks in result.ranks.T]
        outside = [name for name, ranks in zip(result.names, result.ranks.T, strict=True) if not band.holds(ranks)]

        def least(field: str, found: list[Any] = found) -> str:
            values = [getattr(item, field) for item in found]
            return f"{_p(min(values[:-1]))}, {_p(values[-1])}"

        shares = result.inside.mean(axis=1)
        holds = [f"{share[:-1].mean():.2f}, {share[-1]:.2f}" for share in shares]
        lines.append(
            f"| {cell.method} | {cell.shape} | {cell.n} | {cell.epsilon:g} | {', '.join(outside) or 'none'} "
            f"| {least('simultaneous')} | {least('kolmogorov_smirnov')} | {least('chi_square')} "
            f"| {holds[0]} | {holds[1]} |"
        )
    return "\n".join(lines)


def _p(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}" if value > 1e-99 else "< 1e-99"


def write_page(page: Path, text: str) -> None:
    """Put the text between the page's markers."""
    before, found, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{page} has no markers {BEGIN} and {END} to write between.")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def draw_figures(cells: list[Cell], folder: Path, figures: Path, band: Band) -> None:
    figures.mkdir(parents=True, exist_ok=True)
    for method in dict.fromkeys(cell.method for cell in cells):
        panels = []
        for cell in (cell for cell in cells if cell.method == method):
            result = load(cell, folder)
            title = f"d = {cell.shape}, n = {cell.n}, epsilon = {cell.epsilon:g}"
            panels.append((title, dict(zip(result.names, result.ranks.T, strict=True))))
        figure = plot_ecdf_difference(panels, band, columns=len(ROWS))
        figure.suptitle(method, fontsize=10)
        figure.savefig(figures / f"sbc-{method}.png", dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.sbc", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the folder of the cells' files")
    parser.add_argument("--methods", nargs="+", default=["fixed-s", "naive", "normal-x"])
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), help="n of the one holder")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--draws", type=int, default=99, help="posterior draws that the truth is ranked among")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, help="the page to put table and figures into")
    options = parser.parse_args()
    cells = [
        Cell(method, shape, n, epsilon, options.trials, options.draws)
        for method in options.methods
        for shape in SHAPES
        for epsilon in EPSILONS
        for n in options.rows
    ]
    for method in options.methods:
        method_of(method)
    run_all(cells, options.output, options.cores)
    band = Band.simulate(options.trials, options.draws)
    rows = table(cells, options.output, band)
    seconds = sum(load(cell, options.output).seconds for cell in cells)
    note = (
        f"M = {options.trials} trials a row, {options.draws} draws each; {seconds / 60:.0f} minutes of one core in all."
    )
    if options.page:
        draw_figures(cells, options.output, options.page.parent / "figures", band)
        pictures = "\n\n".join(f"![Ranks of {name}](figures/sbc-{name}.png)" for name in options.methods)
        write_page(options.page, f"{note}\n\n{rows}\n\n{pictures}")
    else:
        print(f"{note}\n\n{rows}")


if __name__ == "__main__":
    main()
