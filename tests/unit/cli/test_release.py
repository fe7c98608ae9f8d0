"""noisewise release: what it publishes, what it tells the holder alone, and that a refusal costs nothing."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import noisewise as nw
from noisewise.gram import Integers
from noisewise.privacy.ledger import Ledger
from noisewise.privacy.noise import SecureNoise


def change(place: Any, column: str, values: list[Any]) -> None:
    """The table with another column in place of one of its own."""
    table = csv.read_csv(place.table)
    names = table.schema.names
    csv.write_csv(table.set_column(names.index(column), column, pa.array(values)), place.table)


def test_a_release_is_written_paid_for_and_confirmed(run: Any, place: Any) -> None:
    result = run(*place.release_arguments, "--output", "city.json", "--name", "City", "--json")
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    release = nw.Release.load("city.json")
    assert release.holder == body["holder"] == "City"
    assert release.insecure == ""
    assert body["digest"] == release.digest
    assert body["study_digest"] == nw.Study.load("study.toml").digest
    assert body["ledger_entry"] == release.ledger_entry
    assert body["budget"]["spent_epsilon"] == pytest.approx(place.spent())
    assert place.spent() > 0
    assert Ledger.open("ledger.db").summary().unconfirmed == 0


def test_counts_are_for_the_holder_and_not_in_the_release(run: Any, place: Any) -> None:
    change(place, "age", [95] * 7 + [40] * 393)
    result = run(*place.release_arguments, "--output", "city.json")
    assert "rows read  400" in result.stdout
    assert any(line.split() == ["age", "7", "0"] for line in result.stdout.splitlines())
    assert "Don't publish them" in result.stderr
    assert "clipped" not in Path("city.json").read_text()
    body = json.loads(run(*place.release_arguments, "--output", "again.json", "--json").stdout)
    assert body["private_rows"]["clipped_by_column"]["age"] == 7
    assert "publish" in body["private_rows"]["warning"]


def test_a_dry_run_spends_and_writes_nothing(run: Any, place: Any) -> None:
    before = place.contents()
    result = run(*place.release_arguments, "--dry-run", "--output", "city.json")
    assert result.exit_code == 0
    assert "nothing was spent or written" in result.stdout
    assert "fits" in result.stdout
    body = json.loads(run(*place.release_arguments, "--dry-run", "--json").stdout)
    assert (body["dry_run"], body["fits"]) == (True, True)
    assert body["budget"]["spent_before"] == 0
    assert 0 < body["budget"]["spent_after"] <= 1
    assert body["entries"][0] == {"name": "n", "scale": 0.0}
    assert place.contents() == before


def test_a_dry_run_tells_when_the_budget_is_too_small(run: Any, place: Any) -> None:
    Ledger.create("small.db", dataset="patients", epsilon=0.5, delta=1e-6)
    arguments = ["release", "patients.csv", "--study", "study.toml", "--ledger", "small.db", "--dry-run"]
    assert "DOES NOT FIT" in run(*arguments).stdout
    assert json.loads(run(*arguments, "--json").stdout)["fits"] is False


def test_parquet_gives_the_same_rows(run: Any, place: Any) -> None:
    parquet.write_table(csv.read_csv("patients.csv"), "patients.parquet")
    arguments = ["release", "patients.parquet", "--study", "study.toml", "--ledger", "ledger.db", "--dry-run", "--json"]
    rows = json.loads(run(*arguments).stdout)["private_rows"]
    assert rows == json.loads(run(*place.release_arguments, "--dry-run", "--json").stdout)["private_rows"]


def test_extra_columns_are_refused_unless_ignored(run: Any, place: Any) -> None:
    table = csv.read_csv("patients.csv")
    csv.write_csv(table.append_column("secret_note", pa.array(["x"] * 400)), "patients.csv")
    before = place.contents()
    refused = run(*place.release_arguments, "--output", "city.json")
    assert refused.exit_code == 2
    assert "secret_note" in refused.stderr
    assert place.contents() == before
    assert run(*place.release_arguments, "--output", "city.json", "--ignore-extra-columns").exit_code == 0


def _rename_column(place: Any) -> None:
    place.table.write_text(place.table.read_text().replace('"bmi"', '"bodymass"'))


def _few_rows(place: Any) -> None:
    place.table.write_text("\n".join(place.table.read_text().splitlines()[:6]) + "\n")


def _damage_ledger(place: Any) -> None:
    place.ledger.write_bytes(place.ledger.read_bytes()[:1000])


def _other_adjacency(place: Any) -> None:
    place.ledger.unlink()
    Ledger.create(place.ledger, dataset="patients", epsilon=2.0, delta=1e-5, adjacency="add-remove")


def _small_ledger(place: Any) -> None:
    place.ledger.unlink()
    Ledger.create(place.ledger, dataset="patients", epsilon=0.5, delta=1e-5)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_rename_column, "column 'bmi'"),
        (lambda place: change(place, "age", ["7731 years"] + ["50"] * 399), "'age'"),
        (lambda place: change(place, "bmi", [None] + [25.5] * 399), "'bmi'"),
        (lambda place: change(place, "bmi", [float("inf")] + [25.5] * 399), "'bmi'"),
        (lambda place: change(place, "smoking", ["7731 pipe"] + ["never"] * 399), "'smoking'"),
        (_few_rows, "asks for at least 10"),
        (lambda place: place.table.unlink(), "patients.csv: no such file"),
        (lambda place: place.table.write_text(""), "patients.csv"),
        (lambda place: place.study.unlink(), "noisewise study new study.toml"),
        (lambda place: place.ledger.unlink(), "noisewise ledger create ledger.db"),
        (_damage_ledger, "ledger.db"),
        (_other_adjacency, "adjacency"),
        (_small_ledger, "lower the study's epsilon"),
        (lambda place: place.folder.joinpath("city.json").write_text("{}"), "the file exists"),
    ],
    ids=[
        "missing column",
        "text in numbers",
        "missing value",
        "infinite",
        "unknown level",
        "few rows",
        "no table",
        "empty table",
        "no study",
        "no ledger",
        "damaged ledger",
        "other adjacency",
        "overspend",
        "output exists",
    ],
)
def test_a_refusal_has_words_and_costs_nothing(run: Any, place: Any, spoil: Any, words: str) -> None:
    spoil(place)
    before = place.contents()
    result = run(*place.release_arguments, "--output", "city.json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert "7731" not in result.stderr  # no value of the table is quoted
    assert place.contents() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--output", "absent/city.json"], "absent/city.json: can't be written"),
        (["--output", "city.json", "--dataset", "biobank"], "not of 'biobank'"),
        ([], "name a file for the release"),
    ],
)
def test_wrong_arguments_cost_nothing(run: Any, place: Any, arguments: list[str], words: str) -> None:
    before = place.contents()
    result = run(*place.release_arguments, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
    assert place.contents() == before


def test_a_paid_release_that_can_not_be_put_in_place_is_saved_elsewhere(
    run: Any, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output's folder vanishes at the worst moment: when the budget is spent and the noise is drawn."""
    spare = place.folder / "spare"
    spare.mkdir()
    target = place.folder / "target"
    target.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    draw = SecureNoise.draw

    def draw_and_vanish(self: SecureNoise, law: Any, grid_scales: Any) -> Integers:
        shutil.rmtree(target)
        return draw(self, law, grid_scales)

    monkeypatch.setattr(SecureNoise, "draw", draw_and_vanish)
    result = run(*place.release_arguments, "--output", "target/city.json")
    assert result.exit_code == 2
    assert place.spent() > 0
    (saved,) = spare.glob("noisewise-*.json")
    assert str(saved) in result.stderr
    assert nw.Release.load(saved).n == 400


def test_an_interrupt_while_noise_is_drawn_leaves_the_budget_spent_and_says_so(
    run: Any, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: SecureNoise, law: Any, grid_scales: Any) -> Integers:
        raise KeyboardInterrupt

    monkeypatch.setattr(SecureNoise, "draw", interrupted)
    result = run(*place.release_arguments, "--output", "city.json")
    assert result.exit_code not in (0, 2)
    assert "a reservation counts as spent" in result.stderr
    assert place.spent() > 0
    assert Ledger.open("ledger.db").summary().unconfirmed == 1
    assert not Path("city.json").exists()
    assert "1 never confirmed" in run("ledger", "show", "ledger.db").stdout


def test_noise_is_fresh_every_time(run: Any, place: Any) -> None:
    for name in ("one.json", "two.json"):
        assert run(*place.release_arguments, "--output", name).exit_code == 0
    one, two = (np.array(nw.Release.load(name).values) for name in ("one.json", "two.json"))
    assert one[0] == two[0]  # n is public
    assert np.all(one[1:] != two[1:])  # 27 collisions of chance 1e-11 each
