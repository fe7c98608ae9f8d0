"""Real processes that use a ledger, for test_ledger.py: killed, starved of disk or stripped of rights.

The script imports once and then forks, so that many processes cost one start of Python.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dp_accounting  # noqa: F401  loaded before forks and before rights are dropped

from noisewise.errors import NoisewiseError, OverspendError
from noisewise.privacy.accounting import Event
from noisewise.privacy.chain import Chain, Transaction
from noisewise.privacy.ledger import Ledger

DIGEST = "ab" * 32


def laplace(epsilon: float) -> Event:
    return Event("laplace", 1 / epsilon, epsilon, 0.0)


def reserve(ledger: Ledger, epsilon: float = 1.0) -> str:
    return ledger.reserve(laplace(epsilon), adjacency="replace-one", study_digest=DIGEST, study_name="s", holder="h")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(work: Callable[[], Any]) -> dict[str, Any]:
    """Run work in a forked process; how it ended and what it said."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            said: Any = {"result": work()}
        except NoisewiseError as error:
            said = {"error": type(error).__name__, "words": str(error)}
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return {"signal": signalled, **(json.loads(text) if text else {})}


def kill_before_append(ledger: Ledger) -> None:
    def append(self: Transaction, kind: str, payload: Any) -> Any:
        die()

    Transaction.append = append
    reserve(ledger)


def kill_after_append(ledger: Ledger) -> None:
    real = Transaction.append

    def append(self: Transaction, kind: str, payload: Any) -> Any:
        real(self, kind, payload)
        die()

    Transaction.append = append
    reserve(ledger)


def kill_after_commit(ledger: Ledger) -> None:
    real = Chain.writing

    @contextmanager
    def writing(self: Chain) -> Iterator[Transaction]:
        with real(self) as transaction:
            yield transaction
        die()

    Chain.writing = writing
    reserve(ledger)


def kill_before_confirm(ledger: Ledger) -> None:
    reserve(ledger)
    die()


def kill_inside_confirm(ledger: Ledger) -> None:
    entry = reserve(ledger)
    real = Transaction.append

    def append(self: Transaction, kind: str, payload: Any) -> Any:
        real(self, kind, payload)
        die()

    Transaction.append = append
    ledger.confirm(entry, release_digest=DIGEST)


def kill_after_confirm(ledger: Ledger) -> None:
    ledger.confirm(reserve(ledger), release_digest=DIGEST)
    die()


# step: (what the child does, reservations that must count as spent, those left unconfirmed)
STEPS: dict[str, tuple[Callable[[Ledger], None], int, int]] = {
    "before reserve": (lambda ledger: die(), 0, 0),
    "in the transaction, before the entry": (kill_before_append, 0, 0),
    "in the transaction, after the entry": (kill_after_append, 0, 0),
    "after the commit, before reserve returns": (kill_after_commit, 1, 1),
    "after reserve, before confirm": (kill_before_confirm, 1, 1),
    "in the transaction of confirm": (kill_inside_confirm, 1, 1),
    "after confirm": (kill_after_confirm, 1, 0),
}


def crash(folder: Path) -> dict[str, Any]:
    out = {}
    for number, (step, (work, spent, unconfirmed)) in enumerate(STEPS.items()):
        path = folder / f"{number}.db"
        ledger = Ledger.create(path, dataset="d", epsilon=3, delta=0)
        ended = in_child(lambda work=work, ledger=ledger: work(ledger))
        summary, found = Ledger.open(path).summary(), Ledger.open(path).verify()
        out[step] = {
            "killed": ended["signal"] == signal.SIGKILL,
            "expected": [spent, unconfirmed, float(spent)],
            "found": [summary.reservations, summary.unconfirmed, summary.spent_epsilon],
            "ok": found.ok,
            "usable": in_child(lambda path=path: reserve(Ledger.open(path))).get("result") is not None,
        }
    return out


