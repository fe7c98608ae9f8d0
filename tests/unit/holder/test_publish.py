"""A release spends once, in the right order, and what goes wrong goes wrong before anything is spent."""

import json
import logging
import os
import stat
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisewise as nw
from noisewise.gram import Integers, Layout
from noisewise.holder.statistics import gram_of
from noisewise.privacy.calibration import plan_noise
from noisewise.privacy.noise import NoNoise, SimulatedNoise
from noisewise.study import Mechanism


def simulated() -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(1))


def exact_values(study: nw.Study, table: object) -> list[int]:
    return [int(value) for value in Layout.of(study).pick(gram_of(study, table)[0].matrix)]


def test_a_release_from_end_to_end(study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path) -> None:
    """With the real noise. Chance of a false alarm: 20 noisy entries beyond 12 sd, or one at exactly 0, below 1e-9."""
    holder = nw.Holder(study, ledger=ledger, name="North")
    release = holder.release(table, folder / "north.json")
    assert nw.Release.load(folder / "north.json") == release
    noise = np.array([got - exact for got, exact in zip(release.values, exact_values(study, table), strict=True)])
    scales = np.array(plan_noise(study).grid_scales)
    assert noise[0] == 0  # n is public under replace-one
    assert release.n == 200
    assert (np.abs(noise) <= 12 * scales).all()
    assert (noise[1:] != 0).all()
    assert (release.law, release.insecure, release.holder, release.study) == ("gaussian", "", "North", study)
    reserve, confirm = ledger.entries()[1:]
    assert (reserve.kind, confirm.kind) == ("reserve", "confirm")
    assert release.ledger_entry == reserve.hash == confirm.payload["entry"]
    assert confirm.payload["release_digest"] == release.digest
    assert reserve.payload["study_digest"] == study.digest
    assert reserve.payload["holder"] == "North"
    assert ledger.summary().spent_epsilon == 1.0


def test_laplace_noise_and_a_hidden_n(table: dict[str, Any], study: nw.Study, folder: Path) -> None:
    """Chance of a false alarm: a discrete Laplace draw beyond 50 scales, below 1e-19 for all entries."""
    changes = {"mechanism": "laplace", "delta": 0.0, "adjacency": "add-remove", "public_n": False}
    hidden = nw.Study.from_dict(study.to_dict() | changes)
    ledger = nw.Ledger.create(folder / "l", dataset="d", epsilon=1.0, delta=0.0, adjacency="add-remove")
    release = nw.Holder(hidden, ledger=ledger).release(table)
    noise = np.array([got - exact for got, exact in zip(release.values, exact_values(hidden, table), strict=True)])
    assert release.law == "laplace"
    assert noise[0] != 0
    assert (np.abs(noise) <= 50 * np.array(plan_noise(hidden).grid_scales)).all()
    assert ledger.summary().left_epsilon == 0


class Recorder:
    """A noise source that writes down what had happened when it was asked."""

    insecure = "recorded"

    def __init__(self, ledger: nw.Ledger, output: Path) -> None:
        self.ledger, self.output = ledger, output
        self.kinds: list[str] = []
        self.written = True

    def prepare(self) -> None:
        pass

    def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
        self.kinds = [entry.kind for entry in self.ledger.entries()]
        self.written = self.output.exists()
        return np.zeros(len(grid_scales), dtype=np.int64)


def test_the_budget_is_reserved_before_noise_is_drawn_and_the_file_comes_after(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path
) -> None:
    recorder = Recorder(ledger, folder / "r.json")
    nw.Holder(study, ledger=ledger, noise=recorder).release(table, folder / "r.json")
    assert recorder.kinds == ["open", "reserve"]
    assert not recorder.written
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "confirm"]
    assert nw.Release.load(folder / "r.json").insecure == "recorded"


def test_every_release_draws_anew(study: nw.Study, table: dict[str, Any], ledger: nw.Ledger) -> None:
    """Chance of a false alarm: two draws of a discrete Gaussian with sd above 1e10 agree, below 1e-9."""
    holder = nw.Holder(study, ledger=ledger)
    assert holder.release(table).values[1] != holder.release(table).values[1]


def test_without_a_ledger_there_is_a_warning(study: nw.Study, table: dict[str, Any]) -> None:
    with pytest.warns(nw.UnrecordedSpendWarning, match=r"epsilon 1, delta 1e-06 is spent and recorded nowhere") as seen:
        release = nw.Holder(study, ledger=None).release(table)
    assert release.ledger_entry is None
    assert seen[0].filename == __file__


