"""A compute node: it takes one share of every holder, freezes, agrees with the other nodes, and sums once.

Every step of a round goes through protocol/round.step, inside the transaction that stores it, so the store always says
where a round stands and a killed node goes on from there. A sum is stored before anyone sees it.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from noisewise.compute.folder import Folder
from noisewise.compute.keyring import Validity
from noisewise.compute.reading import Record
from noisewise.compute.store import Clock, Deposit, Store, Transaction, utc_now
from noisewise.compute.summing import total_of
from noisewise.compute.web import Refusal
from noisewise.errors import ForgeryError, OutputError, RoundError
from noisewise.protocol import round as rounds
from noisewise.protocol.envelope import Envelope, largest
from noisewise.protocol.keys import SealingKey
from noisewise.protocol.pooled import read_manifest, sign_manifest, sign_sum, verify
from noisewise.protocol.round import Holdings, Phase, Round
from noisewise.protocol.signed import Signed, canonical, check_keys, check_text, digest
from noisewise.protocol.task import Task
from noisewise.release import Release

Result = TypeVar("Result")

MOST_TASKS_IN_MEMORY = 16


@dataclass(frozen=True)
class Seat:
    """This node's place in a round: its number among the nodes, its key, the size of a sound envelope."""

    task: Task
    place: int
    key: SealingKey
    largest: int


