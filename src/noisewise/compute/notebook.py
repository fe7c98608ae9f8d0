"""The coordinator's notebook: who was invited, who enrolled, which rounds there are and what came of them.

One SQLite file. The server and the commands of a coordinator use it at the same time; every change is one durable
transaction. Everything in it is public but the hashes of invitations, and those are of no use without their tokens.
"""

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from noisewise.errors import OutputError, RefusedError, RoundError
from noisewise.protocol.round import Phase
from noisewise.protocol.signed import Signed, check_keys, check_text
from noisewise.protocol.task import Member, Task
from noisewise.release import Release

VERSION = 1
_SCHEMA = """
CREATE TABLE invitations (hash TEXT PRIMARY KEY, name TEXT NOT NULL, expires TEXT NOT NULL, used_by TEXT);
CREATE TABLE holders (name TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, enrolled TEXT NOT NULL);
CREATE TABLE rounds (id TEXT PRIMARY KEY, task TEXT NOT NULL, phase TEXT NOT NULL, reason TEXT NOT NULL,
                     opened TEXT NOT NULL, release TEXT);
"""


@dataclass(frozen=True)
class Record:
    """A round as the notebook has it. A draft is a task that perhaps not every node has got yet."""

    task: Task
    phase: Phase
    reason: str
    opened: str


class Notebook:
    """The file; every call opens it anew."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise RoundError(f"{path}: there is no coordinator here; 'noisewise round init' makes one.")
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "Notebook":
        if path.exists():
            raise OutputError(f"{path}: there is a coordinator already; choose another folder.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        except (OSError, sqlite3.Error) as error:
            raise OutputError(f"{path}: can't be made ({error}); choose another folder.") from None
        return cls(path)

    def invite(self, name: str, expires: datetime) -> str:
        """A token for one enrolment under this name; only its hash is kept."""
        check_text(name, "A holder's name")
        token = secrets.token_urlsafe(24)
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM holders WHERE name = ?", (name,)).fetchone():
                raise RoundError(f"{name!r} is enrolled already; a name has one key. Choose another name.")
            values = (_hash(token), name, expires.astimezone(UTC).isoformat())
            connection.execute("INSERT INTO invitations VALUES (?, ?, ?, NULL)", values)
        return token

    def enrol(self, signed: Signed, now: datetime) -> bool:
        """Register the signer's key under its name; whether it is new. The same again is fine."""
        check_keys(signed.body, {"name": str, "token": str}, "enrolment")
        name, key = check_text(signed.body["name"], "A holder's name"), signed.signer
        check_text(signed.body["token"], "A token")
        with self._writing() as connection:
            row = connection.execute(
                "SELECT name, expires, used_by FROM invitations WHERE hash = ?", (_hash(signed.body["token"]),)
            ).fetchone()
            if row is None:
                raise RefusedError("The token is not known; ask the coordinator for a new invitation.", 403)
            invited, expires, used_by = row
            if used_by == key and invited == name:
                return False
            if used_by is not None:
                raise RefusedError(
                    "The token was used already, by another key. If that was not you, tell the coordinator at once.",
                    403,
                )
            if now >= datetime.fromisoformat(expires):
                raise RefusedError(f"The token expired on {expires[:10]}; ask the coordinator for a new one.", 403)
            if invited != name:
                raise RefusedError(f"The token was issued for another name than {name!r}.", 403)
            if connection.execute("SELECT 1 FROM holders WHERE name = ? OR key = ?", (name, key)).fetchone():
                raise RefusedError(f"The name {name!r} or the key is enrolled already.", 409)
            connection.execute("INSERT INTO holders VALUES (?, ?, ?)", (name, key, now.isoformat(timespec="seconds")))
            connection.execute("UPDATE invitations SET used_by = ? WHERE hash = ?", (key, _hash(signed.body["token"])))
        return True

    def holders(self) -> tuple[Member, ...]:
        """Who is enrolled, in the order of their coming."""
        with self._reading() as connection:
            rows = connection.execute("SELECT name, key FROM holders ORDER BY rowid").fetchall()
        return tuple(Member(name, key) for name, key in rows)

    def add(self, task: Task, now: datetime) -> None:
        """Keep a draft before any node hears of it."""
        with self._writing() as connection:
            text = json.dumps(task.signed.to_dict())
            values = (task.id, text, str(Phase.DRAFT), "", now.isoformat(timespec="seconds"))
            connection.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, NULL)", values)

    def move(self, round: str, phase: Phase, reason: str = "") -> None:
        """Write down a new phase; what has ended stays ended."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE rounds SET phase = ?, reason = ? WHERE id = ? AND phase NOT IN ('released', 'aborted')",
                (str(phase), reason, round),
            )

    def publish(self, round: str, release: Release) -> Release:
        """Put the pooled release on the board; if there is one already, it is the one that counts."""
        text = json.dumps(release.to_dict())
        with self._writing() as connection:
            connection.execute(
                "UPDATE rounds SET phase = 'released', reason = '', release = ? WHERE id = ? AND release IS NULL",
                (text, round),
            )
        return self.release(round) or release

    def release(self, round: str) -> Release | None:
        with self._reading() as connection:
            row = connection.execute("SELECT release FROM rounds WHERE id = ?", (round,)).fetchone()
        return Release.from_dict(json.loads(row[0]), "the board's release") if row and row[0] else None

    def rounds(self) -> Sequence[Record]:
        """All rounds, the newest first."""
        with self._reading() as connection:
            rows = connection.execute("SELECT task, phase, reason, opened FROM rounds ORDER BY rowid DESC").fetchall()
        return [_record(*row) for row in rows]

    def get(self, round: str) -> Record:
        with self._reading() as connection:
            row = connection.execute("SELECT task, phase, reason, opened FROM rounds WHERE id = ?", (round,)).fetchone()
        if row is None:
            raise RefusedError(f"There is no round {round[:64]!r}.", 404)
        return _record(*row)

    def find(self, beginning: str = "") -> Record:
        """The round whose name begins like this; with nothing given the newest."""
        found = [record for record in self.rounds() if record.task.id.startswith(beginning)]
        if not found:
            known = ", ".join(record.task.id[:16] for record in self.rounds()[:5]) or "none yet"
            raise RoundError(f"There is no round {beginning!r:.70}; the newest are: {known}.")
        if beginning and len(found) > 1:
            raise RoundError(f"{len(found)} rounds begin with {beginning!r:.70}; give more of the name.")
        return found[0]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30.0, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version != VERSION:
                    raise RoundError(f"{self.path}: this is not a coordinator's notebook of version {VERSION}.")
                yield connection
        except sqlite3.Error as error:
            raise OutputError(f"{self.path}: the notebook can't be used ({error}).") from None


def _record(task: str, phase: str, reason: str, opened: str) -> Record:
    return Record(_task(task), Phase(phase), reason, opened)


@lru_cache(maxsize=64)
def _task(text: str) -> Task:
    """Checking a task costs more than reading it, and it never changes."""
    return Task.of(Signed.from_dict(json.loads(text), "task"))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
