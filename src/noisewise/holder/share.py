"""A holder's part in a secure sum: check the task, pay, seal, keep, send.

The order is the safety, as in publish.py. What can fail for a reason of the task, the table or the disk fails first.
Then the ledger reserves the cost, noise is drawn, the noisy sums are split and sealed, and the sealed envelopes are
made durable in the outbox; only then does anything leave the machine. After a crash the very same bytes are sent again.
A crash between the reservation and the outbox leaves the budget spent and nothing to send, and the next try says so.

The reservation is confirmed when every node has acknowledged its envelope, with the hash of the sealed bundle. That
hash stands beside the holder's key in the pooled release, so anyone can see which reservation paid for which part.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from noisewise.errors import DataError, OutputError, RefusedError, RoundError
from noisewise.holder.outbox import Outbox, Parcel
from noisewise.holder.publish import Holder
from noisewise.holder.trust import Trust
from noisewise.privacy.distributed import shared_event
from noisewise.privacy.ledger import Clock, Ledger
from noisewise.protocol.envelope import seal
from noisewise.protocol.files import write_new
from noisewise.protocol.keys import Identity, is_key
from noisewise.protocol.progress import Progress
from noisewise.protocol.remote import Network, Remote, check_url, each
from noisewise.protocol.shares import split
from noisewise.protocol.signed import Signed, check_text, parse
from noisewise.protocol.task import Task
from noisewise.study import Study

KEY_FILE, TRUST_FILE, NAME_FILE, OUTBOX = "signing.key", "trust.toml", "member.json", "outbox"


@dataclass(frozen=True)
class Receipt:
    """Whether one node has its envelope, and in its or our words what is the matter if not."""

    node: str
    stored: bool
    words: str


@dataclass(frozen=True)
class Delivery:
    """Which nodes have what a holder sent for a round."""

    round: str
    receipts: tuple[Receipt, ...]

    @property
    def complete(self) -> bool:
        return all(receipt.stored for receipt in self.receipts)

    def in_words(self) -> str:
        there = sum(receipt.stored for receipt in self.receipts)
        if self.complete:
            return f"all {there} nodes have it: nothing more is to be done"
        return (
            f"{there} of {len(self.receipts)} nodes have it; it counts only when all do. Send again before the "
            "deadline: the same bytes go out, and nothing is spent"
        )


class Participant:
    """A holder that is enrolled with a coordinator; ``folder`` has its key, its trust.toml and its outbox."""

    def __init__(self, folder: Path, network: Network | None = None, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self.folder = folder
        self.network = network or Network()
        self.trust = Trust.load(folder / TRUST_FILE)
        self.identity = Identity.load(folder / KEY_FILE)
        self.name = _read_name(folder / NAME_FILE)
        self.outbox = Outbox(folder / OUTBOX)
        self._clock = clock

    @classmethod
    def enrol(cls, folder: Path, *, trust: str, name: str, token: str, network: Network | None = None) -> Self:
        """Register a key made on the spot under the name that the token was issued for; ``trust`` is a TOML text.

        If the answer got lost the same call can be made again: the key in the folder is used again.
        """
        network = network or Network()
        believed = Trust.parse(trust)
        check_text(name, "A holder's name")
        check_url(believed.board, "the board", network.allow_http)
        key_file = folder / KEY_FILE
        identity = Identity.load(key_file) if key_file.exists() else Identity.create(key_file)
        _write_once(folder / TRUST_FILE, trust.encode())
        request = Signed.by(identity, "enrolment", {"name": name, "token": token})
        with network.remote(believed.board, "the board") as board:
            board.send("POST", "/enrolments", request.to_dict())
        _write_once(folder / NAME_FILE, json.dumps({"name": name, "key": identity.key}).encode() + b"\n")
        return cls(folder, network)

    def find(self, study: Study, round: str | None = None) -> Task:
        """The open round of this study that this holder is to take part in, checked in every respect."""
        with self._board() as board:
            ids = [round] if round else self._offered(board, study)
            if len(ids) != 1:
                raise RoundError(
                    f"The board has {len(ids)} open rounds of this study with {self.name!r} in them"
                    + (f": {', '.join(ids)}. Name one of them." if ids else "; ask the coordinator to open one.")
                )
            task = Task.of(Signed.from_dict(board.get(f"/rounds/{ids[0]}/task"), "task", self.trust.coordinator))
        if task.id != ids[0]:
            raise RoundError(f"The board gave another task than that of round {ids[0][:16]}...")
        self.check(task, study)
        return task

    def check(self, task: Task, study: Study) -> None:
        """Raise unless this holder may take part in the task with its own copy of the study."""
        self.trust.check(task)
        if task.study.digest != study.digest:
            fields = "; ".join(study.difference(task.study))
            raise RoundError(f"The round's study is not yours. They differ in {fields}. Agree on one first.")
        if self.identity.key not in task.keys:
            raise RoundError(
                f"Your key {self.identity.key[:16]}... is not among the round's holders; were you enrolled?"
            )
        if task.keys[self.identity.key] != self.name:
            raise RoundError(
                f"The round calls you {task.keys[self.identity.key]!r}, and you enrolled as {self.name!r}."
            )
        for card in task.nodes:
            check_url(card.url, f"node {card.name!r}", self.network.allow_http)

    def contribute(self, task: Task, holder: Holder, table: object, *, again: bool = False) -> Delivery:
        """Take part: spend, seal, keep, send. What is in the outbox already is sent as it is, and nothing is spent.

        ``again`` pays a second time after a try that was stopped between the ledger and the outbox.
        """
        self.check(task, holder.study)
        parcel = self.outbox.get(task.id)
        if parcel is None:
            parcel = self._make(task, holder, table, again)
        return self.deliver(parcel, holder.open_ledger())

    def deliver(self, parcel: Parcel, ledger: Ledger | None) -> Delivery:
        """Send the bytes of the outbox to every node, and confirm the reservation once all have them."""
        delivery = self._ask_all(parcel, self._send)
        if delivery.complete and ledger is not None and parcel.entry is not None:
            ledger.confirm(parcel.entry, release_digest=parcel.bundle)
        return delivery

    def status(self, parcel: Parcel) -> Delivery:
        """Which nodes have it, by their own word; nothing is sent."""
        return self._ask_all(parcel, self._look)

    def _make(self, task: Task, holder: Holder, table: object, again: bool) -> Parcel:
        if self._clock() >= task.deadline:
            raise RoundError(
                f"The round's deadline, {task.deadline:%Y-%m-%d %H:%M} UTC, has passed; nothing was spent."
            )
        self.outbox.check_writable()

        def check(rows: int) -> None:
            if rows > task.most_rows:
                raise DataError(
                    f"The table has {rows:,} rows; with {len(task.members)} holders each may bring {task.most_rows:,}, "
                    "or the sum could overflow 64-bit integers. Nothing was spent. Agree on a study with fewer 'bits'."
                )

        event = shared_event(task.study, task.crowd)
        paid = holder.spend(table, task.plan(), event, check, round=task.id, again=again)
        envelopes = seal(task, self.identity, split(paid.values, len(task.nodes)))
        parcel = Parcel(task, envelopes, paid.entry)
        self.outbox.keep(parcel)
        return parcel

    def _ask_all(self, parcel: Parcel, ask: Callable[[Remote, Parcel, int], str]) -> Delivery:
        def one(node: int) -> str:
            with self._node(parcel.task, node) as remote:
                return ask(remote, parcel, node)

        nodes = range(len(parcel.task.nodes))
        answers = each(nodes, one)
        receipts = (
            Receipt(self.trust.node_name(parcel.task.nodes[node].key), isinstance(answer, str), str(answer))
            for node, answer in zip(nodes, answers, strict=True)
        )
        return Delivery(parcel.task.id, tuple(receipts))

    def _send(self, remote: Remote, parcel: Parcel, node: int) -> str:
        path = f"/rounds/{parcel.task.id}/envelopes/{self.identity.key}"
        try:
            new = remote.put_bytes(path, parcel.envelopes[node]) == 201
        except RefusedError as error:
            if error.status != 410:
                raise
            return self._look(remote, parcel, node, str(error))  # the round went on: perhaps with this envelope
        return "stored now" if new else "had it already"

    def _look(self, remote: Remote, parcel: Parcel, node: int, otherwise: str = "") -> str:
        progress = Progress.ask(remote, parcel.task)
        if self.identity.key not in progress.holders:
            raise RoundError(otherwise or f"it has nothing of yours; the round is {progress.phase}.")
        return f"has it; the round is {progress.phase}" + (f" ({progress.reason})" if progress.reason else "")

    def _node(self, task: Task, node: int) -> Remote:
        card = task.nodes[node]
        url = f"{self.trust.board}/relay/{card.key}" if self.trust.relay else card.url
        return self.network.remote(url, f"node {self.trust.node_name(card.key)!r}")

    def _board(self) -> Remote:
        return self.network.remote(self.trust.board, "the board")

    def _offered(self, board: Remote, study: Study) -> Sequence[str]:
        listed = board.get(f"/rounds?holder={self.identity.key}")
        rounds = listed.get("rounds") if isinstance(listed, dict) else None
        if not isinstance(rounds, list):
            raise RoundError("The board's list of rounds is malformed; is this the address of a board?")
        fitting = [r for r in rounds if isinstance(r, dict) and r.get("phase") == "open" and is_key(r.get("id"))]
        same = [str(r["id"]) for r in fitting if r.get("study_digest") == study.digest]
        if fitting and not same:
            # one round of another study: fetch it all the same, so that the difference is told field by field
            return [str(fitting[0]["id"])] if len(fitting) == 1 else []
        return same


def describe(task: Task, trust: Trust) -> list[tuple[str, str]]:
    """The task in words, for the person who decides whether to take part: facts by name."""
    event = shared_event(task.study, task.crowd)
    crowd = task.crowd
    holders = ", ".join(f"{member.name} ({member.key[:8]})" for member in task.members[:50])
    more = f" and {len(task.members) - 50:,} more" if len(task.members) > 50 else ""
    return [
        ("round", task.id),
        ("study", f"{task.study.name or 'without a name'} ({task.study.digest[:16]}...), the same as yours"),
        ("holders", f"{len(task.members):,}: {holders}{more}"),
        ("nodes", ", ".join(f"{trust.node_name(card.key)} ({card.url})" for card in task.nodes)),
        ("deadline", f"{task.deadline:%Y-%m-%d %H:%M} UTC"),
        ("summed", f"{task.length} numbers, if at least {crowd.least:,} of {crowd.holders:,} holders come"),
        ("cost", f"epsilon {event.epsilon:g}, delta {event.delta:g} ({task.study.adjacency}), spent once and for all"),
        (
            "protected",
            f"as by a release of your own, as long as one node is honest and no more than {crowd.may_collude} of the "
            "other holders work together against you. Read their names: do you know them?",
        ),
    ]


def _read_name(path: Path) -> str:
    try:
        body: Any = parse(path.read_bytes(), str(path))
        return check_text(body["name"], f"{path}: the name")
    except FileNotFoundError:
        raise RoundError(f"{path}: you are not enrolled yet; 'noisewise join enrol' does it.") from None
    except (OSError, KeyError, TypeError):
        raise RoundError(f"{path}: can't be read, or is damaged.") from None


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that has to stay as it is; the same content again is fine."""
    try:
        write_new(path, content)
    except FileExistsError:
        if path.read_bytes() != content:
            raise OutputError(
                f"{path}: there is another one already. Edit or remove it, or use another folder."
            ) from None
    except OSError as error:
        raise OutputError(f"{path}: can't be written ({error.strerror}); choose another folder.") from None
