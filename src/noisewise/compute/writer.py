"""One thread that writes: what waits is committed together, and whoever asked hears of it after the commit.

A commit costs one wait for the disk however much is in it, so under load the writes of many requests share one. A
group that fails is undone and its parts are tried again one by one, so that each fails or succeeds for itself.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from noisewise.errors import OutputError

MOST_IN_GROUP = 256
MOST_WAITING = 4096

Item = TypeVar("Item")


class Writer(Generic[Item]):
    """``commit`` writes a group in one transaction and returns each item's result, or the exception meant for it.

    It raises if the whole group was undone.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Any]]) -> None:
        self._commit = commit
        self._queue: queue.SimpleQueue[tuple[Item, Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="noisewise-writer", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> "Future[Any]":
        """Write this soon. The future has the result once it is on disk."""
        done: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise OutputError("The store is closed; nothing more is written.")
            if self.waiting >= MOST_WAITING:
                raise OutputError(f"{MOST_WAITING} writes are waiting for the disk already; try again soon.")
            self._queue.put((item, done))
        return done

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Write what was submitted, then stop."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            group, more = self._next()
            if group:
                self._write(group)

    def _next(self) -> tuple[list[tuple[Item, "Future[Any]"]], bool]:
        """All that waits, at least one; and whether more may come."""
        first = self._queue.get()
        if first is None:
            return [], False
        group = [first]
        while len(group) < MOST_IN_GROUP:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return group, False
            group.append(item)
        return group, True

    def _write(self, group: list[tuple[Item, "Future[Any]"]]) -> None:
        try:
            results = self._commit([item for item, _ in group])
        except Exception as error:
            if len(group) == 1:
                group[0][1].set_exception(error)
                return
            for part in group:
                self._write([part])
            return
        for (_, done), result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)