def test_with_a_ledger_there_is_none(study: nw.Study, table: dict[str, Any], ledger: nw.Ledger) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nw.Holder(study, ledger=ledger).release(table)


def test_a_ledger_is_made_where_there_is_none(
    study: nw.Study, table: dict[str, Any], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "new.ledger"
    with caplog.at_level(logging.INFO, "noisewise"):
        nw.Holder(study, ledger=path, name="North").release(table)
    summary = nw.Ledger.open(path).summary()
    assert (summary.dataset, summary.total_epsilon, summary.total_delta) == ("North", 1.0, 1e-6)
    assert summary.left_epsilon == 0
    assert summary.adjacency == study.adjacency
    assert "Made the ledger" in caplog.text
    assert "epsilon 1, delta 1e-06: this release fits, no other will" in caplog.text
    with pytest.raises(nw.OverspendError):
        nw.Holder(study, ledger=path).release(table)


@pytest.mark.parametrize(("name", "dataset", "expected"), [("", None, "unnamed"), ("North", "wards", "wards")])
def test_the_name_of_the_data_set(
    name: str, dataset: str | None, expected: str, study: nw.Study, table: dict[str, Any], folder: Path
) -> None:
    nw.Holder(study, ledger=str(folder / "l"), name=name, dataset=dataset).release(table)
    assert nw.Ledger.open(folder / "l").dataset == expected


def test_a_ledger_is_not_made_on_request_or_for_a_bad_table(
    study: nw.Study, table: dict[str, Any], folder: Path
) -> None:
    with pytest.raises(nw.LedgerError, match="ledger"):
        nw.Holder(study, ledger=folder / "l", create_ledger=False).release(table)
    with pytest.raises(nw.DataError):
        nw.Holder(study, ledger=folder / "l").release({"age": [1.0]})
    assert not list(folder.iterdir())


def bad_ledger(folder: Path) -> Path:
    path = folder / "damaged"
    path.write_bytes(b"this is no ledger" * 100)
    return path


def test_a_damaged_ledger_or_another_data_sets_is_refused_before_the_table_is_read(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path, nothing_spent: Any
) -> None:
    damaged = bad_ledger(folder)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (damaged, {}, "damaged"),
        (ledger, {"dataset": "other"}, "ledger of data set 'ward rounds', not of 'other'"),
        (ledger.path, {"dataset": "other"}, "ledger of data set 'ward rounds', not of 'other'"),
    ]
    for given, options, words in cases:
        holder = nw.Holder(study, ledger=given, progress=lambda rows: pytest.fail("read"), **options)
        with nothing_spent(), pytest.raises(nw.LedgerError, match=words):
            holder.release(table, folder / "r.json")


def test_a_ledger_of_another_adjacency_is_refused_before_the_table_is_read(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, nothing_spent: Any
) -> None:
    other = nw.Study.from_dict(study.to_dict() | {"adjacency": "add-remove", "public_n": False})
    holder = nw.Holder(other, ledger=ledger, progress=lambda rows: pytest.fail("read"))
    with nothing_spent(), pytest.raises(nw.LedgerError, match="adjacency|replace-one"):
        holder.release(table)


def test_an_overspend_is_refused(study: nw.Study, table: dict[str, Any], folder: Path) -> None:
    ledger = nw.Ledger.create(folder / "l", dataset="d", epsilon=0.5, delta=1e-6)
    head = ledger.summary().head
    with pytest.raises(nw.OverspendError, match="asks for epsilon 1"):
        nw.Holder(study, ledger=ledger).release(table, folder / "r.json")
    assert ledger.summary().head == head
    assert [path.name for path in folder.iterdir()] == ["l"]


def test_too_few_rows(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path, nothing_spent: Any
) -> None:
    few = {name: values[:9] for name, values in table.items()}
    words = r"The table has 9 rows to release \(of 9 read\); the study asks for at least 10\. Nothing was spent\. Wait"
    with nothing_spent(), pytest.raises(nw.DataError, match=words):
        nw.Holder(study, ledger=ledger).release(few, folder / "r.json")


def test_rows_that_were_dropped_do_not_count_for_the_minimum(
    study: nw.Study, table: dict[str, Any], folder: Path
) -> None:
    changes = {"adjacency": "add-remove", "public_n": False, "missing": "drop", "min_rows": 200}
    dropping = nw.Study.from_dict(study.to_dict() | changes)
    table["age"][3] = np.nan
    with pytest.raises(nw.DataError, match=r"199 rows to release \(of 200 read\)"):
        nw.Holder(dropping, ledger=folder / "l").release(table)
    assert not list(folder.iterdir())


