"""What the entries of a ledger mean: its total, what was reserved and confirmed, and what one more release would cost.

Nothing here reads or writes a file; ledger.py does, and asks this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from noisewise.errors import LedgerError
from noisewise.privacy.accounting import Event, composed_epsilon
from noisewise.privacy.chain import Entry
from noisewise.study import Adjacency


@dataclass(frozen=True)
class Summary:
    """Where a ledger stands. ``spent_epsilon`` is the cost of all reservations together at ``total_delta``."""

    dataset: str
    adjacency: Adjacency
    created: str
    total_epsilon: float
    total_delta: float
    spent_epsilon: float
    left_epsilon: float
    reservations: int
    unconfirmed: int
    raises: int
    head: str


@dataclass(frozen=True)
class Quote:
    """What one more release would cost, at the ledger's delta."""

    spent_before: float
    spent_after: float
    left_after: float
    fits: bool
    total_epsilon: float
    total_delta: float


@dataclass(frozen=True)
class Verification:
    """What a check found in a ledger whose chain is whole; a broken chain is a LedgerError instead.

    ``missing`` are entries that published Releases name and the ledger lacks; ``head_missing`` tells that the
    remembered head is not in it. Either means that entries were removed, or that this is not the ledger they are from.
    """

    entries: int
    reservations: int
    unconfirmed: tuple[str, ...]
    head: str
    missing: tuple[str, ...] = ()
    head_missing: bool = False

    @property
    def ok(self) -> bool:
        return not self.missing and not self.head_missing

    @property
    def problems(self) -> tuple[str, ...]:
        """Each finding as a sentence."""
        out = [
            f"Reservation {entry} is named by a release and is not in the ledger: entries were removed, the ledger was "
            "replaced by an older copy, or the release was made from another ledger."
            for entry in self.missing
        ]
        if self.head_missing:
            out.append("The remembered head is not in the ledger: entries were removed, or it is another ledger.")
        return tuple(out)


@dataclass(frozen=True)
class Balance:
    """The meaning of the entries so far."""

    dataset: str
    adjacency: Adjacency
    created: str
    epsilon: float
    delta: float
    raises: int
    reserved: Mapping[str, Event]
    confirmed: Mapping[str, str]
    head: str

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.reserved if entry not in self.confirmed)

    def quote(self, event: Event) -> Quote:
        before = composed_epsilon(self.reserved.values(), self.delta)
        after = composed_epsilon((*self.reserved.values(), event), self.delta)
        return Quote(before, after, max(0.0, self.epsilon - after), after <= self.epsilon, self.epsilon, self.delta)

    @classmethod
    def of(cls, entries: tuple[Entry, ...], path: Path) -> Self:
        """Read the entries; ``path`` is for the message when one is not of this package."""
        opened, *rest = entries
        reserved: dict[str, Event] = {}
        confirmed: dict[str, str] = {}
        totals = [opened.payload]
        try:
            if opened.kind != "open" or any(entry.kind not in ("reserve", "confirm", "raise") for entry in rest):
                raise KeyError("kind")
            for entry in rest:
                if entry.kind == "reserve":
                    reserved[entry.hash] = Event(**entry.payload["event"])
                elif entry.kind == "confirm":
                    confirmed[entry.payload["entry"]] = entry.payload["release_digest"]
                else:
                    totals.append(entry.payload)
            return cls(
                dataset=opened.payload["dataset"],
                adjacency=opened.payload["adjacency"],
                created=opened.payload["created"],
                epsilon=totals[-1]["epsilon"],
                delta=totals[-1]["delta"],
                raises=len(totals) - 1,
                reserved=reserved,
                confirmed=confirmed,
                head=entries[-1].hash,
            )
        except (KeyError, TypeError, LedgerError):
            raise LedgerError(
                f"{path}: an entry is not one that this package writes; the ledger was made or changed by another "
                "program. Restore a backup."
            ) from None

    def summary(self) -> Summary:
        spent = composed_epsilon(self.reserved.values(), self.delta)
        return Summary(
            dataset=self.dataset,
            adjacency=self.adjacency,
            created=self.created,
            total_epsilon=self.epsilon,
            total_delta=self.delta,
            spent_epsilon=spent,
            left_epsilon=max(0.0, self.epsilon - spent),
            reservations=len(self.reserved),
            unconfirmed=len(self.unconfirmed),
            raises=self.raises,
            head=self.head,
        )
