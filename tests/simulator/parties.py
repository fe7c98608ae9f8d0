"""The parties of a simulated round: each with its own disk, its own clock, and its own way onto the network."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from noisewise.column import Column
from noisewise.compute.board import Board
from noisewise.compute.coordinator import Coordinator
from noisewise.compute.folder import SETTINGS, Folder
from noisewise.compute.node import Node
from noisewise.compute.node_http import application
from noisewise.errors import LedgerError
from noisewise.evaluation.local import UNLIMITED
from noisewise.gram import Integers, Layout
from noisewise.holder.publish import Holder
from noisewise.holder.share import Delivery, Participant
from noisewise.holder.statistics import gram_of
from noisewise.privacy.ledger import Ledger
from noisewise.privacy.noise import SecureNoise
from noisewise.protocol.remote import Network
from noisewise.protocol.task import Task
from noisewise.study import Mechanism, Study
from tests.simulator.disk import Disk
from tests.simulator.wire import Host, Wire

STUDY = Study(features=(Column("x", -1, 1),), target=Column("y", -1, 1), epsilon=0.5, delta=1e-9, min_rows=1)
LEDGER = "budget.ledger"


@dataclass
class Clock:
    """The true time, and how wrong each party's clock is."""

    now: datetime = datetime(2027, 1, 1, tzinfo=UTC)

    def of(self, party: "Party") -> Callable[[], datetime]:
        return lambda: self.now + party.skew

    def tick(self, chance: Random) -> None:
        self.now += timedelta(seconds=chance.uniform(0, 240))


class Party:
    def __init__(self, name: str, wire: Wire, clock: Clock, base: Path) -> None:
        self.name = name
        self.wire = wire
        self.disk = Disk(base / name)
        self.skew = timedelta(0)
        self.clock = clock.of(self)

    @property
    def network(self) -> Network:
        transport = self.wire.transport(self.name, self.disk)
        return Network(transport=transport, attempts=2, pause=lambda seconds: None)

    @property
    def folder(self) -> Path:
        return self.disk.folder


class NodeParty(Party):
    def __init__(self, name: str, wire: Wire, clock: Clock, base: Path, coordinator: str) -> None:
        super().__init__(name, wire, clock, base)
        made = Folder.create(self.folder, name=name, url=f"https://{name}", coordinators=[coordinator])
        settings = self.folder / SETTINGS
        # one second of the simulation is hours of its parties: limits a second would say nothing
        settings.write_text(re.sub(r"_per_second = .*", "_per_second = 0", settings.read_text()))
        self.key = made.identity.key
        self.identity = made.identity
        self.host = Host(name, self.disk, self.clock, self._build)
        wire.hosts[name] = self.host
        self.host.start()

    def _build(self) -> Any:
        folder = Folder.load(self.folder)
        return application(Node(folder, folder.store(clock=self.clock), self.clock))

    def rotate(self) -> None:
        """Another process of the operator changes the sealing key under the running node."""
        Folder.load(self.folder).keyring.rotate()


class CoordinatorParty(Party):
    """The coordinator's machine: the board serves on it, and the operator's commands run on it."""

    def __init__(self, name: str, wire: Wire, clock: Clock, base: Path) -> None:
        super().__init__(name, wire, clock, base)
        Coordinator.create(self.folder)
        self.host = Host(name, self.disk, self.clock, self._build)
        wire.hosts[name] = self.host
        self.host.start()

    def command(self) -> Coordinator:
        return Coordinator(self.folder, self.network, self.clock)

    def invite(self, name: str) -> str:
        return self.command().invite(name)

    def _build(self) -> Any:
        return Board(self.command(), limits=UNLIMITED).application()


class RememberedNoise(SecureNoise):
    """The noise that users have; the simulator remembers it, to know the sum to the last digit."""

    def draw(self, law: Mechanism, grid_scales: Sequence[float]) -> Integers:
        self.last = super().draw(law, grid_scales)
        return self.last


class HolderParty(Party):
    """Holder k has 2^k rows, so the sum's number of rows, which has no noise, tells who is in it, and how often."""

    def __init__(self, k: int, wire: Wire, clock: Clock, base: Path, relay: bool) -> None:
        super().__init__(f"holder-{k}", wire, clock, base)
        self.relay = relay
        rng = np.random.default_rng(k)
        self.table = {"x": rng.uniform(-1, 1, 2**k), "y": rng.uniform(-1, 1, 2**k)}
        Ledger.create(self.folder / LEDGER, dataset=self.name, epsilon=900.0, delta=0.4)
        exact, _ = gram_of(STUDY, self.table)
        self._exact = Layout.of(STUDY).pick(exact.matrix)
        self._noise = RememberedNoise()
        self.values: dict[str, list[int]] = {}

    def enrol(self, token: str, trust: str) -> None:
        done = Participant.enrol(self.folder, trust=trust, name=self.name, token=token, network=self.network)
        self.key = done.identity.key

    def contribute(self, task: Task, pays_again: bool) -> Delivery:
        """What 'join send' does: find the round on the board, take part; after a stop midway perhaps pay again."""
        participant = self._participant()
        holder = Holder(STUDY, ledger=self.folder / LEDGER, name=self.name, noise=self._noise, create_ledger=False)
        if participant.outbox.get(task.id) is None:
            task = participant.find(STUDY, task.id)
        try:
            return participant.contribute(task, holder, self.table)
        except LedgerError:
            if not pays_again:
                raise
            return participant.contribute(task, holder, self.table, again=True)

    def remember(self, round: str) -> None:
        """Once something is in the outbox, what it sums is settled: the rows and the noise that was drawn last."""
        if round not in self.values and self._participant().outbox.get(round):
            self.values[round] = [int(value) for value in self._exact + self._noise.last]

    def _participant(self) -> Participant:
        return Participant(self.folder, self.network, self.clock)
