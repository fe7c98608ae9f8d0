"""``noisewise demo``: the whole story on made data, with real files, real ledgers and real privacy noise."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from noisewise.cli.show import Json, beside, budget, err, number, out, plain, print_json, print_table, say

if TYPE_CHECKING:
    from noisewise.analyst.posterior import Posterior
    from noisewise.evaluation.hospitals import Hospital
    from noisewise.release import Release
    from noisewise.study import Study

MARKER = ".made-by-noisewise-demo"
METHODS = ("non-private", "exact", "fixed-s", "naive")
INTERVAL = 0.9
# a hospital's ledger allows this many times the epsilon and delta of one release
LEDGER_TIMES = 3
NEW_PATIENTS = "age,bmi,female,smoking\n35,22.5,true,never\n52,27.0,false,current\n71,31.5,true,former\n"


class Estimate(NamedTuple):
    """One parameter by one method, beside the truth."""

    mean: float
    lower: float
    upper: float
    holds: bool

    @property
    def width(self) -> float:
        return self.upper - self.lower


class Line(NamedTuple):
    """One parameter: its true value and what every method says of it."""

    name: str
    truth: float
    by: dict[str, Estimate]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path("demo-output"),
    seed: Annotated[
        int, typer.Option(help="Seed of the made tables and the samplers; privacy noise is never seeded.", min=0)
    ] = 0,
    epsilon: Annotated[float, typer.Option(help="epsilon of each hospital's release.")] = 1.0,
    secure: Annotated[
        bool, typer.Option("--secure", help="The other story: eight clinics, one secure sum, nobody to trust.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Play the whole story: three hospitals, a study, private releases, and posteriors beside the truth.

    The tables are made up; everything else is real: study, ledgers, releases with secure noise, posteriors, plots.

    \b
    Example:
      noisewise demo
      noisewise demo --epsilon 0.3 --output stricter
      noisewise demo --secure --output demo-secure
    """
    if secure:
        from noisewise.cli.demo_secure import play

        play(output, seed, epsilon, as_json)
        return
    from noisewise.evaluation.hospitals import HOSPITALS, hypertension_study

    study = hypertension_study(epsilon)
    prepare(output)
    study.save(output / "study.toml")
    (output / "new-patients.csv").write_text(NEW_PATIENTS, encoding="utf-8")
    holders = [_play_hospital(study, hospital, position, seed, output) for position, hospital in enumerate(HOSPITALS)]
    with err().status("Fitting. The first fit by exact on a machine compiles for about 15 seconds."):
        posteriors = _fit(output, [holder.exact for holder in holders], seed)
    lines = compare(study, posteriors)
    results = _as_dict(study, seed, holders, lines)
    (output / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    _plot(posteriors, lines, output)
    if as_json:
        print_json(results)
        return
    _tell_releases(study, holders, output)
    tell_posteriors(lines, METHODS)
    _tell_reading(lines, output)


def prepare(folder: Path) -> None:
    """An empty folder to work in; only what an earlier demo made is ever removed."""
    from noisewise.errors import OutputError

    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not (folder / MARKER).is_file():
                raise OutputError(
                    f"{folder}: exists and was not made by the demo, so it is left alone; choose another folder with "
                    "--output, or delete it."
                )
            for item in folder.iterdir():
                shutil.rmtree(item) if item.is_dir() and not item.is_symlink() else item.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text("The demo replaces this folder when it runs again.\n", encoding="utf-8")
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"{folder}: can't be written ({error.strerror}); choose another folder with --output."
        ) from None


class _Played(NamedTuple):
    hospital: "Hospital"
    exact: "Release"
    clipped: int
    spent: float
    left: float


