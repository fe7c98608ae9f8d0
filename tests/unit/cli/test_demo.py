"""noisewise demo: the whole story, again and again, and never on top of what is not its own."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli import app

FILES = {
    "study.toml",
    "new-patients.csv",
    "results.json",
    "comparison.png",
    "marginals.png",
    "prediction-age.png",
    "posterior-exact.nc",
    "posterior-fixed-s.nc",
    "posterior-naive.nc",
    "posterior-non-private.nc",
    *(
        f"{name}/{file}"
        for name in ("city", "coast", "valley")
        for file in ("patients.csv", "patients.ledger", "release.json")
    ),
}


class Shown(NamedTuple):
    folder: Path
    told: str
    results: dict[str, Any]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """One demo for all tests that read it."""
    folder = tmp_path_factory.mktemp("demo") / "shown"
    done = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["demo", "--output", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0
    return Shown(folder, done.stdout, json.loads((folder / "results.json").read_text()))


def test_every_file_of_the_story_is_there_and_real(shown: Shown) -> None:
    made = {str(path.relative_to(shown.folder)) for path in shown.folder.rglob("*") if path.is_file()}
    assert made >= FILES
    for hospital in shown.results["hospitals"]:
        ledger = nw.Ledger.open(shown.folder / hospital["name"] / "patients.ledger").summary()
        assert ledger.spent_epsilon == pytest.approx(hospital["spent_epsilon"])
        release = nw.Release.load(shown.folder / hospital["name"] / "release.json")
        assert (release.insecure, release.n) == ("", hospital["rows"])


def test_the_words_are_those_of_the_numbers(shown: Shown) -> None:
    lines = shown.results["parameters"]
    for method in ("non-private", "exact", "fixed-s", "naive"):
        held = sum(line[method]["lower"] <= line["truth"] <= line[method]["upper"] for line in lines)
        assert held == sum(line[method]["holds"] for line in lines)
        assert re.search(rf"- {method} (sees|is) .*: {held} of {len(lines)}", shown.told)
    misses = sum(not line[method]["holds"] for line in lines for method in ("non-private", "exact", "fixed-s", "naive"))
    table = [line for line in shown.told.splitlines() if line.split(" ")[0] in {line["name"] for line in lines}]
    assert len(table) == len(lines)
    assert sum(len(re.findall(r" x\b", line)) for line in table) == misses


def test_what_it_suggests_next_works(run: Any, shown: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    suggested = [line.split()[1:] for line in shown.told.splitlines() if line.startswith("  noisewise ")]
    assert [arguments[0] for arguments in suggested] == ["ledger", "fit", "predict", "study", "demo"]
    for arguments in suggested[:-1]:
        releases = [str(path) for path in sorted(shown.folder.glob("*/release.json"))]
        expanded = [part for word in arguments for part in (releases if "*" in word else [word])]
        assert run(*expanded).exit_code == 0, arguments


def test_it_replaces_its_own_folder_and_is_stricter_on_demand(run: Any, shown: Shown, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(shown.folder, again)
    (again / "city" / "left-over.txt").write_text("old")
    stricter = json.loads(run("demo", "--json", "--epsilon", "0.1", "--output", str(again)).stdout)
    assert not (again / "city" / "left-over.txt").exists()
    first, second = shown.results["parameters"], stricter["parameters"]
    # the made tables are seeded, the privacy noise is not
    assert [line["non-private"] for line in first] == [line["non-private"] for line in second]
    widths = [[line["fixed-s"]["upper"] - line["fixed-s"]["lower"] for line in lines[:-1]] for lines in (first, second)]
    # by experiments/demo_coverage.py the log of each ratio has a mean of 1.6 or more and a standard deviation of 0.25
    # or less: a false alarm is 6 standard deviations away for each of 6 parameters, below 1e-8
    assert all(strict > loose for loose, strict in zip(*widths, strict=True))


def test_a_folder_of_someone_else_is_left_alone(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("precious")
    result = run("demo", "--output", "mine")
    assert result.exit_code == 2
    assert "was not made by the demo" in result.stderr
    assert [path.name for path in Path("mine").iterdir()] == ["thesis.txt"]
    Path("file").write_text("precious")
    assert run("demo", "--output", "file").exit_code == 2
    assert run("demo", "--output", "file/below").exit_code == 2
    assert Path("file").read_text() == "precious"


def test_a_senseless_epsilon_is_refused_before_anything_is_made(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--epsilon", "-1")
    assert result.exit_code == 2
    assert "epsilon -1.0 is out of range" in result.stderr
    assert list(tmp_path.iterdir()) == []
