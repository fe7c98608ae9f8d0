"""The coordinator: opens a round, sees who is missing, collects the sum, publishes it. Nobody has to trust it.

It holds no secret but its signing key and sees nothing that is not public. All it does can be repeated after a crash
or a lost answer: the notebook keeps the draft before any node hears of it, and nodes answer the same again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from noisewise.compute.notebook import Notebook, Record
from noisewise.errors import ForgeryError, RefusedError, RoundError, UnreachableError
from noisewise.privacy.ledger import Clock
from noisewise.protocol.keys import Identity
from noisewise.protocol.pooled import pool, read_manifest, read_sum, verify
from noisewise.protocol.progress import Progress
from noisewise.protocol.remote import Network, Remote, each
from noisewise.protocol.round import Agree, Freeze, Holdings, Open, Phase, Round, intersection, step
from noisewise.protocol.signed import Signed, check_text
from noisewise.protocol.task import Card, Member, Task
from noisewise.release import Release
from noisewise.study import Study

KEY_FILE, NOTEBOOK_FILE = "signing.key", "board.db"
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Standing:
    """How far a round is: what every node says, or why it says nothing."""

    task: Task
    phase: Phase
    reason: str
    nodes: tuple[Progress | RoundError, ...]

    @property
    def missing(self) -> tuple[Member, ...]:
        """The holders that at least one node has nothing of, as far as nodes answer."""
        heard = [node.holders for node in self.nodes if isinstance(node, Progress)]
        return tuple(member for member in self.task.members if not all(member.key in holders for holders in heard))

    @property
    def silent(self) -> tuple[str, ...]:
        """The names of the nodes that do not answer."""
        named = zip(self.task.nodes, self.nodes, strict=True)
        return tuple(card.name for card, node in named if isinstance(node, RoundError))

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.RELEASED, Phase.ABORTED)

    @property
    def arrived(self) -> int:
        return len(self.task.members) - len(self.missing) if len(self.silent) < len(self.nodes) else 0

    def in_words(self) -> str:
        if self.ended:
            return f"{self.phase}" + (f": {self.reason}" if self.reason else "")
        where = "the nodes that answer" if self.silent else "all nodes"
        there = (
            f"{self.arrived:,} of {len(self.task.members):,} holders are at {where}, {self.task.crowd.least:,} needed"
        )
        return there + (f"; no answer from {', '.join(self.silent)}" if self.silent else "")

    def to_dict(self) -> dict[str, Any]:
        """Who is missing, and what every node says."""
        return {
            "words": self.in_words(),
            "missing": [{"name": member.name, "key": member.key} for member in self.missing],
            "nodes": [
                {
                    "name": card.name,
                    "url": card.url,
                    "key": card.key,
                    "phase": str(node.phase) if isinstance(node, Progress) else None,
                    "holders": len(node.holders) if isinstance(node, Progress) else None,
                    "problem": "" if isinstance(node, Progress) else str(node),
                }
                for card, node in zip(self.task.nodes, self.nodes, strict=True)
            ],
        }


class Coordinator:
    """``folder`` holds its signing key and its notebook."""

    def __init__(self, folder: Path, network: Network | None = None, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self.notebook = Notebook(folder / NOTEBOOK_FILE)
        self.identity = Identity.load(folder / KEY_FILE)
        self.network = network or Network()
        self._clock = clock

    @classmethod
    def create(cls, folder: Path, network: Network | None = None) -> "Coordinator":
        if not (folder / KEY_FILE).exists():  # an earlier try may have been stopped between the two files
            Identity.create(folder / KEY_FILE)
        Notebook.create(folder / NOTEBOOK_FILE)
        return cls(folder, network)

    def invite(self, name: str, days: float = 14.0) -> str:
        """A token with which one holder can enrol under this name."""
        if not 0 < days <= 366:
            raise RoundError(f"An invitation is good for more than 0 and at most 366 days; got {days:g}.")
        return self.notebook.invite(name, self._clock() + timedelta(days=days))

    def enrol(self, request: Signed) -> bool:
        """Register the key that signed the request; whether it is new."""
        return self.notebook.enrol(request, self._clock())

    def open(
        self,
        study: Study,
        nodes: Sequence[str],
        *,
        may_drop: int,
        may_collude: int,
        deadline: datetime,
        holders: Sequence[str] = (),
        node_keys: Sequence[str] = (),
    ) -> Task:
        """Draft a task for the enrolled holders (or those named), sign it, and give it to every node (addresses).

        ``node_keys``, if given, are the only keys that the nodes may have.
        """
        if deadline <= self._clock():
            raise RoundError(f"The deadline {deadline:%Y-%m-%d %H:%M %Z} has passed; give one that is still to come.")
        members = self._members(holders)
        cards = self._all(nodes, lambda url: self._card(url, node_keys))
        task = self._unfinished(study, members, cards, may_drop, may_collude)
        if task is None:
            task = Task.draft(
                self.identity, study, members, cards, may_drop=may_drop, may_collude=may_collude, deadline=deadline
            )
            self.notebook.add(task, self._clock())
        signed = task.signed.to_dict()
        self._ask(task, lambda node: node.send("PUT", f"/rounds/{task.id}", signed))
        self.notebook.move(task.id, Phase.OPEN)
        return task

    def standing(self, round: str) -> Standing:
        """How far the round is, by every node's own word."""
        record = self.notebook.get(round)
        if record.phase in (Phase.RELEASED, Phase.ABORTED):
            return self._ended(record)
        answers = each(record.task.nodes, lambda card: self._with(card, lambda node: Progress.ask(node, record.task)))
        return Standing(record.task, record.phase, record.reason, tuple(answers))

    def collect(self, round: str, *, early: bool = False) -> Release:
        """Freeze, let the nodes agree and sum, pool, check, and publish on the board.

        Before the deadline this waits for all holders, unless ``early``. A round that was collected is given again.
        """
        record = self.notebook.get(round)
        release = self.notebook.release(round)
        if release is None:
            if record.phase is Phase.ABORTED:
                raise RoundError(f"Round {round[:16]}... was aborted ({record.reason}); open a new one.")
            self._check_time(record.task, early)
            release = self.notebook.publish(round, self._sum(record.task))
        body = release.to_dict()
        # what the nodes still hold is of no use to anyone; a node that is down now hears of it another time
        each(
            record.task.nodes,
            lambda card: self._with(card, lambda node: node.send("PUT", f"/rounds/{round}/release", body)),
        )
        return release

    def abort(self, round: str, reason: str) -> None:
        """End a round without a sum. What holders spent on it stays spent."""
        check_text(reason, "The reason", 300)
        task = self.notebook.get(round).task
        if self.notebook.release(round) is not None:
            raise RoundError(f"Round {round[:16]}... is released already; it can't be aborted.")
        order = Signed.by(self.identity, "abort", {"task": task.id, "reason": reason}).to_dict()
        self.notebook.move(round, Phase.ABORTED, reason)
        self._ask(task, lambda node: node.send("PUT", f"/rounds/{task.id}/abort", order))

    def _sum(self, task: Task) -> Release:
        """Freeze, agree, sum. Nodes check and intersect for themselves: with too few holders they abort."""
        freeze = Signed.by(self.identity, "freeze", {"task": task.id}).to_dict()
        try:
            manifests = self._ask(task, lambda node: node.send("PUT", f"/rounds/{task.id}/freeze", freeze))
            agreed = self._agree(task, manifests)
            handed = {"manifests": manifests}
            self._ask(task, lambda node: node.send("PUT", f"/rounds/{task.id}/manifests", handed))
            sums = self._ask(task, lambda node: read_sum(node.get(f"/rounds/{task.id}/sum"), task)[1])
        except RefusedError:
            self._note_abort(task)
            raise
        release = pool(task, agreed or frozenset(), sums)
        verify(release)
        return release

    def _note_abort(self, task: Task) -> None:
        """If a node has aborted the round, nobody can end it otherwise: write that down, and say so."""
        for node in self.standing(task.id).nodes:
            if isinstance(node, Progress) and node.phase is Phase.ABORTED:
                self.notebook.move(task.id, Phase.ABORTED, node.reason)
                raise RoundError(
                    f"Round {task.id[:16]}... is aborted: {node.reason}. What holders spent on it stays spent. Open a "
                    "new round when enough of them can come."
                ) from None

    def _agree(self, task: Task, manifests: Sequence[object]) -> Holdings | None:
        """The agreed set, by the same machine that the nodes run; None if it is too small."""
        found: Mapping[int, Holdings] = dict(read_manifest(raw, task) for raw in manifests)
        state = step(Round(task.id, len(task.nodes), task.crowd.least), Open())
        state = step(step(state, Freeze(intersection(found.values()))), Agree(found))
        return state.agreed

    def _check_time(self, task: Task, early: bool) -> None:
        if early or self._clock() >= task.deadline:
            return
        standing = self.standing(task.id)
        if standing.silent:
            raise UnreachableError(
                f"No answer from node {', '.join(standing.silent)}; a round needs all its nodes. Try again when it is "
                "back; nothing is lost."
            )
        if standing.missing and all(isinstance(n, Progress) and n.phase is Phase.OPEN for n in standing.nodes):
            names = ", ".join(member.name for member in standing.missing[:10])
            more = " and others" if len(standing.missing) > 10 else ""
            raise RoundError(
                f"{len(standing.missing)} of {len(task.members)} holders are still missing ({names}{more}) and the "
                f"deadline is {task.deadline:%Y-%m-%d %H:%M} UTC. Wait for them, or collect --early without them: no "
                "holder can come in after that."
            )

    def _members(self, names: Sequence[str]) -> tuple[Member, ...]:
        enrolled = {member.name: member for member in self.notebook.holders()}
        if unknown := [name for name in names if name not in enrolled]:
            known = ", ".join(enrolled) or "nobody"
            raise RoundError(f"{unknown[0]!r} is not enrolled; enrolled are {known}.")
        return tuple(enrolled[name] for name in names) if names else tuple(enrolled.values())

    def _card(self, url: str, keys: Sequence[str]) -> Card:
        with self.network.remote(url, f"the node at {url}") as node:
            card = Card.of(Signed.from_dict(node.get("/card"), "node-card"))
        if keys and card.key not in keys:
            raise ForgeryError(
                f"The node at {url} has key {card.key}, which is none of those given. Ask its operator whether it has "
                "a new key."
            )
        return card

    def _unfinished(
        self, study: Study, members: Sequence[Member], cards: Sequence[Card], may_drop: int, may_collude: int
    ) -> Task | None:
        """The same round, if it was drafted and not every node got it: then it is opened, not another one."""
        for record in self.notebook.rounds():
            task, crowd = record.task, record.task.crowd
            # whole cards: a node that has changed its sealing key since the draft would refuse it for ever
            same = (task.study.digest, task.members, task.nodes, crowd.may_drop, crowd.may_collude)
            asked = (study.digest, tuple(members), tuple(cards), may_drop, may_collude)
            if record.phase is Phase.DRAFT and same == asked and task.deadline > self._clock():
                return task
        return None

    def _ended(self, record: Record) -> Standing:
        release = self.notebook.release(record.task.id)
        present = {key for key, _ in release.round["holders"]} if release and release.round else set()
        nodes = tuple(Progress(record.phase, record.reason, frozenset(present)) for _ in record.task.nodes)
        return Standing(record.task, record.phase, record.reason, nodes)

    def _ask(self, task: Task, action: Callable[[Remote], Result]) -> list[Result]:
        """The same of every node of the round; an error names each node that failed."""
        return self._all(task.nodes, lambda card: self._with(card, action))

    def _with(self, card: Card, action: Callable[[Remote], Result]) -> Result:
        with self.network.remote(card.url, f"node {card.name!r}") as node:
            return action(node)

    @staticmethod
    def _all(items: Sequence[Item], action: Callable[[Item], Result]) -> list[Result]:
        answers = each(items, action)
        errors = [answer for answer in answers if isinstance(answer, RoundError)]
        refused = [error for error in errors if isinstance(error, RefusedError)]
        if errors:
            first = (refused or errors)[0]
            others = [str(error) for error in errors if error is not first]
            if not others:
                raise first
            words = " ".join(dict.fromkeys((str(first), *others)))
            raise RefusedError(words, first.status) if isinstance(first, RefusedError) else type(first)(words)
        return [answer for answer in answers if not isinstance(answer, RoundError)]