def _play_hospital(study: "Study", hospital: "Hospital", position: int, seed: int, output: Path) -> _Played:
    """What one holder does: it has a table, opens a ledger and releases."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv

    from noisewise.evaluation.hospitals import draw_hospital
    from noisewise.holder.publish import Holder, exact_release
    from noisewise.privacy.ledger import Ledger

    folder = output / hospital.name
    folder.mkdir()
    table = pa.table(draw_hospital(hospital, np.random.default_rng([seed, position])))
    csv.write_csv(table, folder / "patients.csv")
    ledger = Ledger.create(
        folder / "patients.ledger",
        dataset=f"{hospital.name} patients",
        epsilon=LEDGER_TIMES * study.epsilon,
        delta=LEDGER_TIMES * (study.delta or 0.0),
        adjacency=study.adjacency,
    )
    holder = Holder(study, ledger=ledger, name=hospital.name)
    holder.release(folder / "patients.csv", output=folder / "release.json")
    summary = ledger.summary()
    # the exact statistics would never leave a real hospital; here they give the answer to compare with
    return _Played(
        hospital, exact_release(study, table), holder.rows_.clipped, summary.spent_epsilon, summary.left_epsilon
    )


def _fit(output: Path, exact: list["Release"], seed: int) -> "dict[str, Posterior]":
    from noisewise.analyst.fitting import fit

    files = sorted(output.glob("*/release.json"))
    posteriors = {}
    for method in METHODS:
        posteriors[method] = fit(exact if method == "non-private" else files, method, seed=seed)
        posteriors[method].save(output / f"posterior-{method}.nc")
    return posteriors


def compare(study: "Study", posteriors: "dict[str, Posterior]") -> list[Line]:
    from noisewise.evaluation.hospitals import TRUTH

    names = ("intercept", *(feature.name for feature in study.encoded), "sigma")
    truths = (TRUTH.intercept, *(float(value) for value in TRUTH.coef), TRUTH.sigma)
    summaries = {method: posterior.summary(INTERVAL) for method, posterior in posteriors.items()}
    lines = []
    for position, (name, truth) in enumerate(zip(names, truths, strict=True)):
        by = {}
        for method, summary in summaries.items():
            row = summary.rows[position]
            by[method] = Estimate(row.mean, row.lower, row.upper, row.lower <= truth <= row.upper)
        lines.append(Line(name, truth, by))
    return lines


def _as_dict(study: "Study", seed: int, holders: list[_Played], lines: list[Line]) -> dict[str, Any]:
    return {
        "epsilon": study.epsilon,
        "delta": study.delta,
        "seed": seed,
        "interval": INTERVAL,
        "hospitals": [
            {
                "name": played.hospital.name,
                "rows": played.hospital.rows,
                "rows_clipped": played.clipped,
                "spent_epsilon": played.spent,
                "left_epsilon": played.left,
            }
            for played in holders
        ],
        "parameters": [
            {
                "name": line.name,
                "truth": line.truth,
                **{method: estimate._asdict() for method, estimate in line.by.items()},
            }
            for line in lines
        ],
    }


def _plot(posteriors: "dict[str, Posterior]", lines: list[Line], output: Path) -> None:
    from noisewise.cli.demo_figure import comparison
    from noisewise.cli.fit import save_figures

    fitted = posteriors["exact"]
    figures = {
        "comparison.png": comparison(lines, METHODS, INTERVAL),
        "marginals.png": fitted.plot_marginals(),
        "prediction-age.png": fitted.plot_prediction("age"),
    }
    save_figures(figures, output)


def _tell_releases(study: "Study", holders: list[_Played], output: Path) -> None:
    say(
        f"Three hospitals agree on {output / 'study.toml'}: systolic blood pressure on age, bmi, sex and smoking.\n"
        f"Each releases noisy sums once, at {budget(study.epsilon, study.delta or 0.0)}. No row leaves a hospital."
    )
    delta = LEDGER_TIMES * (study.delta or 0.0)
    print_table(
        ["hospital", "rows", "clipped rows", "spent", "left"],
        (
            [
                played.hospital.name,
                f"{played.hospital.rows:,}",
                f"{played.clipped:,}",
                plain(played.spent, 3),
                plain(played.left, 3),
            ]
            for played in holders
        ),
        title=f"What each hospital alone sees: rows clipped to the bounds, and epsilon at its ledger's delta {delta:g}",
    )


def tell_posteriors(lines: list[Line], methods: Sequence[str], who: str = "hospitals") -> None:
    rows = []
    for line in lines:
        cells = [line.name, plain(line.truth)]
        for method in methods:
            estimate = line.by[method]
            lower, upper = beside(estimate.width, estimate.lower, estimate.upper)
            cells.append(f"{lower} to {upper} {' ' if estimate.holds else 'x'}")
        rows.append(cells)
    title = f"Posteriors of all {who} together: {INTERVAL:.0%} intervals; x marks one that misses the truth"
    print_table(["", "truth", *methods], rows, title=title)
    say()


def _tell_reading(lines: list[Line], output: Path) -> None:
    """The result in plain words. Privacy noise is fresh in every run, so every word depends on the numbers."""
    from statistics import median

    total = len(lines)
    held = {method: sum(line.by[method].holds for line in lines) for method in METHODS}
    dearer = median(line.by["exact"].width / line.by["non-private"].width for line in lines)
    bolder = median(line.by["fixed-s"].width / line.by["naive"].width for line in lines)
    say(
        f"- non-private sees the exact sums, which nobody may publish: {held['non-private']} of {total} intervals hold "
        "the truth. It is the best that these rows can give."
    )
    say(
        f"- exact sees the private releases and counts all of their noise: {held['exact']} of {total} hold the truth. "
        f"Its intervals are {number(dearer, 2)} times as wide as the non-private ones: the price of privacy. "
        "Report these."
    )
    say(
        f"- fixed-s is the instant answer: {held['fixed-s']} of {total} hold the truth. It takes the noisy products of "
        "features as if they were exact, so it is a little too sure."
    )
    verdict = (
        "It mistakes noise for data and is too sure of itself"
        if held["naive"] < held["fixed-s"]
        else "It was lucky this time: the noise is not smaller for being ignored"
    )
    say(
        f"- naive sees the same releases and ignores their noise: {held['naive']} of {total} hold the truth, with "
        f"intervals {number(bolder, 2)} times narrower than those of fixed-s. {verdict}."
    )
    say(
        f"About {INTERVAL * total:.1f} of {total} are expected to hold if a method is honest; one run is one draw of "
        "the noise, so run it again and watch them move."
    )
    out().print(
        f"""
Files are in {output}; look at comparison.png first. Try next:
  noisewise ledger show {output / "city" / "patients.ledger"}
  noisewise fit {output / "*" / "release.json"} --plots {output / "plots"}
  noisewise predict {output / "posterior-exact.nc"} {output / "new-patients.csv"} --kind new
  noisewise study check {output / "study.toml"} --n 2500 --holders 3
  noisewise demo --epsilon 0.3 --output stricter""",
        soft_wrap=True,
    )
