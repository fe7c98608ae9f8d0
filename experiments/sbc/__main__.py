"""Simulation-based calibration: draw parameters and data, fit, rank the truth among the draws.

    python -m experiments.sbc methods                 the grid of docs/calibration.md
    python -m experiments.sbc exact --trials 50       the grid of docs/exact-sbc.md
    python -m experiments.sbc defaults                a few trials of each cell with default settings: do any diverge?
    python -m experiments.sbc covariates              covariates that are not normal, on the same page
    python -m experiments.sbc nonnormal               three laws of them in every cell of n, epsilon and J, there, too
    python -m experiments.sbc wide                    many features of real tables, in docs/exact.md
    python -m experiments.sbc pages                   tables and figures of both pages, from what is there
    python -m experiments.sbc methods --methods gibbs-update --rows 10 --trials 20 --results build/some

Trials that experiments/results holds are not run again. Stop and start as you like: all cells advance together.
"""

import argparse
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.progress import told
from experiments.sbc.cells import LAWS, Cell
from experiments.sbc.report import write_pages
from noisewise.evaluation.trials import Archive, by_number, run_trials

ROOT = Path(__file__).resolve().parents[2]
METHODS = (
    "naive",
    "fixed-s",
    "normal-x",
    "exact",
    "weak",
    "individual",
    "gibbs-update",
    "gibbs-update-exact",
    "gibbs-prior",
    "gibbs-noisy",
)
ROWS, EPSILONS = (10, 30, 100, 1000), (0.1, 0.5, 1.0, 5.0)  # of the grid of exact
SHAPES = ((1, True), (3, False))
TRIALS = {"methods": 300, "covariates": 500, "exact": 500, "defaults": 10, "nonnormal": 200, "wide": 100}
PAGES = ("methods", "exact", "covariates", "defaults", "nonnormal", "wide")
NOT_NORMAL = ("uniform", "bernoulli", "lognormal", "narrow", "correlated", "real", "differing")


def grid(
    name: str,
    methods: Sequence[str] = (),
    rows: Sequence[int] = (),
    epsilons: Sequence[float] = (),
    holders: Sequence[int] = (),
) -> list[Cell]:
    """The cells of a grid, or of a part of it, in the order of its page."""
    if name == "methods":
        sizes = itertools.product(methods or METHODS, SHAPES, epsilons or (0.1, 1.0), rows or (10, 100, 1000))
        return [
            Cell(method, n, epsilon, *shape, covariates=own_covariates(method)) for method, shape, epsilon, n in sizes
        ]
    if name == "covariates":
        chosen = methods or ("weak", "exact", "fixed-s", "gibbs-update")
        sizes = itertools.product(chosen, rows or (100, 300, 1000), epsilons or (1.0,), holders or (1, 5), NOT_NORMAL)
        cells = [Cell(method, n, epsilon, 3, True, J, covariates=kind) for method, n, epsilon, J, kind in sizes]
        return [cell for cell in cells if cell.J > 1 or cell.covariates != "differing"]
    if name == "nonnormal":
        chosen = methods or ("weak", "exact", "fixed-s", "gibbs-update")
        kinds = ("uniform", "bernoulli", "lognormal")
        sizes = itertools.product(chosen, kinds, holders or (1, 5), rows or ROWS, epsilons or EPSILONS)
        cells = [Cell(method, n, epsilon, 3, True, J, covariates=kind) for method, kind, J, n, epsilon in sizes]
        # unless it is asked for: with five holders a fit of gibbs-update takes 2 to 23 seconds
        return [cell for cell in cells if methods or cell.J == 1 or cell.method != "gibbs-update"]
    if name == "wide":
        chosen = methods or ("weak", "exact", "fixed-s")
        sizes = itertools.product(chosen, (11, 20, 30), holders or (1, 5), rows or (1000,), epsilons or (1.0,))
        return [Cell(method, n, epsilon, d, True, J, covariates="real") for method, d, J, n, epsilon in sizes]
    usual = ("exact-defaults",) if name == "defaults" else ("exact",)
    sizes = itertools.product(
        methods or usual,
        rows or ROWS,
        epsilons or EPSILONS,
        (1, 3, 5),
        holders or (1, 5),
        LAWS,
    )
    return [Cell(method, n, epsilon, d, True, J, law) for method, n, epsilon, d, J, law in sizes]


def own_covariates(method: str) -> str:
    """Rows are drawn from the method's own model."""
    return {"gibbs-prior": "known", "gibbs-noisy": "uniform", "weak": "bounds"}.get(method, "normal")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sbc", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("grid", choices=[*TRIALS, "pages"])
    parser.add_argument("--trials", type=int, help="of each cell; 10 to 500 by default")
    parser.add_argument("--methods", nargs="+", default=())
    parser.add_argument("--rows", nargs="+", type=int, default=(), help="n of each holder")
    parser.add_argument("--epsilons", nargs="+", type=float, default=())
    parser.add_argument("--holders", nargs="+", type=int, default=(), help="how many, in the grids that have several")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after this long; what is done is kept"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "experiments" / "results" / "sbc")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    archive = Archive(options.results)
    if options.grid == "pages":
        write_pages(archive, options.docs, *map(grid, PAGES))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped; what is done is kept."))
    cells = grid(options.grid, options.methods, options.rows, options.epsilons, options.holders)
    left = by_number(cells, options.trials or TRIALS[options.grid], archive)
    print(f"{len(left)} trials to run with {options.workers} workers.", file=sys.stderr)
    run_trials(left, archive, workers=options.workers, minutes=options.minutes, progress=told())


if __name__ == "__main__":
    main()
