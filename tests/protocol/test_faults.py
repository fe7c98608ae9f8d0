"""Secure sums under faults end in a correct release or a clean abort, and the simulator would notice if they didn't."""

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noisewise.compute import node as node_module
from noisewise.compute.node import Node
from noisewise.compute.store import Deposit, Store
from noisewise.evaluation.local import Local
from noisewise.holder.outbox import Outbox
from noisewise.privacy.ledger import Ledger
from noisewise.protocol.envelope import Envelope
from noisewise.protocol.pooled import sign_sum
from noisewise.protocol.round import Phase
from noisewise.protocol.shares import Total
from noisewise.protocol.task import Member, Task
from tests.simulator.parties import STUDY
from tests.simulator.run import BrokenPromiseError, play, play_world


@pytest.mark.slow
def test_rounds_end_in_a_correct_release_or_a_clean_abort() -> None:
    # 'make faults' plays 1,000; the tally of one such run is in docs/faults.md
    tally = play(seed=20261118, rounds=100)
    assert sum(count for name, count in tally.items() if name.startswith("round ")) == 100
    assert tally["round released"] >= 40, "so many aborts hide what happens in rounds that go on"
    for fault in ("node_killed", "holder_killed", "coordinator_killed", "late", "duplicated", "replayed", "cut_off"):
        assert tally[fault] >= 10, f"{fault} struck {tally[fault]} times: the faults are too mild to show anything"


def test_a_seed_brings_the_same_faults_again() -> None:
    assert play_world("7/0", rounds=2) == play_world("7/0", rounds=2)


def test_a_draft_is_made_anew_when_a_node_has_changed_its_sealing_key(tmp_path: Path) -> None:
    """Found by the simulator: the coordinator offered the old draft again and again, and the node refused it."""
    with Local(tmp_path, nodes=("north", "south")) as parties:
        members = [Member(name, parties.enrol(name).identity.key) for name in ("first", "second", "third")]
        cards = [node.folder.card() for node in parties.nodes.values()]
        crowd = {"may_drop": 0, "may_collude": 0, "deadline": datetime.now(UTC) + timedelta(hours=1)}
        draft = Task.draft(parties.coordinator.identity, STUDY, members, cards, **crowd)
        parties.coordinator.notebook.add(draft, datetime.now(UTC))  # and here the coordinator was killed
        assert parties.open(STUDY).id == draft.id
        other = Task.draft(parties.coordinator.identity, STUDY, members, cards, **crowd)
        parties.coordinator.notebook.add(other, datetime.now(UTC))
        parties.nodes["south"].folder.keyring.rotate()
        opened = parties.open(STUDY)
        assert opened.id not in (draft.id, other.id)
        assert opened.nodes[1].sealing_key != cards[1].sealing_key


def counts_what_comes_twice(patch: pytest.MonkeyPatch) -> None:
    """A node that adds up what arrives, without asking whether it came before."""
    arrived: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
    deposit = Store.deposit

    def remember(self: Store, item: Deposit) -> Any:
        arrived[id(self), item.round].append(item.content)
        return deposit(self, item)

    def add_all(store: Store, task: Any, place: int, key: Any, agreed: Any) -> Any:
        total, holders = Total(task.length), dict(agreed)
        stored = {hashlib.sha256(content).digest(): content for _, content in store.contents(task.id, 100)}
        heard = arrived[id(store), task.id]
        for content in [*heard, *(c for c in stored.values() if c not in heard)]:
            envelope = Envelope.read(content)
            if envelope.holder in holders:
                total.add(envelope.open(key, task.length))
        return total.words

    patch.setattr(Store, "deposit", remember)
    patch.setattr(node_module, "total_of", add_all)


def forgets_the_agreed_set(patch: pytest.MonkeyPatch) -> None:
    """A node that keeps what it agreed on in memory alone."""
    begin = Node.__init__

    def forgetful(self: Node, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        for round_id, phase in self.store.phases().items():
            if phase in (Phase.AGREED, Phase.SUMMED):
                self.store.write(lambda t, r=round_id: t.update(r, phase="frozen", agreed=None, sum=None))

    patch.setattr(Node, "__init__", forgetful)


def ignores_the_deadline(patch: pytest.MonkeyPatch) -> None:
    examine = Node.examine

    def patient(self: Node, *args: Any) -> Deposit:
        return dataclasses.replace(examine(self, *args), deadline=datetime.max.replace(tzinfo=UTC))

    patch.setattr(Node, "examine", patient)


def shows_the_sum_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    finish, text = Node.finish, Node.text
    shown: dict[tuple[str, str], str] = {}

    def computed_only(self: Node, round_id: str) -> None:
        seat, record = self.seat(round_id), self.store.record(round_id)
        if record is None or record.phase is not Phase.AGREED:
            finish(self, round_id)
            return
        agreed = node_module._pairs(record.agreed)
        words = node_module.total_of(self.store, seat.task, seat.place, seat.key, agreed)
        shown[self.key, round_id] = node_module._text(sign_sum(self.folder.identity, seat.task, agreed, words))

    def from_memory(self: Node, round_id: str, what: str) -> str:
        in_memory = shown.get((self.key, round_id)) if what == "sum" else None
        return in_memory or text(self, round_id, what)

    patch.setattr(Node, "finish", computed_only)
    patch.setattr(Node, "text", from_memory)


def sends_before_it_keeps(patch: pytest.MonkeyPatch) -> None:
    """A holder whose outbox lives in memory."""
    patch.setattr(Outbox, "keep", lambda self, parcel: None)


def spends_without_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "reserve", lambda self, event, **rest: "0" * 64)
    patch.setattr(Ledger, "confirm", lambda self, entry, **rest: None)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (counts_what_comes_twice, "not the sum over the agreed holders"),
        (forgets_the_agreed_set, "its sum has changed|a sum that is not on its disk|both aborted and showed a sum"),
        (ignores_the_deadline, "took an envelope after the deadline"),
        (shows_the_sum_before_it_is_stored, "showed a sum that is not on its disk"),
        (sends_before_it_keeps, "kept nothing in its outbox|two different bundles"),
        (spends_without_record, "without a reservation on record"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenPromiseError, match=words):
        play(seed=9, rounds=40)
