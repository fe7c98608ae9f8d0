"""``noisewise fit``: from release files to a posterior."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from noisewise.cli.show import Json, beside, count, err, note, out, print_json, print_table

if TYPE_CHECKING:
    from noisewise.analyst.posterior import Posterior
    from noisewise.analyst.summary import Summary
    from noisewise.release import Release

OWN_OPTIONS = ("method", "draws", "chains", "seed")
PRIOR = "Prior: normal coefficients, inverse-gamma residual variance"


def fit(
    releases: Annotated[
        list[Path], typer.Argument(metavar="RELEASE...", help="Release files of one study.", show_default=False)
    ],
    method: Annotated[
        str, typer.Option(help="How to fit, such as fixed-s or naive; auto suits the noise, a wrong name lists all.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save the posterior here (netCDF), for predict and ArviZ.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Save plots of the posterior into this folder.")] = None,
    interval: Annotated[float, typer.Option(help="Probability that an interval holds.")] = 0.9,
    draws: Annotated[int, typer.Option(help="Draws in each chain.", min=1)] = 1000,
    chains: Annotated[int, typer.Option(help="Chains.", min=1)] = 4,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampler, to repeat a run.", min=0)] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the method; may be repeated.")
    ] = None,
    prior_mean: Annotated[
        str,
        typer.Option(help="A number, or one for each parameter with commas, intercept first.", rich_help_panel=PRIOR),
    ] = "0",
    prior_covariance: Annotated[
        str, typer.Option(help="A variance, or one for each parameter with commas.", rich_help_panel=PRIOR)
    ] = "1",
    prior_shape: Annotated[float, typer.Option(help="Shape, above 0.", rich_help_panel=PRIOR)] = 2.0,
    prior_scale: Annotated[float, typer.Option(help="Scale, above 0.", rich_help_panel=PRIOR)] = 0.1,
    prior_units: Annotated[
        Literal["scaled", "user"],
        typer.Option(help="What these numbers speak of: columns from -1 to 1, or your units.", rich_help_panel=PRIOR),
    ] = "scaled",
    as_json: Json = False,
) -> None:
    """Fit one regression to the releases and show its posterior, the cost of privacy included.

    \b
    Example:
      noisewise fit city.json coast.json --output posterior.nc
      noisewise fit *.json --method naive --interval 0.95 --plots plots
    """
    from noisewise.analyst.fitting import fit as run
    from noisewise.analyst.prior import Prior
    from noisewise.release import Release

    prior = Prior(
        mean=_numbers("--prior-mean", prior_mean),
        covariance=_numbers("--prior-covariance", prior_covariance),
        shape=prior_shape,
        scale=prior_scale,
        units=prior_units,
    )
    loaded = [Release.load(path) for path in releases]
    with err().status("Fitting. The first fit by exact on a machine compiles for about 15 seconds."):
        posterior = run(loaded, method, prior, draws=draws, chains=chains, seed=seed, **_options(option or []))
    summary = posterior.summary(interval)
    written = []
    if output is not None:
        posterior.save(output)
        written.append(str(output))
    if plots is not None:
        written += _save_plots(posterior, plots)
    if as_json:
        print_json({**summary.to_dict(), "written": written})
        return
    _print_releases(loaded)
    _print_summary(posterior, summary)
    for text in (*summary.notes, summary.diagnostics, *(f"wrote {path}" for path in written)):
        note(text)


def _print_releases(releases: "list[Release]") -> None:
    """What was fitted, and any release that protects nobody."""
    rows = sum(release.n for release in releases)
    exact = all(release.sufficient.sd_n == 0 for release in releases)
    out().print(f"{count(len(releases), 'release')}, {'' if exact else 'about '}{rows:,.0f} rows")
    for statement, who in _by_statement(releases).items():
        out().print(f"{', '.join(who)}: {statement}", soft_wrap=True)


def _by_statement(releases: "list[Release]") -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for position, release in enumerate(releases):
        groups.setdefault(release.privacy_statement(), []).append(release.holder or f"release {position + 1}")
    return groups


def _print_summary(posterior: "Posterior", summary: "Summary") -> None:
    """The posterior as a table, each variance split into its sampling and its privacy part."""
    share = f"{100 * summary.interval:g}%"
    print_table(
        ["parameter", "mean", "sd", f"{share} from", "to", "sampling\nsd", "privacy\nsd", "privacy\nshare"],
        (
            [
                row.name,
                *beside(row.sd, row.mean, row.sd, row.lower, row.upper),
                *("" if part is None else beside(row.sd, part)[0] for part in (row.sampling_sd, row.privacy_sd)),
                "" if row.privacy_share is None else f"{row.privacy_share:.0%}",
            ]
            for row in summary.rows
        ),
        title=f"{'Point estimate' if summary.point else 'Posterior'} by {posterior.method}",
    )


def _save_plots(posterior: "Posterior", folder: Path) -> list[str]:
    """One figure of all marginals, and a prediction band along every numeric feature."""
    figures = {"marginals.png": posterior.plot_marginals()}
    if posterior.study is not None:
        for column in posterior.study.features:
            if column.kind == "numeric":
                name = re.sub(r"[^\w-]+", "_", column.name)
                figures[f"prediction-{name}.png"] = posterior.plot_prediction(column.name)
    return save_figures(figures, folder)


def save_figures(figures: dict[str, Any], folder: Path) -> list[str]:
    from noisewise.errors import OutputError

    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            figure.savefig(folder / name, dpi=150)
            paths.append(str(folder / name))
    except OSError as error:
        raise OutputError(f"{folder}: plots can't be written ({error.strerror}); choose another folder.") from None
    return paths


def _numbers(option: str, text: str) -> "float | list[float]":
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a number, nor numbers with commas between them.", param_hint=option
        ) from None
    return values[0] if len(values) == 1 else values


def _options(pairs: list[str]) -> dict[str, object]:
    """KEY=VALUE options; a value is read as JSON (numbers, true, false) where it is, else as text."""
    options: dict[str, object] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{pair!r} is not of the form KEY=VALUE.", param_hint="--option")
        if key in OWN_OPTIONS:
            raise typer.BadParameter(f"{key!r} has an option of its own, --{key}.", param_hint="--option")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options
