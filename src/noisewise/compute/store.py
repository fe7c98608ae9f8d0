"""What a node keeps: tasks and where their rounds stand, sealed envelopes, its own signed words, the audit log.

A step of a round and the data that belongs to it are one transaction, and so is an envelope with its line in the audit
log. Nothing here is secret by itself: shares stay sealed. Reads go to their own connections and never wait for writes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, insert, select, update

from noisewise.compute import schema
from noisewise.compute.reading import Reader, Record, holdings_of, in_words, record_of
from noisewise.compute.writer import Writer
from noisewise.errors import NoisewiseError, RoundError
from noisewise.privacy.chain import GENESIS, Row, linked
from noisewise.protocol.round import Phase

Result = TypeVar("Result")
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Deposit:
    """An envelope that was checked and opened, on its way to the disk."""

    round: str
    deadline: datetime
    holder: str
    digest: str
    bundle: str
    content: bytes


class Outcome(Enum):
    """What became of a deposit."""

    NEW = "new"
    SAME = "the same was there"
    DIFFERENT = "another was there"
    CLOSED = "the round takes no envelopes any more"
    UNKNOWN = "there is no such round"


class Transaction:
    """Alone with the store until the group that this is part of is committed."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self.now = now
        self.writes = 0
        self._lines: list[Row] = []
        # in PostgreSQL this waits for other writers; SQLite has one at a time anyway
        connection.execute(select(schema.about.c.format).with_for_update())
        last = connection.execute(_LAST).first()
        self._last = (last.position, last.hash) if last else (0, GENESIS)

    def audit(self, kind: str, **facts: Any) -> None:
        """A line of the audit log, of public facts."""
        row = linked(self._last, kind, {"created": self.now.isoformat(timespec="seconds"), **facts})
        self._last = (row.position, row.hash)
        self._lines.append(row)
        self.writes += 1

    def record(self, round_id: str) -> Record | None:
        return record_of(self._connection, round_id)

    def open(self, round_id: str, task: str, phase: Phase) -> None:
        self.writes += 1
        created = self.now.isoformat(timespec="seconds")
        self._connection.execute(
            insert(schema.rounds).values(id=round_id, task=task, phase=phase.value, reason="", created=created)
        )

    def update(self, round_id: str, **values: Any) -> None:
        self.writes += 1
        self._connection.execute(update(schema.rounds).where(schema.rounds.c.id == round_id).values(**values))

    def holdings(self, round_id: str) -> list[tuple[str, str]]:
        return holdings_of(self._connection, round_id)

    def forget_contents(self, round_id: str) -> None:
        """Drop the sealed shares of a round that is over; who sent what stays."""
        table = schema.envelopes
        self._connection.execute(update(table).where(table.c.round == round_id).values(content=None))

    def deposit(self, deposits: Sequence[Deposit]) -> list[Outcome]:
        """Take these envelopes, each for itself, with few statements for all of them."""
        rounds = {deposit.round for deposit in deposits}
        rows = self._connection.execute(_PHASES, {"ids": sorted(rounds)})
        phases = {row.id: Phase(row.phase) for row in rows}
        rows = self._connection.execute(
            _DIGESTS, {"rounds": sorted(rounds), "holders": sorted({deposit.holder for deposit in deposits})}
        )
        held = {(row.round, row.holder): row.digest for row in rows}
        new, outcomes = [], []
        for deposit in deposits:
            outcome = self._outcome(deposit, phases.get(deposit.round), held)
            outcomes.append(outcome)
            if outcome is Outcome.NEW:
                new.append(_values(deposit))
                held[deposit.round, deposit.holder] = deposit.digest
                self.audit("envelope", round=deposit.round, holder=deposit.holder, digest=deposit.digest)
        if new:
            self._connection.execute(_INSERT, new)
        return outcomes

    def _outcome(self, deposit: Deposit, phase: Phase | None, held: dict[tuple[str, str], str]) -> Outcome:
        if phase is None:
            return Outcome.UNKNOWN
        if phase is Phase.ABORTED:
            return Outcome.CLOSED
        there = held.get((deposit.round, deposit.holder))
        if there is not None:
            return Outcome.SAME if there == deposit.digest else Outcome.DIFFERENT
        late = phase is not Phase.OPEN or self.now >= deposit.deadline
        return Outcome.CLOSED if late else Outcome.NEW

    def finish(self) -> None:
        if self._lines:
            self._connection.execute(_AUDIT, [row._asdict() for row in self._lines])


