"""How a sweep grows with d and with J: normal-x and gibbs-update, next to direct transcriptions in NumPy.

Paper 000's Figure 3 shows MCMC-B&S growing as d^6. That is the dense draw of all sums; where noise is isotropic ours is
made in an eigenbasis, O(d^3). CPU time of one core, one chain, per sweep, least of a few rounds. Compiled chains run
the moves of the paper (normal-x also all of its own), the transcriptions the paper's. The full run draws
docs/figures/growth.png.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import text_table
from benchmarks.gibbs import in_turn, ours, transcription
from benchmarks.normal_x import numpy_sweep, stacked, warm_chains

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "growth.png"
SECONDS = 0.2  # that a round should take

Task = tuple[Callable[[], object], int]
Maker = Callable[[int, int, int], Callable[[], object]]


class Line(NamedTuple):
    """One way to make a sweep, at the sizes where it is affordable; ``guess`` is microseconds at d and J."""

    make: Maker
    guess: Callable[[int, int], float]
    largest: int
    holders: bool = True

    def task(self, d: int, J: int) -> Task:
        sweeps = max(3, int(SECONDS * 1e6 / self.guess(d, J)))
        return self.make(d, J, sweeps), sweeps


def _normal_x(joint: bool) -> Maker:
    def make(d: int, J: int, sweeps: int) -> Callable[[], object]:
        _, _, chains = warm_chains(d, J, joint, warmup=20)
        kept = np.empty((sweeps, d + 1 + d * (d + 1) // 2))
        return lambda: chains[0].draw(1, kept)

    return make


def _normal_x_numpy(d: int, J: int, sweeps: int) -> Callable[[], object]:
    """Four chains at once, as NumPy likes it; a sweep of one is a quarter."""
    data, states, _ = warm_chains(d, J, False, warmup=20)
    rng, batch = np.random.default_rng(1), stacked(states)

    def task() -> None:
        state = batch
        for _ in range(-(-sweeps // len(states))):
            state = numpy_sweep(data, state, rng, False)

    return task


LINES: Mapping[str, Line] = {
    "gibbs-update, eigenbasis": Line(
        lambda d, J, n: ours(d, J, n, spectral=True), lambda d, J: J * (3 + 0.15 * d**2), 80
    ),
    "gibbs-update, dense": Line(
        lambda d, J, n: ours(d, J, n, spectral=False), lambda d, J: J * (3 + 0.01 * (d + 2) ** 4 + 5e-6 * d**6), 40
    ),
    "gibbs-update, NumPy": Line(
        lambda d, _, n: transcription(d, n), lambda d, _: 300 + 5e-1 * d**3 + 6e-4 * d**6, 30, holders=False
    ),
    "normal-x, all moves": Line(_normal_x(True), lambda d, J: 2 * J * (2 + 0.05 * d**2.5), 40),
    "normal-x, the paper's moves": Line(_normal_x(False), lambda d, J: J * (1 + 0.03 * d**2.5), 40),
    "normal-x, NumPy": Line(_normal_x_numpy, lambda d, J: 90 + J * (1 + 0.3 * d**2), 40),
}


def measure(
    sizes: Sequence[tuple[int, int]], rounds: int, vary_holders: bool
) -> dict[str, dict[tuple[int, int], float]]:
    """Seconds per sweep of every line at every size it reaches."""
    found: dict[str, dict[tuple[int, int], float]] = {name: {} for name in LINES}
    for d, J in sizes:
        tasks = {
            name: line.task(d, J)
            for name, line in LINES.items()
            if d <= line.largest and (line.holders or not vary_holders)
        }
        for name, seconds in in_turn(tasks, rounds).items():
            found[name][d, J] = seconds
    return found


def exponent(points: Mapping[tuple[int, int], float], axis: int) -> float:
    """The slope of log time between the two largest sizes."""
    (before, fewer), (last, more) = sorted(points.items())[-2:]
    return float(np.log(more / fewer) / np.log(last[axis] / before[axis]))


def run(quick: bool = False) -> str:
    rounds = 2 if quick else 4
    dimensions = (2, 5, 10, 20) if quick else (2, 3, 5, 7, 10, 14, 20, 30, 40, 60, 80)
    holders = (1, 5, 10) if quick else (1, 2, 5, 10, 20, 50)
    by_d = measure([(d, 1) for d in dimensions], rounds, vary_holders=False)
    by_J = measure([(5, J) for J in holders], rounds, vary_holders=True)
    if not quick:
        draw(by_d, by_J)
    return "\n\n".join(
        [
            _table("one sweep, J = 1", "d", by_d, dimensions, 0),
            _table("one sweep, d = 5", "J", by_J, holders, 1),
        ]
    )


def _table(
    title: str, axis_name: str, found: Mapping[str, Mapping[tuple[int, int], float]], sizes: Sequence[int], axis: int
) -> str:
    rows = []
    for name, points in found.items():
        if points:
            by_size = {size[axis]: seconds for size, seconds in points.items()}
            shown = [f"{1e6 * by_size[size]:,.1f}" if size in by_size else "" for size in sizes]
            rows.append((name, *shown, f"{exponent(points, axis):.1f}"))
    header = (f"us, by {axis_name}", *map(str, sizes), "last power")
    return text_table(f"{title}; last power: the exponent between the two largest sizes", header, rows)


def draw(
    by_d: Mapping[str, Mapping[tuple[int, int], float]], by_J: Mapping[str, Mapping[tuple[int, int], float]]
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for position, name in enumerate(by_d):
        for axis, found, which in ((axes[0], by_d, 0), (axes[1], by_J, 1)):
            points = sorted(found[name].items())
            if points:
                x, y = [size[which] for size, _ in points], [1e6 * seconds for _, seconds in points]
                axis.loglog(x, y, marker="o", ms=3, lw=1.2, color=f"C{position}", label=name)
    d = np.array([20.0, 80.0])
    for power, start in ((3, 25.0), (6, 400.0)):
        axes[0].loglog(d, start * (d / d[0]) ** power, color="0.6", lw=0.8, ls="--")
        axes[0].annotate(f"$d^{power}$", (d[-1], start * 4.0**power), fontsize=9, color="0.4")
    for axis, label, ticks in (
        (axes[0], "d, one holder", (2, 5, 10, 20, 40, 80)),
        (axes[1], "J, d = 5", (1, 5, 10, 50)),
    ):
        axis.set_xlabel(label)
        axis.set_xticks(ticks, map(str, ticks))
        axis.set_xticks((), minor=True)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("microseconds of CPU a sweep")
    axes[0].set_ylim(1, 3e6)
    axes[0].legend(fontsize=8, frameon=False)
    figure.savefig(FIGURE, dpi=100)