def test_an_existing_file_is_never_overwritten(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path, nothing_spent: Any
) -> None:
    output = folder / "r.json"
    output.write_text("paid for")
    with nothing_spent(), pytest.raises(nw.OutputError, match=r"r\.json: the file exists.*Choose another name"):
        nw.Holder(study, ledger=ledger).release(table, output)
    assert output.read_text() == "paid for"


def test_outputs_that_can_not_be_written(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path, nothing_spent: Any
) -> None:
    (folder / "file").touch()
    (folder / "dangling").symlink_to(folder / "nowhere")
    cases = {
        folder: "this is a folder; name a file in it",
        folder / "no" / "r.json": "can't be written .*nothing was spent. Choose a folder that exists",
        folder / "file" / "r.json": "can't be written",
        folder / "dangling": "the file exists",
        Path("/proc/noisewise/r.json"): "can't be written",
    }
    for output, words in cases.items():
        holder = nw.Holder(study, ledger=ledger, progress=lambda rows: pytest.fail("read"))
        with nothing_spent(), pytest.raises(nw.OutputError, match=words):
            holder.release(table, output)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, tmp_path: Path, nothing_spent: Any
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    with nothing_spent(), pytest.raises(nw.OutputError, match="can't be written"):
        nw.Holder(study, ledger=ledger).release(table, closed / "r.json")


def test_a_file_that_appears_while_the_table_is_read_is_not_overwritten(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path
) -> None:
    output, head = folder / "r.json", ledger.summary().head

    def another_writes(rows: int) -> None:
        output.write_text("other")

    holder = nw.Holder(study, ledger=ledger, progress=another_writes)
    with pytest.raises(nw.OutputError, match="the file exists"):
        holder.release(table, output)
    assert output.read_text() == "other"
    assert ledger.summary().head == head


