"""The task of a round: what is summed, by whom, over whom, until when. Its hash names the round.

The coordinator signs it; nodes and holders check it and bind its hash into everything they send. Nobody has to trust
the coordinator: the noise is recomputed from the study and the crowd, the nodes' cards are signed by the nodes
themselves, and a holder takes part only with nodes whose keys it has from elsewhere (docs/threats.md).
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

from noisewise.column import is_finite_number
from noisewise.errors import RoundError, StudyError
from noisewise.privacy.calibration import NoisePlan
from noisewise.privacy.distributed import Crowd, most_rows, plan_shared_noise
from noisewise.protocol.keys import Identity, is_key
from noisewise.protocol.signed import Signed, check_keys, check_text
from noisewise.study import Study

FORMAT = 1
MOST_HOLDERS = 1_000_000
MOST_NODES = 100


@dataclass(frozen=True)
class Card:
    """A node as it presents itself: its name, where it listens, who it is, and the key to seal for."""

    signed: Signed

    @classmethod
    def issue(cls, identity: Identity, *, name: str, url: str, sealing_key: str) -> Self:
        return cls.of(Signed.by(identity, "node-card", {"name": name, "url": url, "sealing_key": sealing_key}))

    @classmethod
    def of(cls, signed: Signed) -> Self:
        check_keys(signed.body, {"name": str, "url": str, "sealing_key": str}, "node's card")
        check_text(signed.body["name"], "A node's name")
        url = check_text(signed.body["url"], "A node's address", 300)
        if not url.startswith(("http://", "https://")) or url.endswith("/"):
            raise RoundError(f"A node's address starts with https:// (or http://) and has no final slash; got {url!r}.")
        if not is_key(signed.body["sealing_key"]):
            raise RoundError("A node's sealing key is 64 hexadecimal digits.")
        return cls(signed)

    @property
    def name(self) -> str:
        return str(self.signed.body["name"])

    @property
    def url(self) -> str:
        return str(self.signed.body["url"])

    @property
    def key(self) -> str:
        """Its signing key."""
        return self.signed.signer

    @property
    def sealing_key(self) -> str:
        return str(self.signed.body["sealing_key"])


@dataclass(frozen=True)
class Member:
    """A holder that takes part: its public name and its signing key."""

    name: str
    key: str


@dataclass(frozen=True)
class Task:
    """A checked task; ``scales`` is the noise of one holder on every entry, in grid units."""

    signed: Signed
    study: Study
    members: tuple[Member, ...]
    crowd: Crowd
    nodes: tuple[Card, ...]
    deadline: datetime
    scales: tuple[float, ...]

    @classmethod
    def draft(
        cls,
        coordinator: Identity,
        study: Study,
        members: Sequence[Member],
        nodes: Sequence[Card],
        *,
        may_drop: int,
        may_collude: int,
        deadline: datetime,
    ) -> Self:
        """A new task; its nonce makes it another round than any before."""
        if deadline.tzinfo is None:
            raise RoundError("The deadline needs a time zone, such as 2027-01-31T18:00:00+00:00.")
        crowd = Crowd(len(members), may_drop, may_collude)
        body = {
            "format": FORMAT,
            "study": study.to_dict(),
            "study_digest": study.digest,
            "holders": [[member.name, member.key] for member in members],
            "may_drop": may_drop,
            "may_collude": may_collude,
            "nodes": [card.signed.to_dict() for card in nodes],
            "deadline": deadline.astimezone(UTC).isoformat(timespec="seconds"),
            "scales": list(plan_shared_noise(study, crowd).grid_scales),
            "nonce": secrets.token_hex(16),
        }
        return cls.of(Signed.by(coordinator, "task", body))

    @classmethod
    def of(cls, signed: Signed) -> Self:
        """Check everything that a task says against everything else it says."""
        body = signed.body
        check_keys(body, _TASK, "task")
        if body["format"] != FORMAT:
            raise RoundError(f"The task has format {body['format']!r}; this package reads {FORMAT}.")
        try:
            study = Study.from_dict(body["study"], "the task's study")
        except StudyError as error:
            raise RoundError(str(error)) from None
        if study.digest != body["study_digest"]:
            raise RoundError("The study in the task is not the one that its study_digest names.")
        members = _members(body["holders"])
        task = cls(
            signed=signed,
            study=study,
            members=members,
            crowd=Crowd(len(members), body["may_drop"], body["may_collude"]),
            nodes=_nodes(body["nodes"]),
            deadline=_time(body["deadline"]),
            scales=tuple(body["scales"]),
        )
        task._check_noise()
        return task

    def _check_noise(self) -> None:
        """The noise has to be what the study and the crowd ask for, whoever wrote the task."""
        asked = plan_shared_noise(self.study, self.crowd).grid_scales
        if len(asked) != len(self.scales) or not all(
            is_finite_number(given) and math.isclose(given, least, rel_tol=1e-6, abs_tol=0.0)
            for given, least in zip(self.scales, asked, strict=True)
        ):
            raise RoundError("The task's noise is not what its study and its number of holders ask for.")

    @property
    def id(self) -> str:
        """The task's hash: the name of the round."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return self.signed.digest

    @property
    def coordinator(self) -> str:
        return self.signed.signer

    @property
    def length(self) -> int:
        """How many entries are summed."""
        return len(self.scales)

    @property
    def most_rows(self) -> int:
        return most_rows(self.study, self.crowd)

    @cached_property
    def keys(self) -> dict[str, str]:
        """The members' names by their keys."""
        return {member.key: member.name for member in self.members}

    @cached_property
    def node_keys(self) -> tuple[str, ...]:
        return tuple(card.key for card in self.nodes)

    def plan(self) -> NoisePlan:
        """The noise of one holder."""
        return plan_shared_noise(self.study, self.crowd)


