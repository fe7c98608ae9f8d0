"""Tables and figures of docs/calibration.md, docs/exact-sbc.md and docs/exact.md, from what the archive holds."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import binom

from experiments.pages import write_between
from experiments.sbc.cells import LEVEL, RANKED, Cell
from experiments.sbc.fits import ENOUGH
from experiments.sbc.results import Result, band_of
from noisewise.evaluation.calibration import plot_ecdf_difference
from noisewise.evaluation.trials import Archive

FEWEST = 20  # trials that a cell needs to be shown
WANTED = (0.93, 0.97)  # for coverage of 95% intervals over 500 trials
WANTED_ELSEWHERE = (0.92, 0.98)  # where rows are from nobody's model


def write_pages(
    archive: Archive,
    docs: Path,
    methods: Sequence[Cell],
    exact: Sequence[Cell],
    others: Sequence[Cell],
    defaults: Sequence[Cell],
    nonnormal: Sequence[Cell],
    wide: Sequence[Cell],
) -> None:
    """The pages' generated parts, and the figures."""
    folder = docs / "figures"
    by_method: dict[str, list[Result]] = {}
    for result in _read(archive, methods):
        by_method.setdefault(result.cell.method, []).append(result)
    sections = []
    for method, results in by_method.items():
        _draw(results, method, folder / f"sbc-{method}.png")
        sections.append(f"### {method}\n\n{_method_table(results)}\n\n![Ranks of {method}](figures/sbc-{method}.png)")
    write_between(docs / "calibration.md", "sbc", "\n\n".join(sections))
    grid = _read(archive, exact)
    page = docs / "exact-sbc.md"
    write_between(page, "summary", f"{_summary(grid)}\n{_defaults(_read(archive, defaults, fewest=1))}".rstrip())
    write_between(page, "grid", _grid_table(grid))
    elsewhere = _read(archive, others)
    write_between(page, "covariates", f"{_covariates_summary(elsewhere)}\n\n{_covariates_table(elsewhere)}")
    write_between(docs / "exact.md", "covariates", _slopes_by_method(elsewhere))
    over_sizes = _read(archive, nonnormal)
    write_between(page, "nonnormal", f"{_law_means(over_sizes)}\n\n{_law_by_size(over_sizes, 'weak')}")
    write_between(docs / "exact.md", "wide", _wide_table(_read(archive, wide)))
    _draw_all(grid, folder / "sbc-exact-grid.png")


def _read(archive: Archive, cells: Iterable[Cell], fewest: int = FEWEST) -> list[Result]:
    found = [result for cell in cells if (result := Result.read(archive, cell))]
    return [result for result in found if result.trials >= fewest]


def _method_table(results: Sequence[Result]) -> str:
    """A row a cell; theta by its worst p-value and by the mean of its coverages."""
    levels = (0.5, 0.9, LEVEL)
    lines = [
        "| d | n | epsilon | trials | outside the 99% band | band p: theta, v | KS p: theta, v | "
        + " | ".join(f"{level:.0%} holds: theta, v" for level in levels)
        + " | mean rank of v | s a fit |",
        "|---|---:|---:|---:|---|---:|---:|" + "---:|" * (len(levels) + 2),
    ]
    for result in results:
        cell, found = result.cell, result.uniformity
        bands = [one.simultaneous for one in found]
        tests = [one.kolmogorov_smirnov for one in found]
        shares = [result.coverage(level) for level in levels]
        holds = " | ".join(f"{share[:-1].mean():.2f}, {share[-1]:.2f}" for share in shares)
        lines.append(
            f"| {cell.shape} | {cell.n} | {cell.epsilon:g} | {result.trials} | {', '.join(result.outside) or 'none'} "
            f"| {_p(min(bands[:-1]))}, {_p(bands[-1])} | {_p(min(tests[:-1]))}, {_p(tests[-1])} | {holds} "
            f"| {result.mean_rank[-1]:.2f} | {result.seconds:.2g} |"
        )
    return "\n".join(lines)


