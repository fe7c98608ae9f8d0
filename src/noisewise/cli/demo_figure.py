"""The demo's picture: every method's interval beside the truth, one panel a parameter."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from noisewise.cli.demo import Line

COLOURS = {
    "non-private": "#4d4d4d",
    "exact": "#5b3a8e",
    "fixed-s": "#1b5e8c",
    "naive": "#c2571a",
    "secure sum": "#5b3a8e",
    "separate": "#c2571a",
}


def comparison(lines: "Sequence[Line]", methods: Sequence[str], interval: float) -> "Figure":
    from matplotlib.figure import Figure

    columns = 4
    rows = -(-len(lines) // columns)
    figure = Figure(figsize=(2.9 * columns, 2.1 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    heights = [len(methods) - 1 - position for position in range(len(methods))]
    for position, (line, axis) in enumerate(zip(lines, axes.flat, strict=False)):
        axis.axvline(line.truth, color="#2e8b57", lw=1.5, zorder=0)
        for method, height in zip(methods, heights, strict=True):
            estimate = line.by[method]
            axis.plot(
                [estimate.lower, estimate.upper], [height, height], color=COLOURS[method], lw=3, solid_capstyle="butt"
            )
            axis.plot(estimate.mean, height, "o", color=COLOURS[method], ms=6)
        axis.set_title(line.name, fontsize=10)
        axis.set_yticks(heights, methods if position % columns == 0 else [""] * len(methods), fontsize=8)
        axis.set_ylim(-0.6, len(methods) - 0.4)
        axis.tick_params(axis="x", labelsize=8)
        axis.tick_params(axis="y", length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    for axis in axes.flat[len(lines) :]:
        axis.axis("off")
    figure.suptitle(f"{interval:.0%} intervals; the green line is the truth", fontsize=11)
    return figure
