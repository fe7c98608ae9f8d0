"""The parties of a small round, made afresh for every test."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from noisewise.column import Column
from noisewise.compute.folder import Folder
from noisewise.compute.limits import Rate
from noisewise.compute.node import Node
from noisewise.compute.node_http import application
from noisewise.compute.web import Limits
from noisewise.gram import Integers
from noisewise.protocol.envelope import Envelope, seal
from noisewise.protocol.keys import Identity, SealingKey
from noisewise.protocol.round import Holdings
from noisewise.protocol.shares import Total, split
from noisewise.protocol.signed import Signed
from noisewise.protocol.task import Card, Member, Task
from noisewise.study import Study


@dataclass(frozen=True)
class Parties:
    """Everyone of one round, with all their keys."""

    task: Task
    coordinator: Identity
    holders: tuple[Identity, ...]
    nodes: tuple[Identity, ...]
    sealing: tuple[SealingKey, ...]

    def contribute(self, holder: int, values: Integers) -> tuple[bytes, ...]:
        """One holder's envelopes, with no noise added."""
        return seal(self.task, self.holders[holder], split(values, len(self.nodes)))

    def add_up(self, node: int, envelopes: list[bytes]) -> tuple[Total, Holdings]:
        """What one node makes of the envelopes it got."""
        total, held = Total(self.task.length), set()
        for content in envelopes:
            envelope = Envelope.read(content)
            envelope.check(self.task, node)
            total.add(envelope.open(self.sealing[node], self.task.length))
            held.add((envelope.holder, envelope.bundle))
        return total, frozenset(held)


def draft(
    coordinator: Identity, cards: list[Card], holders: int, features: int = 2, **crowd: int
) -> tuple[Task, tuple]:
    """A task of this coordinator for these nodes, and its holders."""
    study = Study(
        features=tuple(Column(f"x{i}", -1, 1) for i in range(features)),
        target=Column("y", -1, 1),
        epsilon=1.0,
        delta=1e-6,
    )
    members = tuple(Identity.generate() for _ in range(holders))
    task = Task.draft(
        coordinator,
        study,
        [Member(f"holder {k}", identity.key) for k, identity in enumerate(members)],
        cards,
        deadline=datetime.now(UTC) + timedelta(hours=1),
        **{"may_drop": 1, "may_collude": 1, **crowd},
    )
    return task, members


@pytest.fixture
def make_parties() -> Callable[..., Parties]:
    def make(holders: int = 5, nodes: int = 3, features: int = 2, **crowd: int) -> Parties:
        coordinator = Identity.generate()
        signing = tuple(Identity.generate() for _ in range(nodes))
        sealing = tuple(SealingKey.generate() for _ in range(nodes))
        cards = [
            Card.issue(identity, name=f"node {k}", url=f"http://127.0.0.1:{9000 + k}", sealing_key=key.key)
            for k, (identity, key) in enumerate(zip(signing, sealing, strict=True))
        ]
        task, members = draft(coordinator, cards, holders, features, **crowd)
        return Parties(task, coordinator, members, signing, sealing)

    return make


@dataclass(frozen=True)
class Site:
    """The folders of all nodes of a round, and its parties."""

    folders: tuple[Folder, ...]
    parties: Parties

    def envelopes(self, holder: int) -> tuple[bytes, ...]:
        """One holder's envelopes; its values are 1 at its own place, so a sum tells who is in it, and how often."""
        values = np.zeros(self.parties.task.length, dtype=np.int64)
        values[holder] = 1
        return self.parties.contribute(holder, values)

    def word(self, kind: str, **facts: str) -> dict:
        """A signed word of the coordinator."""
        return Signed.by(self.parties.coordinator, kind, {"task": self.parties.task.id, **facts}).to_dict()


@pytest.fixture
def make_site(tmp_path) -> Callable[..., Site]:
    def make(holders: int = 5, nodes: int = 2, features: int = 2, **crowd: int) -> Site:
        coordinator = Identity.generate()
        folders = tuple(
            Folder.create(
                tmp_path / f"node-{k}",
                name=f"node {k}",
                url=f"http://127.0.0.1:{9000 + k}",
                coordinators=[coordinator.key],
            )
            for k in range(nodes)
        )
        task, members = draft(coordinator, [folder.card() for folder in folders], holders, features, **crowd)
        signing = tuple(folder.identity for folder in folders)
        sealing = tuple(folder.keyring.active.key for folder in folders)
        return Site(folders, Parties(task, coordinator, members, signing, sealing))

    return make


@pytest.fixture
def parties(make_parties: Callable[..., Parties]) -> Parties:
    return make_parties()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261118)


class Clock:
    """A clock that tests can turn."""

    def __init__(self) -> None:
        self.skew = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.skew


class Net:
    """All nodes of a site behind their applications, in this process."""

    def __init__(self, site: Site, clock: Clock, limits: Limits, databases: Sequence[str]) -> None:
        self.site = site
        self.task = site.parties.task
        self.at = f"/rounds/{self.task.id}"
        self.nodes = [
            Node(folder, folder.store(database, clock), clock)
            for folder, database in zip(site.folders, databases or [""] * len(site.folders), strict=True)
        ]
        self.clients = [TestClient(application(node, limits), raise_server_exceptions=False) for node in self.nodes]
        for client in self.clients:
            client.__enter__()

    def close(self) -> None:
        for client in self.clients:
            client.__exit__(None, None, None)

    def open(self) -> None:
        for client in self.clients:
            assert client.put(self.at, json=self.task.signed.to_dict()).status_code == 201

    def send(self, node: int, holder: int, content: bytes) -> Any:
        return self.clients[node].put(self.path(holder), content=content)

    def path(self, holder: int) -> str:
        return f"{self.at}/envelopes/{self.site.parties.holders[holder].key}"

    def send_all(self, holders: int) -> None:
        for holder in range(holders):
            for node, content in enumerate(self.site.envelopes(holder)):
                assert self.send(node, holder, content).status_code == 201

    def freeze(self) -> list[dict[str, Any]]:
        answers = [client.put(f"{self.at}/freeze", json=self.site.word("freeze")) for client in self.clients]
        assert [answer.status_code for answer in answers] == [200] * len(answers)
        return [answer.json() for answer in answers]

    def agree(self, manifests: list[dict[str, Any]]) -> list[Any]:
        return [client.put(f"{self.at}/manifests", json={"manifests": manifests}) for client in self.clients]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_net(make_site: Callable[..., Site], clock: Clock) -> Iterator[Callable[..., Net]]:
    nets: list[Net] = []

    def make(limits: Limits | None = None, databases: Sequence[str] = (), **options: int) -> Net:
        nets.append(Net(make_site(**options), clock, limits or Limits(address=Rate(0, 0)), databases))
        return nets[-1]

    yield make
    for net in nets:
        net.close()


@pytest.fixture
def net(make_net: Callable[..., Net]) -> Net:
    return make_net()