def _grid_table(results: Sequence[Result]) -> str:
    lines = [
        "| d | J | noise | n | epsilon | trials | least band p | outside | 95% holds: theta, v | diverged | s a fit |",
        "|---:|---:|---|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    for result in sorted(results, key=lambda one: (one.cell.d, one.cell.J, one.cell.law, one.cell.n, one.cell.epsilon)):
        cell, share = result.cell, result.coverage(LEVEL)
        least = min(one.simultaneous for one in result.uniformity)
        lines.append(
            f"| {cell.d} | {cell.J} | {cell.law} | {cell.n} | {cell.epsilon:g} | {result.trials} | {_p(least)} "
            f"| {', '.join(result.outside)} | {share[:-1].mean():.3f}, {share[-1]:.3f} | {result.divergences} "
            f"| {result.seconds:.2g} |"
        )
    return "\n".join(lines)


def _summary(results: Sequence[Result]) -> str:
    """What the whole grid says, beside what chance alone would do to a posterior that is right."""
    if not results:
        return "No trials yet."
    trials = [result.trials for result in results]
    curves = sum(len(result.cell.quantities) for result in results)
    outside = sum(len(result.outside) for result in results)
    shares = [(result.trials, share) for result in results for share in result.coverage(LEVEL)]
    missed = sum(not WANTED[0] <= share <= WANTED[1] for _, share in shares)
    chance = sum(_chance_outside(count) for count, _ in shares)
    held = np.concatenate([result.held.ravel() for result in results])
    means = [float(result.held.mean()) for result in results]
    least = min(one.simultaneous for result in results for one in result.uniformity)
    count = f"{min(trials)}" if min(trials) == max(trials) else f"{min(trials)} to {max(trials)}"
    return (
        f"{len(results)} cells with {count} trials each, {sum(trials):,} fits, {curves} curves.\n\n"
        f"- Curves outside their 99% band: {outside}; a posterior that is right has {0.01 * curves:.0f} of {curves} on "
        f"average. The least p-value is {_p(least)}.\n"
        f"- {LEVEL:.0%} intervals hold the truth in {held.mean():.2%} of {held.size:,} cases; a cell's mean over its "
        f"quantities lies between {min(means):.1%} and {max(means):.1%}.\n"
        f"- Coverages of single quantities outside {WANTED[0]:.0%} to {WANTED[1]:.0%}: {missed} of {len(shares)}; "
        f"intervals that are right give {chance:.0f} on average with so many trials.\n"
        f"- Mean ranks over all cells, as shares: {_mean_ranks(results)} (0.5 is right).\n"
        f"- Divergences: {sum(result.divergences for result in results)} draws; cells with any: "
        f"{sum(result.divergences > 0 for result in results)}. Fits with fewer than {ENOUGH:.0f} effective draws even "
        f"when made four times as long, counted like all others: {sum(result.few for result in results)}."
    )


def _defaults(results: Sequence[Result]) -> str:
    """How the sampler fares at its defaults, with which the grid itself would take days."""
    if not results:
        return ""
    trials = [result.trials for result in results]
    count = f"{min(trials)}" if min(trials) == max(trials) else f"{min(trials)} to {max(trials)}"
    held = np.concatenate([result.held.ravel() for result in results])
    return (
        f"- With default settings (4 chains of 1000 draws), the first {count} data sets of each of {len(results)} "
        f"cells, {sum(trials):,} fits: {sum(result.divergences for result in results)} draws diverged; "
        f"{sum(result.few for result in results)} fits had fewer than {ENOUGH:.0f} effective draws; intervals hold the "
        f"truth in {held.mean():.1%} of {held.size:,} cases."
    )


def _mean_ranks(results: Sequence[Result]) -> str:
    """Of v, the intercept and all slopes, with the standard error that independent ranks have."""
    ranks: dict[str, list[np.ndarray]] = {}
    for result in results:
        for name, column in zip(result.cell.quantities, result.ranks.T, strict=True):
            ranks.setdefault(name.split()[0], []).append((column + 0.5) / (RANKED + 1))
    pooled = {name: np.concatenate(columns) for name, columns in ranks.items()}
    return ", ".join(
        f"{name} {shares.mean():.4f} (standard error {np.sqrt(1 / 12 / shares.size):.4f})"
        for name, shares in pooled.items()
    )


def _chance_outside(trials: int) -> float:
    low, high = np.ceil(WANTED[0] * trials - 1e-9), np.floor(WANTED[1] * trials + 1e-9)
    return float(binom.cdf(low - 1, trials, LEVEL) + binom.sf(high, trials, LEVEL))


def _covariates_summary(results: Sequence[Result]) -> str:
    """A row a method: of how many slopes intervals hold the truth as often as they should, too rarely, too often."""
    low, high = WANTED_ELSEWHERE
    lines = [
        f"| holders | method | cells | slopes | held in {low:.0%} to {high:.0%} | rarer | more often | rarest "
        "| most often |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups = dict.fromkeys((result.cell.J, result.cell.method) for result in results)
    for J, method in sorted(groups, key=lambda group: group[0]):
        own = [result for result in results if (result.cell.J, result.cell.method) == (J, method)]
        shares = np.concatenate([result.coverage(LEVEL)[1:-1] for result in own])
        rare, often = int((shares < low).sum()), int((shares > high).sum())
        lines.append(
            f"| {J} | {method} | {len(own)} | {shares.size} | {shares.size - rare - often} | {rare} | {often} "
            f"| {shares.min():.3f} | {shares.max():.3f} |"
        )
    return "\n".join(lines)


def _slopes_by_method(results: Sequence[Result]) -> str:
    """A row for each law and n, a column a method: slopes' coverage, least to largest, and their mean sd."""
    cells = {(one.cell.J, one.cell.covariates, one.cell.n, one.cell.method): one for one in results}
    methods = dict.fromkeys(key[-1] for key in cells)
    lines = [f"| holders | covariates | n | {' | '.join(methods)} |", "|---:|---|---:|" + "---|" * len(methods)]
    for J, covariates, n in sorted({key[:-1] for key in cells}):
        texts = []
        for method in methods:
            result = cells.get((J, covariates, n, method))
            slopes = result.coverage(LEVEL)[1:-1] if result else None
            texts.append(f"{slopes.min():.3f} to {slopes.max():.3f}, sd {result.sd:.2g}" if result else "")
        lines.append(f"| {J} | {covariates} | {n} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _law_means(results: Sequence[Result]) -> str:
    """A row a law, a column a method: its cells' coverage of slopes (mean, range) and how many are as wanted."""
    low, high = WANTED_ELSEWHERE
    methods = dict.fromkeys(one.cell.method for one in results)
    lines = [f"| covariates | {' | '.join(methods)} |", "|---|" + "---|" * len(methods)]
    for law in dict.fromkeys(one.cell.covariates for one in results):
        texts = []
        for method in methods:
            own = [one for one in results if (one.cell.covariates, one.cell.method) == (law, method)]
            means = np.array([one.coverage(LEVEL)[1:-1].mean() for one in own])
            within = int(((low <= means) & (means <= high)).sum())
            texts.append(
                f"{means.mean():.3f} ({means.min():.3f} to {means.max():.3f}); "
                f"{within} of {means.size} cells in {low:.0%} to {high:.0%}"
            )
        lines.append(f"| {law} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _law_by_size(results: Sequence[Result], method: str) -> str:
    """Of one method: a row for each law, J and n, a column each epsilon: the mean coverage of slopes."""
    cells = {
        (one.cell.covariates, one.cell.J, one.cell.n, one.cell.epsilon): one
        for one in results
        if one.cell.method == method
    }
    epsilons = sorted({key[-1] for key in cells})
    heads = " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons)
    lines = [f"| covariates | holders | n | {heads} |", "|---|---:|---:|" + "---:|" * len(epsilons)]
    for law, J, n in dict.fromkeys(key[:-1] for key in cells):
        found = [cells.get((law, J, n, epsilon)) for epsilon in epsilons]
        texts = [f"{one.coverage(LEVEL)[1:-1].mean():.3f}" if one else "" for one in found]
        lines.append(f"| {law} | {J} | {n} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _wide_table(results: Sequence[Result]) -> str:
    """A row for each d and J, a column a method: slopes' mean coverage with its standard error, and their mean sd."""
    cells = {(one.cell.d, one.cell.J, one.cell.method): one for one in results}
    methods = dict.fromkeys(key[-1] for key in cells)
    lines = [f"| features | holders | {' | '.join(methods)} |", "|---:|---:|" + "---|" * len(methods)]
    for d, J in sorted({key[:-1] for key in cells}):
        texts = []
        for method in methods:
            if result := cells.get((d, J, method)):
                shares = result.held[:, 1:-1].mean(axis=1)
                error = shares.std() / np.sqrt(shares.size)
                texts.append(f"{shares.mean():.3f} ({error:.3f}), sd {result.sd:.2g}, {result.seconds:.2g} s")
            else:
                texts.append("")
        lines.append(f"| {d} | {J} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _covariates_table(results: Sequence[Result]) -> str:
    lines = [
        "| holders | covariates | n | epsilon | method | trials | 95% holds: intercept | slopes, least to largest | v "
        "| sd of slopes | divergences | s a fit |",
        "|---:|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for result in sorted(results, key=lambda one: (one.cell.J, one.cell.covariates, one.cell.n, one.cell.epsilon)):
        cell, share = result.cell, result.coverage(LEVEL)
        slopes = share[1:-1]
        lines.append(
            f"| {cell.J} | {cell.covariates} | {cell.n} | {cell.epsilon:g} | {cell.method} | {result.trials} "
            f"| {share[0]:.3f} | {slopes.min():.3f} to {slopes.max():.3f} | {share[-1]:.3f} | {result.sd:.3g} "
            f"| {result.divergences} | {result.seconds:.2g} |"
        )
    return "\n".join(lines)


def _p(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}" if value > 1e-99 else "< 1e-99"


def _draw(results: Sequence[Result], method: str, path: Path) -> None:
    """A panel a cell, of as many trials as every cell has."""
    least = min(result.trials for result in results)
    panels = [
        (
            f"d = {result.cell.shape}, n = {result.cell.n}, epsilon = {result.cell.epsilon:g}",
            dict(zip(result.cell.quantities, result.ranks[:least].T, strict=True)),
        )
        for result in results
    ]
    figure = plot_ecdf_difference(panels, band_of(least), columns=3)
    figure.suptitle(f"{method}, {least} trials a panel", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def _draw_all(results: Sequence[Result], path: Path) -> None:
    """The whole grid in two pictures: p-values of the band test against uniform, and coverages with their spread."""
    from matplotlib.figure import Figure

    if not results:
        return
    p = np.sort([one.simultaneous for result in results for one in result.uniformity])
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(np.arange(1, p.size + 1) / (p.size + 1), p, lw=1.5)
    left.plot([0, 1], [0, 1], color="0.5", lw=0.8)
    left.set_xlabel("uniform quantiles")
    left.set_ylabel("p-values of all curves")
    for name, marker, pick in (("theta", ".", slice(None, -1)), ("v", "x", slice(-1, None))):
        points = [(i, share) for i, result in enumerate(results) for share in result.coverage(LEVEL)[pick]]
        right.plot(*np.array(points).T, marker, ms=3, alpha=0.6, label=name)
    trials = np.array([result.trials for result in results])
    for tail in (0.005, 0.995):
        right.step(np.arange(len(results)), binom.ppf(tail, trials, LEVEL) / trials, color="0.5", lw=0.8)
    right.axhline(LEVEL, color="0.5", lw=0.6)
    right.set_xlabel("cell; grey: 99% of intervals that are right")
    right.set_ylabel("95% intervals that hold the truth")
    right.legend(fontsize=8, loc="upper left", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
