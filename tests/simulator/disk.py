"""Disks that can be full, and that show what a crash leaves behind.

A crash needs nothing of the code that crashes. Every step that a party takes on its disk (a file opened or linked, an
SQL statement begun) is seen here; at the step where the power is to fail, the folder is copied as it is at that moment,
with half-written transactions and journals, and the party's *next* life begins from the copy. Whatever the old life
still does happens to a folder that nobody looks at, and the network drops what it sends.

Full disks are SQLite's own: ``max_page_count`` makes it fail with "database or disk is full" wherever it needs a page.
"""

import errno
import os
import shutil
import sqlite3
import sqlite3.dbapi2
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

# Small pages, so that a full disk is noticed by nearly every write.
PAGE_BYTES = 512
_ENDLESS = 1 << 30
_FILE_EVENTS = {"open", "os.link", "os.rename", "os.remove", "os.mkdir"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disk:
    """A party's folder in its present life."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._life = 0
        self._countdown: int | None = None
        self._lock = threading.Lock()
        self._connections: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()
        self.full = False
        self.crashed = False
        self.folder.mkdir(parents=True)
        _disks[str(self.folder)] = self

    @property
    def folder(self) -> Path:
        return self._base / f"life-{self._life}"

    def crash_after(self, steps: int) -> None:
        """Let the power fail ``steps`` steps from now."""
        self._countdown = steps

    def disarm(self) -> None:
        self._countdown = None

    def step(self) -> None:
        """Something is about to happen that a crash may come before."""
        with self._lock:
            if self._countdown is None or self.crashed:
                return
            self._countdown -= 1
            if self._countdown <= 0:
                self._crash()

    def crash(self) -> None:
        """Let the power fail now."""
        with self._lock:
            if not self.crashed:
                self._crash()

    def _crash(self) -> None:
        # the index of the write-ahead log is shared memory: it does not outlive the process
        _disks.pop(str(self.folder), None)
        copy = self._base / f"life-{self._life + 1}"
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        self._countdown = None
        self.crashed = True

    def reborn(self) -> Path:
        """The folder for the next life, after a crash."""
        assert self.crashed
        old, self._life = self.folder, self._life + 1
        self._connections = weakref.WeakSet()
        self.crashed = False
        shutil.rmtree(old, ignore_errors=True)
        _disks[str(self.folder)] = self
        return self.folder

    def fill(self, full: bool) -> None:
        self.full = full
        for connection in list(self._connections):
            self._set_room(connection)

    def remove(self) -> None:
        _disks.pop(str(self.folder), None)
        shutil.rmtree(self._base, ignore_errors=True)

    def connected(self, connection: sqlite3.Connection) -> None:
        """A database in the folder was opened."""
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._set_room(connection)
        self._connections.add(connection)
        connection.set_trace_callback(lambda statement: self.step())

    def _set_room(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute(f"PRAGMA max_page_count = {1 if self.full else _ENDLESS}")
        except sqlite3.ProgrammingError:
            return  # it is closed, or another thread's for its short life


_disks: dict[str, Disk] = {}
_watching = False


def _owner(path: object) -> Disk | None:
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    text = os.fsdecode(path)
    for folder, disk in _disks.items():
        if text.startswith(folder):
            return disk
    return None


def _hook(event: str, details: tuple[Any, ...]) -> None:
    if not _disks or event not in _FILE_EVENTS:
        return
    disk = _owner(details[0])
    if disk is None or disk.crashed:
        return
    disk.step()
    if event == "open" and disk.full and details[2] & _WRITES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


real_connect: Any = sqlite3.connect


class _Connection(sqlite3.Connection):
    """Unlike its parent, something that weak references can point at."""


def _connect(database: Any, *args: Any, **kwargs: Any) -> sqlite3.Connection:
    path = str(database).removeprefix("file:")
    disk = _owner(path)
    if disk is None:
        return cast(sqlite3.Connection, real_connect(database, *args, **kwargs))
    connection: sqlite3.Connection = real_connect(database, *args, factory=_Connection, **kwargs)
    if not disk.crashed:
        disk.connected(connection)
    return connection


@contextmanager
def watched() -> Iterator[None]:
    """See every step on every disk while this lasts."""
    global _watching
    if not _watching:
        sys.addaudithook(_hook)  # there is no way to take it back; without disks it does nothing
        _watching = True
    try:
        for module in (sqlite3, sqlite3.dbapi2):
            vars(module)["connect"] = _connect
        yield
    finally:
        for module in (sqlite3, sqlite3.dbapi2):
            vars(module)["connect"] = real_connect
        _disks.clear()