class Node:
    """What a node does, without HTTP. Methods block; refusals say which answer they are."""

    def __init__(self, folder: Folder, store: Store, clock: Clock = utc_now) -> None:
        self.folder = folder
        self.settings = folder.settings
        self._identity = folder.identity
        self.store = store
        self._clock = clock
        self._seats: OrderedDict[str, Seat] = OrderedDict()
        self._lock = threading.Lock()  # of the seats
        self._summing = threading.Lock()  # a sum is worth a core; one at a time

    @property
    def key(self) -> str:
        return self._identity.key

    def card(self) -> dict[str, Any]:
        return self.folder.card().signed.to_dict()

    def open(self, round_id: str, raw: Any) -> bool:
        """Take a task of a known coordinator; whether it is new."""
        signer = raw.get("signer") if isinstance(raw, dict) else None
        if isinstance(signer, str) and signer not in self.settings.coordinators:
            raise ForgeryError(f"Key {signer[:16]!r} is no coordinator that this node takes tasks from.")
        signed = Signed.from_dict(raw, "task")
        if signed.digest != round_id:
            raise RoundError(f"This task is that of round {signed.digest[:16]}..., not of {round_id[:16]}...")
        if self.store.record(round_id):
            return False
        task = Task.of(signed)
        seat = self._seat_of(task, new=True)
        if self._clock() >= task.deadline:
            raise RoundError(f"The deadline {task.deadline.isoformat()} has passed; open a round with a later one.")
        text = canonical(signed.to_dict()).decode()

        def work(transaction: Transaction) -> bool:
            if transaction.record(round_id):
                return False
            state = rounds.step(Round(round_id, len(task.nodes), task.crowd.least), rounds.Open())
            transaction.open(round_id, text, state.phase)
            transaction.audit("open", round=round_id, coordinator=task.coordinator, holders=len(task.members))
            return True

        new = self._write(work)
        self._remember(round_id, seat)
        return new

    def seat(self, round_id: str) -> Seat:
        """The node's place in a round that it knows; from memory if it can be."""
        with self._lock:
            if round_id in self._seats:
                self._seats.move_to_end(round_id)
                return self._seats[round_id]
            text = self.store.text(round_id, "task")
            if text is None:
                raise Refusal(404, f"Round {round_id[:16]}... is not known here.")
            seat = self._seat_of(Task.of(Signed.from_dict(json.loads(text), "task")))
        self._remember(round_id, seat)
        return seat

    def known_seat(self, round_id: str) -> Seat | None:
        """The same if it is in memory, without waiting for anything."""
        return self._seats.get(round_id)

    def examine(self, seat: Seat, holder: str, content: bytes) -> Deposit:
        """Check and open an envelope; what comes back is fit to be stored."""
        envelope = Envelope.read(content)
        if envelope.holder != holder:
            raise RoundError(f"This envelope is of holder {envelope.holder[:16]}..., not of {holder[:16]}...")
        envelope.check(seat.task, seat.place)
        envelope.open(seat.key, seat.task.length)
        return Deposit(seat.task.id, seat.task.deadline, holder, envelope.digest, envelope.bundle, content)

    def status(self, round_id: str) -> dict[str, Any]:
        seat, record = self.touch(round_id)
        return {
            "id": round_id,
            "phase": record.phase.value,
            "reason": record.reason,
            "deadline": seat.task.deadline.isoformat(),
            "holders": [holder for holder, _ in self.store.holdings(round_id)],
            "needed": seat.task.crowd.least,
        }

    def text(self, round_id: str, what: str) -> str:
        """The stored JSON of a round's task, manifest or sum."""
        _, record = self.touch(round_id)
        found = self.store.text(round_id, what)
        if found is None:
            why = f": {record.reason}" if record.reason else ""
            raise Refusal(409, f"Round {round_id[:16]}... is {record.phase}{why}; it has no {what} now.")
        return found

    def freeze(self, round_id: str, raw: Any) -> str:
        """At the coordinator's word: take no more envelopes, and sign which ones are held."""
        seat = self.seat(round_id)
        self._check_word(raw, "freeze", seat, {"task": str})
        self._freeze(seat)
        return self.text(round_id, "manifest")

    def abort(self, round_id: str, raw: Any) -> None:
        """At the coordinator's word: end a round that was not summed."""
        seat = self.seat(round_id)
        body = self._check_word(raw, "abort", seat, {"task": str, "reason": str})
        reason = check_text(body["reason"], "The reason", 300)
        self._step(seat, lambda transaction, state: rounds.Abort(reason))

    def agree(self, round_id: str, raw: Any) -> str:
        """With every node's manifest: agree on who is in all of them, and sum these. The signed sum."""
        seat, _ = self.touch(round_id)
        manifests = self._manifests(seat, raw)

        def event(transaction: Transaction, state: Round) -> rounds.Agree:
            if state.frozen is not None and manifests.get(seat.place) != state.frozen:
                raise RoundError("The manifest of this node is not the one that it signed.")
            return rounds.Agree(manifests)

        state = self._step(seat, event)
        if state.phase is Phase.ABORTED:
            raise Refusal(409, f"Round {round_id[:16]}... is aborted: {state.reason}. Open a new one.")
        self.finish(round_id)
        return self.text(round_id, "sum")

    def finish(self, round_id: str) -> None:
        """Sum a round whose set is agreed on; nothing if that was done."""
        seat = self.seat(round_id)
        with self._summing:
            record = self.store.record(round_id)
            if record is None or record.phase is not Phase.AGREED:
                return
            agreed = _pairs(record.agreed)
            try:
                words = total_of(self.store, seat.task, seat.place, seat.key, agreed)
            except RoundError as error:  # the store was tampered with; the sender of the request did not err
                raise Refusal(409, str(error)) from None
            signed = sign_sum(self._identity, seat.task, agreed, words)
            self._step(seat, lambda transaction, state: rounds.Sum(signed.digest), sum=_text(signed))

    def publish(self, round_id: str, raw: Any) -> None:
        """Check the pooled release of the round; then the sealed shares are no longer needed."""
        seat = self.seat(round_id)
        release = Release.from_dict(raw)
        if verify(release).task.id != round_id:
            raise RoundError(f"This release is of another round than {round_id[:16]}...")
        self._step(seat, lambda transaction, state: rounds.Publish())

    def unfinished(self) -> list[str]:
        """Rounds that were agreed on and not summed when the node last stopped."""
        return [round_id for round_id, phase in self.store.phases().items() if phase is Phase.AGREED]

    def touch(self, round_id: str) -> tuple[Seat, Record]:
        """The round as it is now: past its deadline it freezes."""
        seat = self.seat(round_id)
        record = self.store.record(round_id)
        assert record is not None
        if record.phase is Phase.OPEN and self._clock() >= seat.task.deadline:
            self._freeze(seat)
            record = self.store.record(round_id)
            assert record is not None
        return seat, record

    def _freeze(self, seat: Seat) -> None:
        def event(transaction: Transaction, state: Round) -> rounds.Freeze:
            # what was frozen before stays frozen, whoever asks again
            held = state.frozen if state.frozen is not None else frozenset(transaction.holdings(seat.task.id))
            return rounds.Freeze(held)

        self._step(seat, event)

    def _step(self, seat: Seat, event: Callable[[Transaction, Round], rounds.Event], **values: str) -> Round:
        """One step of a round with its data, in one transaction. An event that was taken before changes nothing."""
        round_id = seat.task.id

        def work(transaction: Transaction) -> Round:
            record = transaction.record(round_id)
            assert record is not None
            before = _state(seat.task, record)
            after = rounds.step(before, event(transaction, before))
            if after.phase is before.phase:
                return after
            data = {**values, **self._data(seat.task, before, after)}
            transaction.update(round_id, phase=after.phase.value, reason=after.reason, **data)
            transaction.audit(after.phase.value, round=round_id, **_facts(after))
            if after.ended and not self.settings.keep_envelopes:
                transaction.forget_contents(round_id)
            return after

        return self._write(work)

    def _data(self, task: Task, before: Round, after: Round) -> dict[str, str]:
        data = {}
        if after.frozen is not None and before.frozen is None:
            data["manifest"] = _text(sign_manifest(self._identity, task, after.frozen))
        if after.agreed is not None and before.agreed is None:
            data["agreed"] = json.dumps(sorted(after.agreed))
        return data

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        try:
            return self.store.write(work)
        except OutputError:
            raise
        except RoundError as error:
            raise Refusal(409, str(error)) from None

    def _check_word(self, raw: Any, kind: Any, seat: Seat, keys: dict[str, Any]) -> dict[str, Any]:
        """The body of what only this round's coordinator may say."""
        signed = Signed.from_dict(raw, kind, seat.task.coordinator)
        check_keys(signed.body, keys, kind)
        if signed.body["task"] != seat.task.id:
            raise RoundError(f"This {kind} is of another round than {seat.task.id[:16]}...")
        return signed.body

    def _manifests(self, seat: Seat, raw: Any) -> dict[int, Holdings]:
        if not isinstance(raw, dict) or set(raw) != {"manifests"} or not isinstance(raw["manifests"], list):
            raise RoundError('The body is {"manifests": [...]}, with the signed manifest of every node.')
        if len(raw["manifests"]) != len(seat.task.nodes):
            raise RoundError(f"{len(raw['manifests'])} manifests for {len(seat.task.nodes)} nodes; one of each is due.")
        found = dict(read_manifest(item, seat.task) for item in raw["manifests"])
        if len(found) != len(seat.task.nodes):
            raise RoundError("Two manifests are of one node; one of each node is due.")
        return found

    def _seat_of(self, task: Task, new: bool = False) -> Seat:
        if self.key not in task.node_keys:
            raise RoundError("This node is not among the nodes of the task.")
        place = task.node_keys.index(self.key)
        self.folder.keyring.refresh()
        entry = self.folder.keyring.find(task.nodes[place].sealing_key)
        if entry is None or (new and entry.validity is Validity.EXPIRED):
            what = "a sealing key that it has not" if entry is None else "a sealing key that has expired"
            raise RoundError(f"The task names this node with {what}; fetch its card again and make a new task.")
        return Seat(task, place, entry.key, largest(task))

    def _remember(self, round_id: str, seat: Seat) -> None:
        with self._lock:
            self._seats[round_id] = seat
            while len(self._seats) > MOST_TASKS_IN_MEMORY:
                self._seats.popitem(last=False)


