"""noisewise study spread | project."""

import json
from typing import Any

import pytest

import noisewise as nw


def spread_release(run: Any) -> None:
    assert run("study", "spread", "study.toml", "--output", "spread.toml").exit_code == 0
    arguments = ("--study", "spread.toml", "--ledger", "ledger.db", "--output", "spread.json")
    assert run("release", "patients.csv", *arguments).exit_code == 0


def test_two_steps_cost_one_budget(run: Any, place: Any) -> None:
    result = run("study", "spread", "study.toml", "-o", "spread.toml", "--share", "0.3")
    assert result.exit_code == 0
    assert "together" in result.stdout
    assert nw.Study.load("spread.toml") == nw.Projection(nw.Study.load("study.toml"), 0.3).spread_study
    run("release", "patients.csv", "--study", "spread.toml", "--ledger", "ledger.db", "--output", "spread.json")
    step = ("study", "project", "study.toml", "spread.json", "--share", "0.3", "--repeats", "2")
    result = run(*step, "--output", "projected.toml", "--seed", "5")
    assert result.exit_code == 0
    assert "bounds before" in result.stdout
    study = nw.Study.load("projected.toml")
    assert study.digest in result.stdout
    assert "seed 5" in (place.folder / "projected.toml").read_text()
    run("release", "patients.csv", "--study", "projected.toml", "--ledger", "ledger.db", "--output", "release.json")
    # at the ledger's own delta, which is larger than the study's, a little less than the study's epsilon of 1
    assert place.spent() <= 1.0
    assert nw.Release.load("release.json").study == study


def test_the_first_step_as_json(run: Any, place: Any) -> None:
    plan = nw.Projection(nw.Study.load("study.toml"))
    body = json.loads(run("study", "spread", "study.toml", "-o", "spread.toml", "--json").stdout)
    assert body == {
        "output": "spread.toml",
        "digest": plan.spread_study.digest,
        "first_epsilon": plan.spread_study.epsilon,
        "second_epsilon": plan.remaining_epsilon,
        "epsilon": 1.0,
        "delta": 1e-6,
        "share": 0.1,
    }


def test_json_says_all_and_the_same_files_give_the_same_study(run: Any, place: Any) -> None:
    spread_release(run)
    bodies = []
    for name in ("a.toml", "b.toml"):
        result = run("study", "project", "study.toml", "spread.json", "-o", name, "--repeats", "2", "--json")
        bodies.append(json.loads(result.stdout))
    assert bodies[0]["digest"] == bodies[1]["digest"] == nw.Study.load("a.toml").digest
    assert bodies[0]["epsilon"] == pytest.approx(nw.Projection(nw.Study.load("study.toml")).remaining_epsilon)
    assert set(bodies[0]) >= {"features_threshold", "target_threshold", "expected_error", "unsure", "provenance"}


def test_a_drowned_spread_gets_a_note(run: Any, place: Any) -> None:
    spread_release(run)  # 400 rows at epsilon 1: not enough to tell every spread
    result = run("study", "project", "study.toml", "spread.json", "-o", "p.toml", "--repeats", "1")
    assert ("the noise drowned the spread of" in result.stderr) == bool(
        nw.Projection(nw.Study.load("study.toml")).project(nw.Release.load("spread.json"), repeats=1).unsure
    )


def test_refusals_write_nothing(run: Any, place: Any) -> None:
    spread_release(run)
    before = place.contents()
    for arguments, words in (
        (("spread", "study.toml", "-o", "spread.toml"), "exists and was left alone"),
        (("spread", "study.toml", "-o", "new.toml", "--share", "2"), "share 2.0 is out of range"),
        (("project", "study.toml", "spread.json", "-o", "spread.toml"), "exists and was left alone"),
        (("project", "study.toml", "spread.json", "-o", "new.toml", "--share", "0.2"), "They differ in"),
        (("project", "spread.toml", "spread.json", "-o", "new.toml"), "use statistics = 'gram'"),
        (("project", "study.toml", "absent.json", "-o", "new.toml"), "absent.json"),
    ):
        result = run("study", *arguments)
        assert result.exit_code == 2
        assert words in result.stderr
    assert place.contents() == before
