"""Pictures of a posterior. matplotlib is imported here and nowhere else, and no global state of it is touched."""

from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise.errors import FitError
from noisewise.gram import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from noisewise.analyst.posterior import Posterior

POSTERIOR, PRIOR, BAND = "#1b5e8c", "#9a9a9a", "#7fb3d5"


def marginals(posterior: "Posterior") -> "Figure":
    first = 0 if posterior.study else 1  # statistics with no study have no intercept
    names = ("intercept", *posterior.names, "sigma")[first:]
    mean, variance = posterior.prior_moments
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, axes = _figure(rows, columns, (3.6 * columns, 2.5 * rows))
    for i, name in enumerate(names, start=first):
        axis = axes.flat[i - first]
        values = posterior.flat[:, i]
        _histogram(axis, values)
        low, high = np.quantile(values, [0.001, 0.999])
        margin = 0.6 * (high - low) + 1e-12
        grid = np.linspace(low - margin, high + margin, 400)
        axis.plot(grid, _prior_density(posterior, i, grid, mean, variance), color=PRIOR, lw=1.6)
        axis.set_xlim(grid[0], grid[-1])
        axis.set_title(name, fontsize=10)
        axis.set_yticks([])
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    _legend(figure, [("posterior", BAND), ("prior", PRIOR)])
    figure.suptitle(f"Posterior by {posterior.method}", fontsize=12)
    return figure


def prediction(posterior: "Posterior", feature: str | None, interval: float) -> "Figure":
    study = posterior.study
    numeric = [column.name for column in study.features if column.kind == "numeric"] if study else posterior.names
    if feature is None and numeric:
        feature = numeric[0]
    if feature not in numeric:
        raise FitError(f"Feature {feature!r} is not a numeric feature; choose one of {', '.join(numeric) or '(none)'}.")
    where = posterior.names.index(str(feature))
    centre, half = posterior.units.centres[where], posterior.units.half_widths[where]
    grid = np.linspace(centre - half, centre + half, 101)
    X, others = _at_centre(posterior, str(feature), grid)
    line, new = posterior.predict(X, interval), posterior.predict(X, interval, kind="new")
    figure, axes = _figure(1, 1, (6.4, 4.2))
    axis = axes.flat[0]
    share = f"{100 * interval:g}%"
    axis.fill_between(grid, new.lower, new.upper, color=BAND, alpha=0.3, lw=0, label=f"a new observation, {share}")
    axis.fill_between(grid, line.lower, line.upper, color=BAND, alpha=0.9, lw=0, label=f"the mean, {share}")
    axis.plot(grid, line.mean, color=POSTERIOR, lw=1.8)
    axis.set_xlabel(feature)
    axis.set_ylabel(posterior.units.target)
    axis.set_title(f"Prediction by {posterior.method}" + (f"\n{others}" if others else ""), fontsize=10)
    axis.legend(frameon=False, fontsize=9)
    return figure


def _at_centre(posterior: "Posterior", feature: str, grid: Floats) -> tuple[Any, str]:
    """Rows along one feature: other numbers at the centre of their bounds, booleans at 0, categories at baseline."""
    study = posterior.study
    if study is None:
        matrix = np.zeros((grid.size, len(posterior.names)))
        matrix[:, posterior.names.index(feature)] = grid
        return matrix, ""
    rows: dict[str, Any] = {feature: grid}
    fixed = []
    for column in study.features:
        if column.name != feature:
            value = {"categorical": column.baseline, "boolean": 0.0, "numeric": column.centre}[column.kind]
            rows[column.name] = np.full(grid.size, value, dtype=object)
            fixed.append(f"{column.name} = {value}" if isinstance(value, str) else f"{column.name} = {value:g}")
    return rows, ", ".join(fixed)


def _histogram(axis: Any, values: Floats) -> None:
    if np.ptp(values) > 1e-9 * (1 + abs(values[0])):
        axis.hist(values, bins=60, density=True, color=BAND, histtype="stepfilled")
    else:
        axis.axvline(values[0], color=POSTERIOR, lw=2)


def _prior_density(posterior: "Posterior", i: int, grid: Floats, mean: Floats, variance: Floats) -> Floats:
    from scipy import stats

    if i < mean.size:
        return np.asarray(stats.norm.pdf(grid, mean[i], np.sqrt(max(variance[i], 1e-300))))
    scale = posterior.prior.scale * posterior.units.target_half_width**2
    with np.errstate(divide="ignore"):
        density = stats.invgamma.pdf(grid**2, posterior.prior.shape, scale=scale) * 2 * np.abs(grid)
    return np.asarray(np.where(grid > 0, density, 0.0))


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple["Figure", Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_2d(figure.subplots(rows, columns, squeeze=False))
    for axis in axes.flat:
        axis.spines[["top", "right", "left"]].set_visible(False)
    return figure, axes


def _legend(figure: "Figure", entries: list[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        handles=[Patch(color=color, label=label) for label, color in entries], loc="upper right", frameon=False
    )
