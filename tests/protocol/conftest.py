"""The parties of a small round, made afresh for every test."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noisewise.column import Column
from noisewise.compute.folder import Folder
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
