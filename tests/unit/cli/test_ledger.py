"""noisewise ledger create | show | verify | raise."""

import json
import sqlite3
from typing import Any

import pytest

from noisewise.privacy.ledger import Ledger


def test_create_makes_the_ledger_and_never_a_second(run: Any, place: Any) -> None:
    arguments = ("ledger", "create", "new.db", "--dataset", "biobank", "--epsilon", "3", "--delta", "1e-5")
    result = run(*arguments, "--adjacency", "add-remove", "--json")
    body = json.loads(result.stdout)
    assert (body["dataset"], body["total_epsilon"], body["adjacency"]) == ("biobank", 3.0, "add-remove")
    before = place.contents()
    again = run(*arguments)
    assert again.exit_code == 2
    assert "new.db" in again.stderr
    assert place.contents() == before


@pytest.mark.parametrize(("epsilon", "delta"), [("0", "1e-6"), ("1", "0.5"), ("-1", "0"), ("1", "-1e-6")])
def test_a_senseless_total_is_refused_and_nothing_written(run: Any, place: Any, epsilon: str, delta: str) -> None:
    before = place.contents()
    result = run("ledger", "create", "new.db", "--dataset", "d", "--epsilon", epsilon, "--delta", delta)
    assert result.exit_code == 2
    assert "The total is an epsilon above 0" in result.stderr
    assert place.contents() == before


def test_show_tells_spent_left_and_every_entry(run: Any, place: Any) -> None:
    assert run(*place.release_arguments, "--output", "r.json", "--name", "City").exit_code == 0
    text = run("ledger", "show", "ledger.db").stdout
    for words in ("patients (replace-one)", "total set", "spent", "written", "hypertension by City"):
        assert words in text
    body = json.loads(run("ledger", "show", "ledger.db", "--json").stdout)
    assert body["spent_epsilon"] == pytest.approx(place.spent())
    assert body["left_epsilon"] == pytest.approx(2.0 - place.spent())
    assert [entry["kind"] for entry in body["entries"]] == ["open", "reserve", "confirm"]


def test_show_of_no_ledger_gives_the_command_that_makes_one(run: Any, place: Any) -> None:
    result = run("ledger", "show", "absent.db")
    assert result.exit_code == 2
    assert "noisewise ledger create absent.db" in result.stderr


def test_verify_finds_what_releases_and_heads_know(run: Any, place: Any) -> None:
    assert run(*place.release_arguments, "--output", "r.json").exit_code == 0
    head = json.loads(run("ledger", "verify", "ledger.db", "--json").stdout)["head"]
    good = run("ledger", "verify", "ledger.db", "--release", "r.json", "--head", head)
    assert good.exit_code == 0
    assert "the chain is whole (3 entries); 1 release found in it" in good.stdout

    Ledger.create("older.db", dataset="patients", epsilon=2.0, delta=1e-5)
    bad = run("ledger", "verify", "older.db", "--release", "r.json", "--head", head, "--json")
    assert bad.exit_code == 2
    assert not json.loads(bad.stdout)["ok"]
    assert "is named by a release and is not in the ledger" in bad.stderr
    assert "The remembered head is not in the ledger" in bad.stderr


def test_verify_sees_an_edit(run: Any, place: Any) -> None:
    with sqlite3.connect(place.ledger) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("UPDATE entries SET payload = replace(payload, '2.0', '9.0') WHERE position = 1")
    connection.close()
    result = run("ledger", "verify", "ledger.db")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ledger.db")


def test_verify_needs_releases_with_an_entry(run: Any, place: Any) -> None:
    import noisewise as nw

    nw.exact_release(nw.Study.load("study.toml"), "patients.csv").save("exact.json")
    result = run("ledger", "verify", "ledger.db", "--release", "exact.json")
    assert result.exit_code == 2
    assert "made without a ledger" in result.stderr


def test_raise_goes_up_only_and_keeps_its_reason(run: Any, place: Any) -> None:
    result = run("ledger", "raise", "ledger.db", "--epsilon", "4", "--delta", "1e-5", "--reason", "board, 3 May")
    assert result.exit_code == 0
    assert "epsilon 4" in result.stdout
    assert "board, 3 May" in run("ledger", "show", "ledger.db").stdout
    before = place.contents()
    lower = run("ledger", "raise", "ledger.db", "--epsilon", "3", "--delta", "1e-5", "--reason", "no")
    assert lower.exit_code == 2
    assert "never lowered" in lower.stderr
    assert place.contents() == before
    assert json.loads(run("ledger", "show", "ledger.db", "--json").stdout)["raises"] == 1
