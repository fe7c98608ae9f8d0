"""A small world for tests of whole rounds: a study, tables, ledgers, and all parties in one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import noisewise as nw
from noisewise.evaluation.local import Local
from noisewise.holder.share import Delivery, Participant
from noisewise.protocol.task import Task

STUDY = nw.Study((nw.Column("x", -1, 1),), nw.Column("y", -1, 1), epsilon=1.0, delta=1e-6, name="trial")


def table(rows: int = 40, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, rows)
    return {"x": x, "y": np.clip(x / 2 + rng.normal(0, 0.1, rows), -1, 1)}


def holder(member: Participant, study: nw.Study = STUDY, epsilon: float = 1.0, **options: Any) -> nw.Holder:
    """The holder behind a participant, with a ledger that pays for one round unless told otherwise."""
    path = member.folder / "ledger"
    if not path.exists():
        nw.Ledger.create(path, dataset=member.name, epsilon=epsilon, delta=1e-6)
    return nw.Holder(study, ledger=path, name=member.name, create_ledger=False, **options)


def send(member: Participant, task: Task, rows: int = 40, seed: int = 1) -> Delivery:
    return member.contribute(task, holder(member), table(rows, seed))


def spent(member: Participant) -> tuple[int, int]:
    """Reservations in the ledger, and those that are not confirmed."""
    summary = nw.Ledger.open(member.folder / "ledger").summary()
    return summary.reservations, summary.unconfirmed


class Losing(httpx.BaseTransport):
    """Delivers every request, and loses the first answer to each: what its sender can't tell from a lost request."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self._seen: set[tuple[str, str]] = set()
        self.lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        name = (request.method, str(request.url))
        if name not in self._seen:
            self._seen.add(name)
            self.lost += 1
            raise httpx.ReadError("the answer was lost")
        return answer


MakeWorld = Callable[..., Local]


def make_world(folder: Path, holders: int = 4, nodes: tuple[str, ...] = ("north", "south", "west")) -> Local:
    world = Local(folder, nodes)
    for number in range(holders):
        world.enrol(f"h{number}")
    return world


def member(world: Local, number: int) -> Participant:
    return Participant(world.home(f"h{number}"), world.network)
