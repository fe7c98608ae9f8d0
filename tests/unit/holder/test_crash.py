"""A holder killed at any point of a release: what was reserved stays spent, and no half-written release is found."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import noisewise as nw

# A real process, with the real noise, that kills itself before or after one step of a release.
CHILD = """
import os, signal, sys
import noisewise as nw
from noisewise.privacy.ledger import Ledger
from noisewise.privacy.noise import SecureNoise
from noisewise.release import Release

STEPS = {"reserve": (Ledger, "reserve"), "draw": (SecureNoise, "draw"), "write": (os, "fsync"),
         "save": (Release, "save"), "confirm": (Ledger, "confirm")}
when, step, folder = sys.argv[1:]
owner, name = STEPS[step]
original = getattr(owner, name)

def killed(*arguments, **options):
    if when == "after":
        original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, killed)
study = nw.Study.load(f"{folder}/study.toml")
nw.Holder(study, ledger=f"{folder}/ledger", name="North").release(f"{folder}/rows.csv", f"{folder}/release.json")
"""


class Outcome(NamedTuple):
    reserved: bool
    confirmed: bool
    published: bool


CRASHES = {
    ("before", "reserve"): Outcome(False, False, False),
    ("after", "reserve"): Outcome(True, False, False),
    ("after", "draw"): Outcome(True, False, False),
    ("before", "write"): Outcome(True, False, False),
    ("after", "save"): Outcome(True, False, True),
    ("after", "confirm"): Outcome(True, True, True),
}


@pytest.mark.parametrize(("when", "step"), CRASHES)
def test_a_kill_leaves_the_budget_spent(when: str, step: str, tmp_path: Path) -> None:
    study = nw.Study((nw.Column("x", 0, 1),), nw.Column("y", 0, 1), epsilon=1.0, delta=1e-6)
    study.save(tmp_path / "study.toml")
    rows = np.random.default_rng(1).uniform(size=(50, 2))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="x,y", comments="")
    nw.Ledger.create(tmp_path / "ledger", dataset="d", epsilon=1.0, delta=1e-6)
    done = subprocess.run([sys.executable, "-c", CHILD, when, step, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr

    expected = CRASHES[when, step]
    ledger = nw.Ledger.open(tmp_path / "ledger")
    summary = ledger.summary()
    assert summary.reservations == expected.reserved
    assert summary.unconfirmed == (expected.reserved and not expected.confirmed)
    assert summary.spent_epsilon == (1.0 if expected.reserved else 0.0)
    assert ledger.verify().ok
    release = tmp_path / "release.json"
    assert release.exists() == expected.published
    if expected.published:  # whole, and known to the ledger
        assert nw.Release.load(release).ledger_entry == ledger.entries()[1].hash
        release.unlink()

    # Another try is refused exactly if the first one's budget is spent.
    holder = nw.Holder(study, ledger=tmp_path / "ledger")
    if expected.reserved:
        with pytest.raises(nw.OverspendError, match="Nothing was spent"):
            holder.release(tmp_path / "rows.csv", release)
        assert not release.exists()
    else:
        holder.release(tmp_path / "rows.csv", release)
        assert nw.Release.load(release).n == 50