_TASK: dict[str, Any] = {
    "format": int,
    "study": dict,
    "study_digest": str,
    "holders": list,
    "may_drop": int,
    "may_collude": int,
    "nodes": list,
    "deadline": str,
    "scales": list,
    "nonce": str,
}


def _members(raw: list[Any]) -> tuple[Member, ...]:
    if not 2 <= len(raw) <= MOST_HOLDERS:
        raise RoundError(f"A round has 2 to {MOST_HOLDERS:,} holders; got {len(raw)}.")
    members = []
    for item in raw:
        if not isinstance(item, list) or len(item) != 2 or not is_key(item[1]):
            raise RoundError("A holder of the task is a pair of a name and a key of 64 hexadecimal digits.")
        members.append(Member(check_text(item[0], "A holder's name"), item[1]))
    for what, found in (("name", {m.name for m in members}), ("key", {m.key for m in members})):
        if len(found) != len(members):
            raise RoundError(f"Two holders of the task have one {what}; each takes part once.")
    return tuple(members)


def _nodes(raw: list[Any]) -> tuple[Card, ...]:
    if not 2 <= len(raw) <= MOST_NODES:
        raise RoundError(f"A round has 2 to {MOST_NODES} compute nodes; got {len(raw)}. One alone would see the data.")
    cards = tuple(Card.of(Signed.from_dict(item, "node-card")) for item in raw)
    for what, found in (
        ("name", {card.name for card in cards}),
        ("key", {card.key for card in cards}),
        ("sealing key", {card.sealing_key for card in cards}),
    ):
        if len(found) != len(cards):
            raise RoundError(f"Two nodes of the task have one {what}; a node that counts twice protects nobody.")
    return cards


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise RoundError(f"The deadline {text!r:.40} is not a time such as 2027-01-31T18:00:00+00:00.") from None
    if time.tzinfo is None:
        raise RoundError("The deadline needs a time zone, such as 2027-01-31T18:00:00+00:00.")
    return time