def crash_in_create(folder: Path) -> dict[str, Any]:
    """Killed while the file is built, then just after it got its name."""
    first = folder / "first.db"

    def early() -> None:
        Chain._fill = lambda self, kind, payload: die()
        Ledger.create(first, dataset="d", epsilon=1, delta=0)

    second = folder / "second.db"

    def late() -> None:
        real = os.link

        def link(*places: Any) -> None:
            real(*places)
            die()

        os.link = link
        Ledger.create(second, dataset="d", epsilon=1, delta=0)

    signals = [in_child(early)["signal"], in_child(late)["signal"]]
    return {
        "signals": signals,
        "first": first.exists(),
        "second": Ledger.open(second).verify().ok,
        "again": Ledger.create(first, dataset="d", epsilon=1, delta=0).verify().ok,
    }


def kill_at_random(path: Path, rounds: int) -> dict[str, Any]:
    """Children that reserve as fast as they can, killed from outside at any moment, in the middle of a commit too."""
    Ledger.create(path, dataset="d", epsilon=1000, delta=0)
    told: list[str] = []
    for number in range(rounds):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            ledger = Ledger.open(path)
            while True:
                os.write(writer, f"{reserve(ledger, 0.001)}\n".encode())
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told.append(pipe.readline().strip())
            time.sleep(0.0037 * number)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told += [line.strip() for line in pipe if len(line) == 65]
    found = Ledger.open(path).verify(told)
    return {"told": len(told), "reserved": found.reservations, "missing": len(found.missing), "rounds": rounds}


def race(path: Path, processes: int, attempts: int) -> dict[str, Any]:
    """Processes that start at once and each try to reserve epsilon 1 several times."""
    gate_reader, gate_writer = os.pipe()
    reader, writer = os.pipe()
    children = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            os.close(gate_writer)
            os.read(gate_reader, 1)  # ends when the parent closes the gate's other end
            ledger = Ledger.open(path)
            for _ in range(attempts):
                try:
                    os.write(writer, f"{reserve(ledger)}\n".encode())
                except OverspendError:
                    os.write(writer, b"refused\n")
            os._exit(0)
        children.append(pid)
    os.close(writer)
    os.close(gate_writer)
    with os.fdopen(reader) as pipe:
        lines = [line.strip() for line in pipe]
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    return {"codes": codes, "refused": lines.count("refused"), "reserved": [x for x in lines if x != "refused"]}


def no_room(path: Path) -> dict[str, Any]:
    """A disk that takes no more than a kilobyte a file: the journal does not fit."""

    def work() -> str:
        ledger = Ledger.open(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
        return reserve(ledger)

    return in_child(work)


def no_rights(path: Path) -> dict[str, Any]:
    """Another user, who may read and not write: first the file, then its folder too."""

    def other_user() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    def write() -> str:
        other_user()
        return reserve(Ledger.open(path))

    def read() -> int:
        other_user()
        return Ledger.open(path).summary().reservations

    def create() -> str:
        other_user()
        return str(Ledger.create(path.with_name("new.db"), dataset="d", epsilon=1, delta=0))

    path.chmod(0o444)
    out = {"read-only file": in_child(write)}
    path.parent.chmod(0o555)
    out |= {"read-only folder": in_child(write), "reading": in_child(read), "creating": in_child(create)}
    path.chmod(0o666)
    out["folder only"] = in_child(write)
    path.parent.chmod(0o755)
    path.chmod(0o600 if os.geteuid() == 0 else 0)
    out["no right to read"] = in_child(read)
    path.chmod(0o600)
    return out


def attempt(path: Path) -> dict[str, Any]:
    """One reservation that does not wait for a lock."""
    return in_child(lambda: reserve(Ledger.open(path, timeout=0.05)))


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "crash": crash,
    "crash_in_create": crash_in_create,
    "kill_at_random": lambda path, rounds: kill_at_random(path, int(rounds)),
    "race": lambda path, processes, attempts: race(path, int(processes), int(attempts)),
    "no_room": no_room,
    "no_rights": no_rights,
    "attempt": attempt,
}

if __name__ == "__main__":
    command, place, *others = sys.argv[1:]
    print(json.dumps(COMMANDS[command](Path(place), *others)))
