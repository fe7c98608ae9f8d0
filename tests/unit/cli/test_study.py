"""noisewise study new | check | radius | show."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import noisewise as nw
from noisewise.evaluation.hospitals import hypertension_study
from noisewise.privacy.calibration import plan_noise


def test_new_writes_a_commented_study_that_is_the_demos(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    result = run("study", "new", str(path))
    assert result.exit_code == 0
    text = path.read_text()
    assert text.count("#") > 15
    assert f"noisewise study check {path}" in text
    assert nw.Study.load(path) == hypertension_study()


def test_new_leaves_an_existing_file_alone(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("mine")
    result = run("study", "new", str(path))
    assert result.exit_code == 2
    assert "exists and was left alone" in result.stderr
    assert path.read_text() == "mine"


def test_new_says_where_it_can_not_write(run: Any, tmp_path: Path) -> None:
    result = run("study", "new", str(tmp_path / "absent" / "study.toml"))
    assert result.exit_code == 2
    assert "can't be written" in result.stderr


def test_check_as_json_is_the_plan(run: Any, place: Any) -> None:
    result = run("study", "check", "study.toml", "--n", "3000", "--holders", "2", "--json")
    body = json.loads(result.stdout)
    study = hypertension_study()
    plan = plan_noise(study)
    assert body["sensitivity"] == plan.sensitivity.value
    assert body["sigma"] == pytest.approx(plan.scales[-1])  # the square of the target is on the diagonal
    assert [entry["scale"] for entry in body["entries"]] == list(plan.scales)
    assert body["entries"][0] == {"name": "n", "scale": 0.0}
    assert body["entries"][1]["name"] == "sum age"
    chosen = {key: body[key] for key in ("adjacency", "mechanism", "epsilon", "delta", "radius", "norm", "tight")}
    assert chosen == {
        "adjacency": "replace-one",
        "mechanism": "gaussian",
        "epsilon": 1.0,
        "delta": 1e-6,
        "radius": 2.0,
        "norm": "L2",
        "tight": plan.sensitivity.tight,
    }
    assert body["digest"] == study.digest
    (expected,) = body["expected"]
    assert (expected["n"], expected["holders"]) == (3000, 2)
    assert [width["name"] for width in expected["widths"]][:2] == ["intercept", "age"]
    assert all(width["width"] > width["width_without_noise"] > 0 for width in expected["widths"])


def test_sigma_is_the_laplace_scale_under_laplace(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=0.5, mechanism="laplace").save(path)
    body = json.loads(run("study", "check", str(path), "--json").stdout)
    assert body["norm"] == "L1"
    assert body["sigma"] == pytest.approx(body["sensitivity"] / 0.5)
    assert {entry["scale"] for entry in body["entries"]} == {0.0, body["sigma"]}


def test_check_tells_people_what_matters(run: Any, place: Any) -> None:
    result = run("study", "check", "study.toml", "--n", "2000", "--n", "200000")
    for words in ("sensitivity", "an upper bound", "exact", "n 2,000", "n 200,000", "smoking[current]", "Assumed"):
        assert words in result.stdout
    assert "at n = 2,000 the noise" in result.stderr
    assert max(len(line) for line in result.stdout.splitlines()) <= 120


def test_check_lists_every_entry_on_demand(run: Any, place: Any) -> None:
    lines = run("study", "check", "study.toml", "--entries").stdout.splitlines()
    assert any(line.split() == ["age", "*", "bmi", "25.35"] for line in lines)


def test_show_gives_columns_features_and_digest(run: Any, place: Any) -> None:
    result = run("study", "show", "study.toml")
    for words in ("18 to 90", "never (baseline), former, current", "smoking[former]", hypertension_study().digest):
        assert words in result.stdout
    body = json.loads(run("study", "show", "study.toml", "--json").stdout)
    assert body["digest"] == hypertension_study().digest
    assert [feature["name"] for feature in body["encoded"]][-1] == "smoking[current]"
    assert body["target"] == {"name": "systolic", "lower": 80.0, "upper": 200.0}


def test_radius_suggests_what_the_library_does(run: Any, place: Any) -> None:
    arguments = ("study", "radius", "study.toml", "--n", "1000", "--replications", "20", "--seed", "3")
    body = json.loads(run(*arguments, "--json").stdout)
    choice = nw.suggest_radius(hypertension_study(), 1000, replications=20, seed=3)
    assert body["best"] == choice.best
    assert len(body["table"]) == len(choice.table)
    text = run(*arguments).stdout
    assert f"radius = {choice.best:.4g}" in text
    assert "no data read" in text


def test_a_suggested_radius_can_be_used(run: Any, place: Any) -> None:
    best = json.loads(run("study", "radius", "study.toml", "--n", "1000", "--replications", "5", "--json").stdout)[
        "best"
    ]
    text = place.study.read_text().replace("radius = 2.0", f"radius = {best:.4g}")
    place.study.write_text(text)
    body = json.loads(run("study", "check", "study.toml", "--json").stdout)
    assert math.isclose(body["radius"], best, rel_tol=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lower = 18.0", "lower = 118.0", "Column 'age': lower bound 118 is not below upper bound 90"),
        ("epsilon = 1.0", "epsilon = -1.0", "epsilon -1.0 is out of range"),
        ("epsilon = 1.0", "", "epsilon is missing"),
        ("delta = 1e-06", "delta = 0.7", "delta 0.7 is out of range"),
        ('mechanism = "gaussian"', 'mechanism = "laplace"', "The Laplace mechanism has no delta"),
        ('adjacency = "replace-one"', 'adjacency = "both"', "adjacency 'both' is not known"),
        ('missing = "refuse"', 'missing = "drop"', "missing = 'drop' needs adjacency 'add-remove'"),
        ("radius = 2.0", "radius = 9.0", "radius 9.0 is out of range"),
        ("bits = 16", "bitz = 16", "unknown key 'bitz'"),
        ("[target]", "[target", "not a TOML file"),
    ],
)
@pytest.mark.parametrize("command", ["check", "show", "radius"])
def test_a_wrong_study_is_refused_in_words(run: Any, place: Any, command: str, old: str, new: str, words: str) -> None:
    text = place.study.read_text()
    assert old in text
    place.study.write_text(text.replace(old, new))
    result = run("study", command, "study.toml", *(["--n", "1000"] if command == "radius" else []))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert words in result.stderr


def test_an_absent_study_is_told_with_the_remedy(run: Any, place: Any) -> None:
    result = run("study", "check", "other.toml")
    assert result.exit_code == 2
    assert "'noisewise study new other.toml' writes one" in result.stderr


def test_too_few_rows_to_plan_for_are_refused(run: Any, place: Any) -> None:
    result = run("study", "check", "study.toml", "--n", "5")
    assert result.exit_code == 2
    assert "below the study's min_rows 10" in result.stderr


def split_study(**choices: Any) -> nw.Study:
    columns = (nw.Column("a", 0, 1), nw.Column("b", 0, 1))
    return nw.Study(columns, nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6, **choices)


def test_check_and_show_tell_how_the_budget_is_split(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    study = split_study(fourth_moments=0.3, smallest_eigenvalue=0.2)
    study.save(path)
    result = run("study", "check", str(path), "--n", "2000")
    for words in (
        "50% of the budget to the Gram matrix",
        "30% of the budget to third and fourth moments",
        "20% of the budget to the smallest eigenvalue",
        "products of three features",
        "products of four features",
        "smallest eigenvalue of X'X",
    ):
        assert words in result.stdout
    body = json.loads(run("study", "check", str(path), "--json").stdout)
    plan = plan_noise(study)
    assert [(block["name"], block["share"], block["sigma"]) for block in body["blocks"]] == [
        (block.name, block.share, block.sigma) for block in plan.blocks
    ]
    assert len(body["entries"]) == len(plan.scales)
    assert "smallest eigenvalue" in run("study", "check", str(path), "--entries").stdout
    shown = run("study", "show", str(path)).stdout
    assert "the Gram matrix (50% of the budget), third and fourth moments (30% of the budget)" in shown


def test_a_study_of_the_spread_has_no_regression_to_plan(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    split_study(statistics="spread").save(path)
    result = run("study", "check", str(path))
    assert "squares of features" in result.stdout
    assert "Expected width" not in result.stdout
    assert json.loads(run("study", "check", str(path), "--json").stdout)["expected"] == []
    assert "sums and squares of columns" in run("study", "show", str(path)).stdout
    refused = run("study", "radius", str(path), "--n", "100")
    assert refused.exit_code == 2
    assert "releases no regression, so there is none to plan for" in refused.stderr


def test_averaged_rows_are_told_and_planned_for(run: Any, tmp_path: Path) -> None:
    """Of independent uniform features an average of 4 tells a coefficient a quarter of what four rows do."""
    widths = {}
    for k in (1, 4):
        path = tmp_path / f"study{k}.toml"
        split_study(average_rows=k).save(path)
        body = json.loads(run("study", "check", str(path), "--n", "1000000", "--json").stdout)
        widths[k] = {row["name"]: row["width_without_noise"] for row in body["expected"][0]["widths"]}
    assert widths[4]["a"] / widths[1]["a"] == pytest.approx(2, rel=0.01)
    assert widths[4]["intercept"] < 2.01 * widths[1]["intercept"]
    assert "groups of 4 rows, in the order of the table" in run("study", "check", str(path)).stdout
    assert "of averages of 4 rows" in run("study", "show", str(path)).stdout
    refused = run("study", "radius", str(path), "--n", "100")
    assert "does not simulate averaged rows" in refused.stderr