Work = Callable[[Transaction], Any]


class Store(Reader):
    """``url`` is a database of SQLAlchemy's kind; ``node`` the signing key of the node whose store it is."""

    def __init__(self, url: str, node: str, clock: Clock = utc_now) -> None:
        self._clock = clock
        self._write = schema.writer(url)
        with in_words(), self._write.begin() as connection:
            schema.metadata.create_all(connection)
            row = connection.execute(select(schema.about)).first()
            if row is None:
                connection.execute(insert(schema.about).values(format=schema.FORMAT, node=node))
            elif (row.format, row.node) != (schema.FORMAT, node):
                raise RoundError(
                    f"The database is of format {row.format} and of node {row.node[:16]}..., and this is node "
                    f"{node[:16]}... with format {schema.FORMAT}; give every node a database of its own."
                )
        super().__init__(schema.reader(url))
        self._writer: Writer[Deposit | Work] = Writer(self._commit)

    async def deposit(self, deposit: Deposit) -> Outcome:
        """Keep an envelope; when this returns, it is on disk."""
        outcome: Outcome = await self._writer.submit_async(deposit)
        return outcome

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Run ``work`` alone with the store and commit. It may run twice, so it touches nothing but the transaction."""
        done: Future[Result] = self._writer.submit(work)
        return done.result()

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    def _commit(self, group: Sequence[Deposit | Work]) -> list[Any]:
        results: list[Any] = []
        with in_words(), self._write.begin() as connection:
            transaction = Transaction(connection, self._clock())
            at = 0
            while at < len(group):
                item = group[at]
                if not isinstance(item, Deposit):
                    results.append(_attempt(item, transaction))
                    at += 1
                    continue
                run = _deposits_from(group, at)
                results += transaction.deposit(run)
                at += len(run)
            transaction.finish()
        return results

    def healthy(self) -> bool:
        """Whether the store answers and can still write."""
        return self._writer.alive and self.answers()

    def close(self) -> None:
        """Write what waits, then let go of the database."""
        self._writer.close()
        super().close()
        self._write.dispose()


def _attempt(work: Work, transaction: Transaction) -> Any:
    """The result, or a refusal that wrote nothing and so need not undo the rest of its group."""
    before = transaction.writes
    try:
        return work(transaction)
    except NoisewiseError as refusal:
        if transaction.writes != before:
            raise
        return refusal


def _deposits_from(group: Sequence[Deposit | Work], start: int) -> list[Deposit]:
    out = []
    for item in group[start:]:
        if not isinstance(item, Deposit):
            break
        out.append(item)
    return out


def _values(deposit: Deposit) -> dict[str, Any]:
    return {
        "round": deposit.round,
        "holder": deposit.holder,
        "digest": deposit.digest,
        "bundle": deposit.bundle,
        "content": deposit.content,
    }


_LAST = select(schema.audit.c.position, schema.audit.c.hash).order_by(schema.audit.c.position.desc()).limit(1)
_PHASES = select(*schema.rounds.c["id", "phase"]).where(schema.rounds.c.id.in_(bindparam("ids", expanding=True)))
_DIGESTS = select(*schema.envelopes.c["round", "holder", "digest"]).where(
    schema.envelopes.c.round.in_(bindparam("rounds", expanding=True)),
    schema.envelopes.c.holder.in_(bindparam("holders", expanding=True)),
)
_INSERT = insert(schema.envelopes)
_AUDIT = insert(schema.audit)