def _state(task: Task, record: Record) -> Round:
    """The state as the pure machine knows it, from the store's texts."""
    manifest = json.loads(record.manifest)["body"]["held"] if record.manifest else None
    return Round(
        record.id,
        len(task.nodes),
        task.crowd.least,
        phase=record.phase,
        frozen=None if manifest is None else frozenset((holder, bundle) for holder, bundle in manifest),
        agreed=None if record.agreed is None else _pairs(record.agreed),
        sum_digest="" if record.sum is None else digest(json.loads(record.sum)["body"]),
        reason=record.reason,
    )


def _pairs(text: str | None) -> Holdings:
    return frozenset((holder, bundle) for holder, bundle in json.loads(text or "[]"))


def _text(signed: Signed) -> str:
    return canonical(signed.to_dict()).decode()


def _facts(state: Round) -> dict[str, Any]:
    """What the audit log says about a step."""
    match state.phase:
        case Phase.FROZEN:
            return {"holders": len(state.frozen or ()), "set": rounds.set_digest(state.frozen or ())}
        case Phase.AGREED:
            return {"holders": len(state.agreed or ()), "set": rounds.set_digest(state.agreed or ())}
        case Phase.SUMMED:
            return {"sum": state.sum_digest}
        case Phase.ABORTED:
            return {"reason": state.reason}
        case _:
            return {}
