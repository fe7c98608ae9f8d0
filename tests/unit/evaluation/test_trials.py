"""Trials that are kept as they end: resumed, balanced, repeatable, and never mixed with those of other settings."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from noisewise.errors import DataError, OutputError
from noisewise.evaluation.trials import Archive, by_number, run_trials


class Toy(NamedTuple):
    """A case whose trial is one random number."""

    name: str
    settings: str = "toy"
    column: str = "value"

    def trial(self, number):
        return {self.column: round(float(np.random.default_rng([number, len(self.name)]).random()), 6)}


CASES = [Toy("one/a"), Toy("one/bb")]


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path / "results")


def test_what_is_there_is_not_run_again_and_the_rest_is(archive):
    assert run_trials(by_number(CASES, 3, archive), archive, workers=2) == 6
    left = by_number(CASES, 5, archive)
    assert left == [(case, number) for number in (3, 4) for case in CASES]
    run_trials(left, archive, workers=1)
    for case in CASES:
        rows = archive.read(case)
        assert [int(row["trial"]) for row in rows] == [0, 1, 2, 3, 4]
        assert [float(row["value"]) for row in rows] == [case.trial(number)["value"] for number in range(5)]
    assert by_number(CASES, 5, archive) == []
    assert archive.names() == ["one/a", "one/bb"]


def test_a_line_cut_off_by_a_crash_is_run_again(archive):
    run_trials(by_number(CASES[:1], 3, archive), archive, workers=1)
    path = archive.path(CASES[0])
    whole = path.read_text()
    path.write_text(whole[:-4])
    last = int(whole.splitlines()[-1].split(",")[0])  # trials that end together are kept in any order
    assert by_number(CASES[:1], 3, archive) == [(CASES[0], last)]
    run_trials(by_number(CASES[:1], 3, archive), archive, workers=1)
    assert sorted(path.read_text().splitlines()) == sorted(whole.splitlines())


@pytest.mark.parametrize("kept", [0, 3, 8])
def test_a_head_cut_off_by_a_crash_is_written_again(archive, kept):
    run_trials(by_number(CASES[:1], 1, archive), archive, workers=1)
    path = archive.path(CASES[0])
    whole = path.read_text()
    path.write_text(whole[:kept])
    run_trials(by_number(CASES[:1], 1, archive), archive, workers=1)
    assert path.read_text() == whole


def test_a_trial_written_twice_counts_once(archive):
    archive.append(CASES[0], 0, CASES[0].trial(0))
    archive.append(CASES[0], 0, CASES[0].trial(0))
    assert len(archive.read(CASES[0])) == 1


def test_other_settings_are_refused(archive):
    archive.append(CASES[0], 0, CASES[0].trial(0))
    with pytest.raises(DataError, match=r"was made with other settings \(toy; now longer\).*Move the file away"):
        by_number([CASES[0]._replace(settings="longer")], 2, archive)
    with pytest.raises(OutputError, match="has the columns trial,value, and a trial now gives trial,other"):
        archive.append(CASES[0]._replace(column="other"), 1, {"other": 1})


def test_time_that_is_up_ends_a_run(archive):
    assert run_trials(by_number(CASES, 3, archive), archive, workers=1, minutes=0) == 0


def test_progress_is_told(archive):
    seen = []
    run_trials(
        by_number(CASES, 2, archive), archive, workers=1, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


class Noted(NamedTuple):
    """A case whose second trial fails, and whose others leave a file when they end."""

    folder: Path
    name: str = "noted"
    settings: str = "noted"

    def trial(self, number):
        if number == 1:
            raise RuntimeError("no")
        (self.folder / str(number)).touch()
        return {"value": number}


@pytest.mark.parametrize("attempt", range(5))  # trials that end together come in any order
def test_a_failure_names_its_trial_and_keeps_all_that_ended(archive, tmp_path, attempt):
    ended = tmp_path / "ended"
    ended.mkdir()
    case = Noted(ended)
    with pytest.raises(RuntimeError, match="no") as caught:
        run_trials(by_number([case], 20, archive), archive, workers=1, progress=lambda done, total: time.sleep(0.05))
    assert caught.value.__notes__ == ["This was trial 1 of noted."]
    kept = {row["trial"] for row in archive.read(case)}
    assert kept == {path.name for path in ended.iterdir()}
    assert "0" in kept


class Slow(NamedTuple):
    """A case whose first trial interrupts its own process group's parent, as Ctrl-C does, and goes on."""

    parent: int
    name: str = "slow"
    settings: str = "slow"

    def trial(self, number):
        if number == 0:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(self.parent, signal.SIGINT)
            time.sleep(0.2)
        return {"value": number}


@pytest.fixture
def interruptible():
    """Ctrl-C as a terminal's program knows it: what was started in the background ignores it from birth."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_what_is_done_and_the_rest_can_follow(archive):
    case = Slow(os.getpid())
    with pytest.raises(KeyboardInterrupt):
        run_trials(by_number([case], 50, archive), archive, workers=1)
    kept = {int(row["trial"]) for row in archive.read(case)}
    assert len(kept) < 50
    run_trials([(case, number) for case, number in by_number([case], 50, archive) if number], archive, workers=1)
    assert {int(row["trial"]) for row in archive.read(case)} | {0} == set(range(50))
