"""The tables of a node's store, the same in SQLite and PostgreSQL, and how either is opened.

SQLite runs with a write-ahead log and ``synchronous = FULL``: a commit is on the disk when it returns. Writers begin
with BEGIN IMMEDIATE; in PostgreSQL they lock the one row of ``about``. Either way a writer is alone with the store.
"""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import (
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
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

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
    Column("release", Text),
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


def engines(url: str) -> tuple[Engine, Engine]:
    """The engine that writes and the one that reads."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise RoundError("The database's address is not readable; it is like postgresql://user@host/name.") from None
    match parsed.get_backend_name():
        case "sqlite":
            writer = create_engine(parsed, pool_size=1, max_overflow=0)
            reader = create_engine(parsed)
            _prepare(writer, "BEGIN IMMEDIATE")
            _prepare(reader, "BEGIN")
            return writer, reader
        case "postgresql":
            try:
                engine = create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
            except NoSuchModuleError:
                raise RoundError("PostgreSQL needs psycopg; install it with pip install psycopg[binary].") from None
            event.listen(engine, "connect", _durable)
            return engine, engine
        case other:
            raise RoundError(f"A database of kind {other!r:.40} is not known; sqlite and postgresql are.")


def _prepare(engine: Engine, begin: str) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, record: Any) -> None:
        connection.isolation_level = None  # this module says when a transaction begins
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "busy_timeout = 10000",
            "wal_autocheckpoint = 4000",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _durable(connection: Any, record: Any) -> None:
    """Whatever the server's default, a commit here waits for the disk."""
    connection.autocommit = True
    connection.execute("SET synchronous_commit = on")
    connection.autocommit = False
