"""What is read from a node's store, by the node itself and by whoever audits it: nothing here writes."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection, Engine, bindparam, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from noisewise.compute import schema
from noisewise.errors import OutputError, RoundError
from noisewise.privacy.chain import Row
from noisewise.protocol.round import Phase

_PG_DISK_FULL = "53100"


@dataclass(frozen=True)
class Record:
    """A round as it is stored; texts are JSON."""

    id: str
    phase: Phase
    reason: str
    manifest: str | None
    agreed: str | None
    sum: str | None


class Reader:
    """A store as its readers see it; ``engine`` opens connections that never wait for writers."""

    def __init__(self, engine: Engine) -> None:
        self._read = engine

    @classmethod
    def of(cls, url: str) -> Self:
        """The store of this address, which has to be there already."""
        engine = schema.reader(url)
        with in_words():
            there = inspect(engine).has_table(schema.about.name)
        if not there:
            raise RoundError("The database holds no node's store; serve the node once, or name another database.")
        return cls(engine)

    def record(self, round_id: str) -> Record | None:
        with self._reading() as connection:
            return record_of(connection, round_id)

    def text(self, round_id: str, column: str) -> str | None:
        """The task, manifest or sum of a round as JSON, if there is one."""
        table = schema.rounds
        with self._reading() as connection:
            found = connection.execute(select(table.c[column]).where(table.c.id == round_id)).scalar()
            return None if found is None else str(found)

    def holdings(self, round_id: str) -> list[tuple[str, str]]:
        with self._reading() as connection:
            return holdings_of(connection, round_id)

    def contents(self, round_id: str, at_once: int) -> Iterator[tuple[str, bytes]]:
        """Holders and their envelopes in the order of the holders' keys, ``at_once`` in memory."""
        after = ""
        while True:
            with self._reading() as connection:
                rows = connection.execute(_CONTENTS, {"id": round_id, "after": after, "most": at_once}).all()
            yield from ((row.holder, bytes(row.content)) for row in rows)
            if len(rows) < at_once:
                return
            after = rows[-1].holder

    def phases(self) -> dict[str, Phase]:
        """Where every round stands."""
        with self._reading() as connection:
            return {row.id: Phase(row.phase) for row in connection.execute(select(*schema.rounds.c["id", "phase"]))}

    def audit(self) -> Iterator[Row]:
        """The audit log, oldest line first, as it is stored."""
        with self._reading() as connection:
            rows = connection.execution_options(yield_per=1000).execute(
                select(schema.audit).order_by(schema.audit.c.position)
            )
            for row in rows:
                yield Row(*row)

    def answers(self) -> bool:
        """Whether the database is there."""
        try:
            with self._reading() as connection:
                connection.execute(select(schema.about.c.format)).one()
        except OutputError:
            return False
        return True

    def close(self) -> None:
        self._read.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with in_words(), self._read.connect() as connection:
            yield connection


def record_of(connection: Connection, round_id: str) -> Record | None:
    columns = schema.rounds.c["id", "phase", "reason", "manifest", "agreed", "sum"]
    row = connection.execute(select(*columns).where(schema.rounds.c.id == round_id)).first()
    return None if row is None else Record(row.id, Phase(row.phase), row.reason, row.manifest, row.agreed, row.sum)


def holdings_of(connection: Connection, round_id: str) -> list[tuple[str, str]]:
    table = schema.envelopes
    query = select(table.c.holder, table.c.bundle).where(table.c.round == round_id).order_by(table.c.holder)
    return [(row.holder, row.bundle) for row in connection.execute(query)]


_CONTENTS = (
    select(schema.envelopes.c.holder, schema.envelopes.c.content)
    .where(
        schema.envelopes.c.round == bindparam("id"),
        schema.envelopes.c.holder > bindparam("after"),
        schema.envelopes.c.content.is_not(None),
    )
    .order_by(schema.envelopes.c.holder)
    .limit(bindparam("most"))
)


@contextmanager
def in_words() -> Iterator[None]:
    """The database's errors in this package's words, and without the statement's values."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None)
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        full = code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", "") == _PG_DISK_FULL
        kind = getattr(cause, "sqlite_errorname", "") or getattr(cause, "sqlstate", "") or type(cause or error).__name__
        words = "the disk is full" if full else f"it answered {kind}"
        refusal = OutputError(f"The store can't be used: {words}. Nothing was changed; try again later.")
        refusal.errno = errno.ENOSPC if full else errno.EIO
        raise refusal from None
