"""The steps of a round as one pure function: ``step(state, event) -> state``, or a RoundError.

    DRAFT ──Open──► OPEN ──Freeze──► FROZEN ──Agree──► AGREED ──Sum──► SUMMED ──Publish──► RELEASED
                      └───────────────┴────────────────┴──Abort / too few──► ABORTED

A node and the coordinator run the same machine, each on its own view; stores keep the state, servers feed it. Every
event that was taken may come again and changes nothing; the same kind of event with other content is refused for ever.
So a node sums at most one set of holders in a round, and differences of sums can't be had.

What the nodes agree on are *holdings*: pairs of a holder's key and the bundle of its envelopes. Each node publishes the
holdings that it froze; the agreed set is their intersection, and it has to have at least N - may_drop holders, else
the noise in the sum would be too small, and the round is aborted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from noisewise.errors import RoundError
from noisewise.protocol.signed import digest

Holdings = frozenset[tuple[str, str]]


class Phase(StrEnum):
    DRAFT = "draft"
    OPEN = "open"
    FROZEN = "frozen"
    AGREED = "agreed"
    SUMMED = "summed"
    RELEASED = "released"
    ABORTED = "aborted"


@dataclass(frozen=True)
class Round:
    """Where a round stands, as one party sees it. ``least`` is the fewest holders that may be summed."""

    id: str
    nodes: int
    least: int
    phase: Phase = Phase.DRAFT
    frozen: Holdings | None = None
    agreed: Holdings | None = None
    sum_digest: str = ""
    reason: str = ""

    @property
    def takes_envelopes(self) -> bool:
        return self.phase is Phase.OPEN

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.RELEASED, Phase.ABORTED)


@dataclass(frozen=True)
class Open:
    """The task is accepted."""


@dataclass(frozen=True)
class Freeze:
    """From now on no envelope is taken; these are the ones that are held."""

    held: Holdings


@dataclass(frozen=True)
class Agree:
    """What every node of the round froze, by its place in the task."""

    manifests: Mapping[int, Holdings]


@dataclass(frozen=True)
class Sum:
    """The sum over the agreed set is computed and stored; its hash."""

    digest: str


@dataclass(frozen=True)
class Publish:
    """The pooled release is made."""


@dataclass(frozen=True)
class Abort:
    reason: str


Event = Open | Freeze | Agree | Sum | Publish | Abort


def step(state: Round, event: Event) -> Round:
    """The state after an event; the same state if the event was taken before; RoundError if it may not happen."""
    match event:
        case Open():
            return replace(state, phase=Phase.OPEN) if state.phase is Phase.DRAFT else _again(state, event, True)
        case Freeze(held):
            if state.phase is Phase.OPEN:
                return replace(state, phase=Phase.FROZEN, frozen=held)
            return _again(state, event, state.frozen == held)
        case Agree(manifests):
            return _agree(state, event, manifests)
        case Sum(found):
            if state.phase is Phase.AGREED:
                return replace(state, phase=Phase.SUMMED, sum_digest=found)
            return _again(state, event, state.sum_digest == found)
        case Publish():
            if state.phase is Phase.SUMMED:
                return replace(state, phase=Phase.RELEASED)
            return _again(state, event, state.phase is Phase.RELEASED)
        case Abort(reason):
            if state.phase in (Phase.DRAFT, Phase.OPEN, Phase.FROZEN, Phase.AGREED):
                return replace(state, phase=Phase.ABORTED, reason=reason)
            return _again(state, event, state.phase is Phase.ABORTED)


def _agree(state: Round, event: Agree, manifests: Mapping[int, Holdings]) -> Round:
    if set(manifests) != set(range(state.nodes)):
        raise RoundError(f"Manifests of {len(manifests)} of {state.nodes} nodes; all have to publish what they froze.")
    agreed = intersection(manifests.values())
    if state.phase is not Phase.FROZEN:
        return _again(state, event, state.agreed == agreed)
    if len(agreed) < state.least:
        return replace(
            state,
            phase=Phase.ABORTED,
            reason=f"{len(agreed)} holders reached all nodes and at least {state.least} are needed for enough noise",
        )
    return replace(state, phase=Phase.AGREED, agreed=agreed)


def _again(state: Round, event: Event, same: bool) -> Round:
    """An event that comes too late or too early: harmless if it is the one that was taken, else refused."""
    if same and state.phase is not Phase.DRAFT:
        return state
    what = type(event).__name__.lower()
    if state.phase is Phase.ABORTED:
        raise RoundError(f"Round {state.id[:16]}... was aborted ({state.reason}); open a new one.")
    if isinstance(event, Agree) and state.agreed is not None:
        raise RoundError(
            f"Round {state.id[:16]}... has agreed on another set of holders; a node sums one set in a round, ever."
        )
    raise RoundError(f"Round {state.id[:16]}... is {state.phase}; '{what}' can't be done in it now.")


def intersection(manifests: Iterable[Holdings]) -> Holdings:
    """The holders whose envelopes all nodes have, of one and the same bundle."""
    sets = list(manifests)
    agreed = sets[0].intersection(*sets[1:])
    if len({holder for holder, _ in agreed}) != len(agreed):
        raise RoundError("A manifest names one holder with two bundles; a node holds one.")
    return agreed


def set_digest(holdings: Collection[tuple[str, str]]) -> str:
    """The hash under which the nodes sign their sums: which holders, with which envelopes."""
    return digest(sorted([holder, bundle] for holder, bundle in holdings))