def test_a_disk_that_fails_after_the_draw_leaves_the_reservation_and_the_release(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    holder = nw.Holder(study, ledger=ledger)
    with monkeypatch.context() as patch:
        patch.setattr("noisewise.release.os.fsync", full)
        with pytest.raises(nw.OutputError, match=r"No space left.*reservation [0-9a-f]{64} stays.*unsaved_\.save"):
            holder.release(table, folder / "r.json")
    summary = ledger.summary()
    assert (summary.reservations, summary.unconfirmed, summary.spent_epsilon) == (1, 1, 1.0)
    holder.unsaved_.save(folder / "later.json")
    saved = nw.Release.load(folder / "later.json")
    assert saved.ledger_entry == ledger.entries()[-1].hash
    assert sorted(path.name for path in folder.iterdir()) == ["later.json", "ledger"]


def test_noise_that_fails_leaves_the_reservation(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path
) -> None:
    class Broken:
        insecure = ""

        def prepare(self) -> None:
            pass

        def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
            raise RuntimeError("no randomness")

    with pytest.raises(RuntimeError, match="no randomness"):
        nw.Holder(study, ledger=ledger, noise=Broken()).release(table, folder / "r.json")
    assert ledger.summary().unconfirmed == 1
    assert ledger.summary().spent_epsilon == 1.0
    assert not (folder / "r.json").exists()


def test_noise_that_overflows_is_an_error_and_wraps_nothing(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger
) -> None:
    class Huge:
        insecure = "huge"

        def prepare(self) -> None:
            pass

        def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
            return np.full(len(grid_scales), np.iinfo(np.int64).max)

    with pytest.raises(nw.DataError, match="beyond 64-bit integers.*stays spent"):
        nw.Holder(study, ledger=ledger, noise=Huge()).release(table)
    assert ledger.summary().unconfirmed == 1


def test_unsaved_is_there_only_when_something_is(study: nw.Study, table: dict[str, Any], ledger: nw.Ledger) -> None:
    holder = nw.Holder(study, ledger=ledger)
    holder.release(table)
    assert not hasattr(holder, "unsaved_")


def test_a_dry_run_tells_the_cost_and_spends_nothing(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, nothing_spent: Any
) -> None:
    plan = plan_noise(study)
    with nothing_spent():
        quote = nw.Holder(study, ledger=ledger).dry_run()
        assert quote.rows is None
        assert (quote.epsilon, quote.delta, quote.adjacency, quote.law) == (1.0, 1e-6, "replace-one", "gaussian")
        assert (quote.sensitivity, quote.norm) == (plan.sensitivity.value, "L2")
        assert quote.scales == plan.scales
        assert len(quote.entries) == len(quote.scales)
        assert quote.entries[:2] == ("n", "sum age")
        assert quote.scales[0] == 0
        assert quote.spent_before == 0
        assert (quote.spent_after or 0) + (quote.left_after or 0) == pytest.approx(10.0)
        assert (quote.total_epsilon, quote.total_delta, quote.fits) == (10.0, 1e-6, True)
        holder = nw.Holder(study, ledger=ledger)
        rows = holder.dry_run(table).rows
        assert rows is not None
        assert rows == holder.rows_
        assert rows.read == 200


def test_a_dry_run_says_when_it_would_not_fit(study: nw.Study, folder: Path) -> None:
    ledger = nw.Ledger.create(folder / "l", dataset="d", epsilon=0.5, delta=1e-6)
    assert not nw.Holder(study, ledger=ledger).dry_run().fits


def test_a_dry_run_makes_no_ledger(study: nw.Study, table: dict[str, Any], folder: Path) -> None:
    quote = nw.Holder(study, ledger=folder / "l").dry_run(table)
    assert quote.creates_ledger
    assert (quote.spent_before, quote.spent_after, quote.left_after, quote.fits) == (0.0, 1.0, 0.0, True)
    quote = nw.Holder(study, ledger=None).dry_run(table)
    assert not quote.creates_ledger
    assert quote.spent_before is None
    with pytest.raises(nw.LedgerError):
        nw.Holder(study, ledger=folder / "l", create_ledger=False).dry_run()
    assert not list(folder.iterdir())


def test_a_dry_run_checks_the_minimum_too(study: nw.Study, table: dict[str, Any]) -> None:
    with pytest.raises(nw.DataError, match="9 rows to release"):
        nw.Holder(study, ledger=None).dry_run({name: values[:9] for name, values in table.items()})


def test_the_row_report_is_the_holders_alone(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table["age"] = np.where(np.arange(200) < 37, 1000.0, table["age"])
    holder = nw.Holder(study, ledger=ledger, noise=simulated())
    assert not hasattr(holder, "rows_")
    with caplog.at_level(logging.DEBUG):
        holder.release(table, folder / "r.json")
    assert holder.rows_.clipped == 37
    assert holder.rows_.clipped_by_column["age"] == 37
    written = json.loads((folder / "r.json").read_text())
    assert set(written) == {
        "format", "version", "identity", "holder", "created", "study_digest", "study", "privacy", "insecure",
        "ledger_entry", "round", "layout", "unit", "values", "noise", "digest",
    }  # fmt: skip
    assert "clipped" not in json.dumps(written)
    assert not caplog.text


def test_a_failed_release_keeps_no_report_of_an_earlier_table(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger
) -> None:
    holder = nw.Holder(study, ledger=ledger)
    holder.release(table)
    with pytest.raises(nw.DataError):
        holder.release({"age": [1.0]})
    assert not hasattr(holder, "rows_")


def test_simulated_and_missing_noise_mark_the_release(
    study: nw.Study, table: dict[str, Any], ledger: nw.Ledger
) -> None:
    marked = nw.Holder(study, ledger=ledger, noise=simulated()).release(table)
    assert "protects nobody" in marked.insecure
    exact = nw.Holder(study, ledger=ledger, noise=NoNoise()).release(table)
    assert (exact.law, exact.guarantee) == ("none", None)
    assert not any(exact.scales)
    assert "protects nobody" in exact.insecure


def test_exact_release(study: nw.Study, table: dict[str, Any]) -> None:
    release = nw.exact_release(study, table, holder="made up")
    assert list(release.values) == exact_values(study, table)
    assert (release.law, release.guarantee, release.ledger_entry, release.holder) == ("none", None, None, "made up")
    assert "protects nobody" in release.insecure
    x = (np.asarray(table["age"]) - 54) / 36
    assert release.sufficient.S[1, 1] == pytest.approx(x @ x, abs=200 * 2 * 2**-16)


def test_a_holder_needs_a_study() -> None:
    path: Any = "study.toml"
    with pytest.raises(nw.StudyError, match=r"needs a Study; got str\. Read one with Study\.load"):
        nw.Holder(path, ledger=None)


def test_the_library_never_prints(
    study: nw.Study, table: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("noisewise").addHandler(handler := logging.NullHandler())
    nw.Holder(study, ledger=folder / "l").release(table, folder / "r.json")
    logging.getLogger("noisewise").removeHandler(handler)
    assert capsys.readouterr() == ("", "")
