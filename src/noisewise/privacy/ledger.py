"""The ledger: what a data set may spend in all its studies together, and what it has spent.

One file per data set, kept by its holder. A total (epsilon, delta) is set once; a release first *reserves* its cost,
which is durable before any noise is drawn, and is *confirmed* when it is written. A reservation counts as spent for
ever, confirmed or not: after a crash nobody can know whether the release got out, so in doubt it is spent. The cost
of all reservations together comes from accounting.py. Entries are hash-chained (chain.py): an edit shows.

The hash of a reservation is published in its Release. It covers a 128-bit nonce, so it tells nothing of what else the
ledger holds, and it anchors the chain: a ledger that lacks an entry which a published Release names was cut or
replaced.
"""

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, get_args

from noisewise.errors import LedgerError, OverspendError
from noisewise.privacy.accounting import Event, largest_that_fits
from noisewise.privacy.balance import Balance, Quote, Summary, Verification
from noisewise.privacy.chain import Chain, Entry
from noisewise.study import Adjacency

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The budget of one data set; made by ``Ledger.create``, used through ``Ledger.open``."""

    def __init__(self, chain: Chain, clock: Clock = _now) -> None:
        self._chain = chain
        self._clock = clock
        balance = self._balance()
        self.dataset = balance.dataset
        self.adjacency = balance.adjacency

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        dataset: str,
        epsilon: float,
        delta: float,
        adjacency: Adjacency = "replace-one",
        clock: Clock = _now,
    ) -> Self:
        """A new ledger with the total that all releases from the data set together may not pass."""
        if adjacency not in get_args(Adjacency):
            raise LedgerError(f"adjacency {adjacency!r} is not known; use one of {', '.join(get_args(Adjacency))}.")
        epsilon, delta = _total(epsilon, delta)
        payload = {
            "dataset": _text("The name of the data set", dataset),
            "adjacency": adjacency,
            "epsilon": epsilon,
            "delta": delta,
            "created": _stamp(clock),
            "nonce": secrets.token_hex(16),
        }
        return cls(Chain.create(Path(path), "open", payload), clock)

    @classmethod
    def open(cls, path: str | Path, dataset: str | None = None, *, clock: Clock = _now, timeout: float = 30.0) -> Self:
        """The ledger at ``path``, its chain verified; refused if it is of another data set than ``dataset``.

        ``timeout`` is how many seconds a call waits while other processes write.
        """
        ledger = cls(Chain(Path(path), timeout), clock)
        if dataset is not None and dataset != ledger.dataset:
            raise LedgerError(
                f"{path}: this is the ledger of data set {ledger.dataset!r}, not of {dataset!r}; name the ledger that "
                f"belongs to {dataset!r}, since each data set has its own total."
            )
        return ledger

    @property
    def path(self) -> Path:
        return self._chain.path

    def reserve(
        self,
        event: Event,
        *,
        adjacency: Adjacency,
        study_digest: str,
        study_name: str = "",
        holder: str = "",
        round: str = "",
        again: bool = False,
    ) -> str:
        """Spend what a release costs, durably, before its noise is drawn; the entry's hash, or OverspendError.

        ``round`` is the secure sum that it is spent for. A second reservation for one round is refused, unless the
        holder says with ``again`` that it will pay a second time.
        """
        self._check_adjacency(adjacency)
        payload = {
            "event": asdict(event),
            "study_digest": _digest("study_digest", study_digest),
            "study_name": study_name,
            "holder": holder,
            "created": _stamp(self._clock),
            "nonce": secrets.token_hex(16),
        }
        if round:
            payload["round"] = _digest("round", round)
        with self._chain.writing() as transaction:
            if round and not again:
                self._check_first(transaction.entries, round)
            balance = Balance.of(transaction.entries, self.path)
            quote = balance.quote(event)
            if quote.fits:
                return transaction.append("reserve", payload).hash
        raise OverspendError(self._refusal(balance, event, quote))

    def confirm(self, entry: str, *, release_digest: str) -> None:
        """Record that the release of a reservation was written. It changes nothing about what is spent."""
        payload = {
            "entry": entry,
            "release_digest": _digest("release_digest", release_digest),
            "created": _stamp(self._clock),
        }
        with self._chain.writing() as transaction:
            balance = Balance.of(transaction.entries, self.path)
            if entry not in balance.reserved:
                raise LedgerError(f"{self.path}: there is no reservation {entry!r} to confirm.")
            before = balance.confirmed.get(entry)
            if before is None:
                transaction.append("confirm", payload)
            elif before != release_digest:
                raise LedgerError(
                    f"{self.path}: reservation {entry} is confirmed for another release already; a second release "
                    "needs a reservation of its own."
                )

    def raise_total(self, epsilon: float, delta: float, reason: str) -> str:
        """Set a larger total: a decision of the data's owner, which stays visible with its reason for ever."""
        epsilon, delta = _total(epsilon, delta)
        payload = {
            "epsilon": epsilon,
            "delta": delta,
            "reason": _text("The reason for a larger total", reason),
            "created": _stamp(self._clock),
        }
        with self._chain.writing() as transaction:
            balance = Balance.of(transaction.entries, self.path)
            before = (balance.epsilon, balance.delta)
            if epsilon < before[0] or delta < before[1] or (epsilon, delta) == before:
                raise LedgerError(
                    f"{self.path}: the total is epsilon {before[0]:g}, delta {before[1]:g}; it can be raised and "
                    f"never lowered, so epsilon {epsilon:g}, delta {delta:g} is refused."
                )
            return transaction.append("raise", payload).hash

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, oldest first: kinds open, reserve, confirm, raise."""
        return self._chain.read()

    def check_first(self, round: str) -> None:
        """Raise if budget was reserved for this round already."""
        self._check_first(self._chain.read(), round)

    def would_cost(self, event: Event, *, adjacency: Adjacency | None = None) -> Quote:
        """What a release would cost now; nothing is written."""
        if adjacency is not None:
            self._check_adjacency(adjacency)
        return self._balance().quote(event)

    def summary(self) -> Summary:
        """Total, spent, left, and the newest entry's hash."""
        return self._balance().summary()

    def verify(self, releases: Iterable[str] = (), head: str | None = None) -> Verification:
        """Check the chain against what is remembered elsewhere.

        ``releases`` are the ``ledger_entry`` hashes of Releases that were published from this data set, ``head`` is a
        head noted earlier. The chain alone can't show that its newest entries are gone; these can.
        """
        entries = self._chain.read()
        balance = Balance.of(entries, self.path)
        return Verification(
            entries=len(entries),
            reservations=len(balance.reserved),
            unconfirmed=balance.unconfirmed,
            head=entries[-1].hash,
            missing=tuple(dict.fromkeys(entry for entry in releases if entry not in balance.reserved)),
            head_missing=head is not None and head not in {entry.hash for entry in entries},
        )

    def _check_first(self, entries: Iterable[Entry], round: str) -> None:
        for entry in entries:
            if entry.kind == "reserve" and entry.payload.get("round") == round:
                raise LedgerError(
                    f"{self.path}: budget was reserved for round {round[:16]}... on {entry.created} already (entry "
                    f"{entry.hash[:16]}...), and nothing was kept that could be sent: that try was stopped midway. Its "
                    "budget stays spent. Taking part in this round all the same costs as much again; ask for it with "
                    "--spend-again."
                )

    def _balance(self) -> Balance:
        return Balance.of(self._chain.read(), self.path)

    def _check_adjacency(self, adjacency: str) -> None:
        if adjacency != self.adjacency:
            raise LedgerError(
                f"{self.path}: the study's adjacency is {adjacency!r} and this ledger counts {self.adjacency!r}. "
                "Replacing a row is removing one and adding another, two steps of add-remove, so the costs can't be "
                f"added up. Use a study with adjacency {self.adjacency!r}; what a second ledger allows would come on "
                "top of what this one does."
            )

    def _refusal(self, balance: Balance, event: Event, quote: Quote) -> str:
        after = f"it would be {quote.spent_after:.4g}" if math.isfinite(quote.spent_after) else "no bound would hold"
        largest = largest_that_fits(tuple(balance.reserved.values()), event, balance.epsilon, balance.delta)
        if largest is not None:
            remedy = f"With this mechanism and delta epsilon {largest:g} still fits: lower the study's epsilon to it"
        elif balance.delta == 0 and event.law == "gaussian":
            remedy = "A total delta of 0 leaves room for Laplace noise only: use mechanism 'laplace'"
        else:
            remedy = "Not even a thousandth of that epsilon fits: use what was released already"
        left = max(0.0, balance.epsilon - quote.spent_before)
        return (
            f"{self.path}: this release asks for epsilon {event.epsilon:g}, delta {event.delta:g}. Data set "
            f"{balance.dataset!r} has spent {quote.spent_before:.4g} of a total epsilon of {balance.epsilon:g} at "
            f"delta {balance.delta:g}, {left:.4g} is left; with this release {after}. "
            f"Nothing was spent. {remedy}, or let the data's owner decide on a larger total: 'noisewise ledger raise "
            f"{self.path} --epsilon E --delta D --reason TEXT'."
        )

    def __repr__(self) -> str:
        return f"<Ledger of {self.dataset!r} at {self.path}>"


def _stamp(clock: Clock) -> str:
    return clock().astimezone(UTC).isoformat(timespec="seconds")


def _total(epsilon: float, delta: float) -> tuple[float, float]:
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise LedgerError(f"The total {name} is a finite number; got {value!r}.")
    if not 0 < epsilon <= 1000 or not 0 <= delta < 0.5:
        raise LedgerError(
            f"The total is an epsilon above 0 and at most 1000 and a delta from 0 to below 0.5; got {epsilon!r} and "
            f"{delta!r}. A data set's total is often an epsilon of 1 to 10 at a delta well below 1/n."
        )
    return float(epsilon), float(delta)


def _text(what: str, value: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise LedgerError(f"{what} is one line of text that is not empty; got {value!r}.")
    return value


def _digest(name: str, value: str) -> str:
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise LedgerError(f"{name} is a SHA-256 hash, 64 hexadecimal digits; got {value!r}.")
    return value


__all__ = ["Clock", "Entry", "Ledger", "Quote", "Summary", "Verification"]
