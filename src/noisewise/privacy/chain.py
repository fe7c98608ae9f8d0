"""An append-only, hash-chained table in one SQLite file: where the ledger keeps its entries.

Every entry holds the SHA-256 hash of the one before it and its own, so an edited, removed or inserted entry breaks
the chain from there on. The file refuses UPDATE and DELETE by triggers, against accidents. A chain can't show that
its *newest* entries were cut off, nor that all of it was written anew: that takes a hash remembered elsewhere.

Durability. ``synchronous = EXTRA``: with SQLite's rollback journal a commit is the removal of the journal, and FULL
does not sync the directory after it, so a power cut could bring the journal back and undo the commit. EXTRA syncs it.
Writers take the lock with BEGIN IMMEDIATE before they read, so what they checked is still true when they append. No
connection outlives a call: processes may fork, and a kill leaves at most a journal that the next reader rolls back.
The file is opened through SQLite alone: POSIX drops all locks of a process on a file when it closes any handle of it,
so a plain open() and close() here would unlock a transaction of another thread.
"""

import errno
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from noisewise.errors import LedgerError, OutputError

APPLICATION = 0x6E776C67  # "nwlg" in the file's header
VERSION = 1
GENESIS = "0" * 64

_SCHEMA = (
    "CREATE TABLE entries (position INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, "
    "previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
)


@dataclass(frozen=True)
class Entry:
    """One line of the chain."""

    position: int
    kind: str
    payload: Mapping[str, Any]
    previous: str
    hash: str

    @property
    def created(self) -> str:
        return str(self.payload.get("created", ""))


class Transaction:
    """The entries as they are while this process alone may write, and the right to append one."""

    def __init__(self, connection: sqlite3.Connection, entries: tuple[Entry, ...]) -> None:
        self._connection = connection
        self.entries = entries

    def append(self, kind: str, payload: Mapping[str, Any]) -> Entry:
        last = self.entries[-1] if self.entries else None
        row = linked((last.position, last.hash) if last else (0, GENESIS), kind, payload)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
        entry = Entry(row.position, kind, dict(payload), row.previous, row.hash)
        self.entries += (entry,)
        return entry


class Row(NamedTuple):
    """An entry as it is stored."""

    position: int
    kind: str
    payload: str
    previous: str
    hash: str


def linked(last: tuple[int, str], kind: str, payload: Mapping[str, Any]) -> Row:
    """The row of a new entry behind the one with this position and hash; (0, GENESIS) if there is none."""
    position, previous = last[0] + 1, last[1]
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Row(position, kind, text, previous, entry_hash(position, kind, text, previous))


def follow(rows: Iterable[Row | tuple[int, str, str, str, str]], broken: Callable[[str], Exception]) -> Iterator[Entry]:
    """The entries of a chain, oldest first, as long as it holds; then ``broken`` makes the error from words."""
    previous = GENESIS
    for expected, (position, kind, text, claimed, digest) in enumerate(rows, start=1):
        if position != expected:
            raise broken(f"entry {expected} is missing; it was removed.")
        if claimed != previous:
            raise broken(f"entry {position} does not follow the one before it.")
        if digest != entry_hash(position, kind, text, previous):
            raise broken(f"entry {position} was changed after it was written.")
        yield Entry(position, kind, _parsed(text, position, broken), previous, digest)
        previous = digest


def _parsed(text: str, position: int, broken: Callable[[str], Exception]) -> Mapping[str, Any]:
    try:
        payload = json.loads(text)
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise broken(f"entry {position} is not readable.")
    return payload


def entry_hash(position: int, kind: str, payload: str, previous: str) -> str:
    """SHA-256 over the parts of an entry; no part but the payload, which is last, can hold a line break."""
    return hashlib.sha256(f"{position}\n{kind}\n{previous}\n{payload}".encode()).hexdigest()


