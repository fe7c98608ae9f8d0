"""A holder killed at any step of taking part: what was reserved stays spent, and what was kept is sent as it is."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import noisewise as nw
from noisewise.evaluation.local import Local
from tests.protocol.world import STUDY, holder, make_world, member, send, spent, table

# A real process that takes part, and kills itself before or after the n-th time of one step. The servers are in it too,
# on their own folders, so they are killed with it.
CHILD = """
import os, signal, sys
from pathlib import Path
from noisewise.evaluation.local import Local
from noisewise.holder.outbox import Outbox
from noisewise.privacy.ledger import Ledger
from noisewise.privacy.noise import SecureNoise
from noisewise.protocol.remote import Network, Remote
from tests.protocol.world import STUDY, member, send

STEPS = {"reserve": (Ledger, "reserve"), "draw": (SecureNoise, "draw"), "keep": (Outbox, "keep"), "write": (os, "link"),
         "send": (Remote, "put_bytes"), "confirm": (Ledger, "confirm")}
when, step, folder = sys.argv[1:]
world = Local(Path(folder))
first = member(world, 0)
task = first.find(STUDY)
owner, name = STEPS[step]
original = getattr(owner, name)

def killed(*arguments, **options):
    if when == "after":
        original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, killed)
send(first, task)
"""


class Outcome(NamedTuple):
    reserved: bool
    kept: bool
    confirmed: bool


CRASHES = {
    ("before", "reserve"): Outcome(False, False, False),
    ("after", "reserve"): Outcome(True, False, False),
    ("after", "draw"): Outcome(True, False, False),
    ("before", "write"): Outcome(True, False, False),
    ("after", "keep"): Outcome(True, True, False),
    ("before", "send"): Outcome(True, True, False),
    ("after", "send"): Outcome(True, True, False),
    ("before", "confirm"): Outcome(True, True, False),
    ("after", "confirm"): Outcome(True, True, True),
}


@pytest.mark.parametrize(("when", "step"), CRASHES)
def test_a_kill_at_any_step(when: str, step: str, tmp_path: Path) -> None:
    expected = CRASHES[when, step]
    with make_world(tmp_path, holders=3) as world:
        task = world.open(STUDY)
        holder(member(world, 0))  # makes the ledger
    done = subprocess.run(
        [sys.executable, "-c", CHILD, when, step, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr

    with Local(tmp_path) as world:
        first = member(world, 0)
        assert spent(first) == (expected.reserved, expected.reserved and not expected.confirmed)
        assert bool(first.outbox.rounds()) == expected.kept
        files = sorted(path.name for path in first.folder.rglob("*") if path.is_file())
        if expected.kept:
            before = first.outbox.path(task.id).read_bytes()
            assert send(first, task, rows=55).complete
            assert first.outbox.path(task.id).read_bytes() == before
            assert spent(first) == (1, 0)
        elif expected.reserved:
            assert not any(name.endswith(".json") and len(name) > 60 for name in files)
            with pytest.raises(nw.LedgerError, match="stopped midway. Its budget stays spent.*--spend-again"):
                send(first, task)
            assert spent(first) == (1, 1)
            with pytest.raises(nw.OverspendError):  # paying again needs a budget for it
                first.contribute(task, holder(first), table(), again=True)
            nw.Ledger.open(first.folder / "ledger").raise_total(3.0, 1e-5, "a test")
            assert first.contribute(task, holder(first), table(), again=True).complete
            assert spent(first) == (2, 1)
        else:
            assert send(first, task).complete
            assert spent(first) == (1, 0)
        for number in (1, 2):
            send(member(world, number), task)
        assert world.coordinator.collect(task.id).n == 120  # 40 rows each: nobody counted twice, nobody's other table
