"""The tables of a node's store, the same in SQLite and PostgreSQL, and how either is opened.

SQLite runs with a write-ahead log and ``synchronous = FULL``: a commit is on the disk when it returns. Writers begin
with BEGIN IMMEDIATE; in PostgreSQL they lock the one row of ``about``. Either way a writer is alone with the store.
"""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError

from noisewise.errors import RoundError

FORMAT = 1

metadata = MetaData()

about = Table(
    "about",
    metadata,
    Column("format", Integer, primary_key=True, autoincrement=False),
    Column("node", String(64), nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("task", Text, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Column("manifest", Text),  # signed: what this node froze
    Column("agreed", Text),  # the agreed pairs of holder and bundle
    Column("sum", Text),  # signed
    Column("created", String(32), nullable=False),
)

envelopes = Table(
    "envelopes",
    metadata,
    Column("round", String(64), primary_key=True),
    Column("holder", String(64), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("bundle", String(64), nullable=False),
    Column("content", LargeBinary),  # null once it is no longer needed
)

audit = Table(
    "audit",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(32), nullable=False),
    Column("payload", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path.absolute()}"


def writer(url: str) -> Engine:
    """For the one thread that writes."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql(parsed)
    engine = create_engine(parsed, pool_size=1, max_overflow=0)
    pragmas = ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "secure_delete = ON")
    _prepare(engine, "BEGIN IMMEDIATE", *pragmas)
    return engine


def reader(url: str) -> Engine:
    """For everyone else. An SQLite file is opened only if it is there."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql(parsed)
    if not Path(parsed.database or "").is_file():
        raise RoundError(f"{parsed.database}: there is no database here; serve the node once, or name another.")
    engine = create_engine(parsed)
    _prepare(engine, "BEGIN", "query_only = ON")
    return engine


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise RoundError("The database's address is not readable; it is like postgresql://user@host/name.") from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        kind = parsed.get_backend_name()
        raise RoundError(f"A database of kind {kind!r:.40} is not known; sqlite and postgresql are.")
    return parsed


def _prepare(engine: Engine, begin: str, *pragmas: str) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, record: Any) -> None:
        connection.isolation_level = None  # this module says when a transaction begins
        for pragma in ("busy_timeout = 10000", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _postgresql(parsed: URL) -> Engine:
    engine = create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    event.listen(engine, "connect", _durable)
    return engine


def _durable(connection: Any, record: Any) -> None:
    """Whatever the server's default, a commit here waits for the disk."""
    connection.autocommit = True
    connection.execute("SET synchronous_commit = on")
    connection.autocommit = False