class Chain:
    """The file. ``timeout`` is how many seconds a call waits for other processes that write."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self.path = path
        self._timeout = timeout

    @classmethod
    def create(cls, path: Path, kind: str, payload: Mapping[str, Any], timeout: float = 30.0) -> "Chain":
        """A new file for its owner's eyes, whole or not at all: it is built beside its place and linked into it."""
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            cls(partial, timeout)._fill(kind, payload)
            os.link(partial, path)
            sync_folder(path.parent)
        except FileExistsError:
            raise LedgerError(
                f"{path}: there is a file already, and a ledger is never overwritten: what was spent stays spent. "
                "Open it, or choose another place."
            ) from None
        except (OSError, sqlite3.Error) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            raise OutputError(f"{path}: the ledger can't be created ({words}); choose another place.") from None
        finally:
            _remove(partial)
        return cls(path, timeout)

    def _fill(self, kind: str, payload: Mapping[str, Any]) -> None:
        with closing(self._connect("rw")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            for statement in _SCHEMA:
                connection.execute(statement)
            Transaction(connection, ()).append(kind, payload)
            connection.execute("COMMIT")

    def read(self) -> tuple[Entry, ...]:
        """All entries, oldest first; the file and the chain are checked."""
        with self._guarded("read", "rw" if os.access(self.path, os.W_OK) else "ro") as connection:
            connection.execute("BEGIN")
            return self._entries(connection)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Alone with the file; on leaving, what was appended is on disk, or nothing is and an error says so."""
        with self._guarded("written", "rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield Transaction(connection, self._entries(connection))
            connection.execute("COMMIT")

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=self._timeout, isolation_level=None)
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    @contextmanager
    def _guarded(self, verb: str, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection to a file that is ours, whose errors are put into words. Closing it rolls back what is open."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            raise LedgerError(
                f"{self.path}: there is no ledger; 'noisewise ledger create {self.path} --dataset NAME --epsilon E "
                "--delta D' makes one."
            ) from None
        except OSError as error:
            raise LedgerError(f"{self.path}: the ledger can't be read ({error.strerror}).") from None
        if not self.path.is_file():
            raise LedgerError(f"{self.path}: this is not a file; name the ledger's own file.")
        if not size:
            raise LedgerError(f"{self.path}: the file is empty. {_RESTORE}")
        try:
            with closing(self._connect(mode)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {_in_words(error, verb)}") from error
        except UnicodeDecodeError:  # SQLite's own message quotes what it could not read
            raise LedgerError(f"{self.path}: the file is damaged (a text is not readable). {_RESTORE}") from None

    def _check_header(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        if not pages or self.path.stat().st_size < pages * page_size:
            raise LedgerError(f"{self.path}: the file is cut off. {_RESTORE}")
        if application != APPLICATION:
            raise LedgerError(
                f"{self.path}: this is a SQLite file of another program, not a ledger; name the ledger's own file."
            )
        if version != VERSION:
            raise LedgerError(f"{self.path}: ledger version {version} is not known here; this package reads {VERSION}.")

    def _entries(self, connection: sqlite3.Connection) -> tuple[Entry, ...]:
        self._check_header(connection)
        (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if state != "ok":
            raise LedgerError(f"{self.path}: the file is damaged ({state}). {_RESTORE}")
        schema = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
        if schema != set(_SCHEMA):
            raise LedgerError(f"{self.path}: the tables are not those of a ledger; they were changed. {_RESTORE}")
        rows = connection.execute("SELECT position, kind, payload, previous, hash FROM entries ORDER BY position")
        out = tuple(follow(rows, lambda words: LedgerError(f"{self.path}: {words} {_RESTORE}")))
        if not out:
            raise LedgerError(f"{self.path}: entry 1 is missing; it was removed. {_RESTORE}")
        return out


_RESTORE = (
    "Nothing can be released from it. Restore a backup, run 'noisewise ledger verify' on it with every release that "
    "was published, and count what the backup lacks as spent."
)


def _in_words(error: sqlite3.Error, verb: str) -> str:
    """What SQLite's error means for the holder."""
    meaning = {
        sqlite3.SQLITE_BUSY: "another process kept the ledger locked; try again when it is done.",
        sqlite3.SQLITE_READONLY: "the ledger is read-only; make it and its folder writable.",
        sqlite3.SQLITE_CANTOPEN: "the ledger or its folder can't be opened; check who may read and write them.",
        sqlite3.SQLITE_FULL: "the disk is full; make room and try again.",
        sqlite3.SQLITE_IOERR: f"the disk refused ({error}); make sure that it has room and works.",
        sqlite3.SQLITE_CORRUPT: f"the file is damaged ({error}). {_RESTORE}",
        sqlite3.SQLITE_NOTADB: f"this is not a ledger, or its beginning is damaged. {_RESTORE}",
    }
    code = getattr(error, "sqlite_errorcode", -1)  # absent where Python, not SQLite, could not read a text
    words = meaning.get(code & 0xFF, f"the ledger can't be {verb} ({error}).")
    if verb == "written":
        words += " Nothing is released; 'noisewise ledger show' tells whether the entry was written all the same."
    return words


def sync_folder(folder: Path) -> None:
    """Make a new name durable; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that can't sync a folder
            raise
    finally:
        os.close(handle)


def _remove(partial: Path) -> None:
    for leftover in (partial, partial.with_name(partial.name + "-journal")):
        leftover.unlink(missing_ok=True)
