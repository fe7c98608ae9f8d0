"""How far a round is at one node, as the node tells anyone who asks (GET /rounds/{id})."""

from dataclasses import dataclass
from typing import Any, Self

from noisewise.errors import RoundError
from noisewise.protocol.remote import Remote
from noisewise.protocol.round import Phase
from noisewise.protocol.task import Task


@dataclass(frozen=True)
class Progress:
    """A node's phase, and the keys of the holders whose envelopes it has stored."""

    phase: Phase
    reason: str
    holders: frozenset[str]

    @classmethod
    def ask(cls, node: Remote, task: Task) -> Self:
        return cls.of(node.get(f"/rounds/{task.id}"), task, node.name)

    @classmethod
    def of(cls, raw: Any, task: Task, who: str) -> Self:
        try:
            reason, holders = raw["reason"], raw["holders"]
            found = cls(Phase(raw["phase"]), str(reason or "")[:300], frozenset(holders) & frozenset(task.keys))
        except (KeyError, TypeError, ValueError):
            raise RoundError(f"{who} does not say how far the round is; is this the address of a node?") from None
        return found
