"""One thread that writes: what waits is committed together, and whoever asked hears of it after the commit.

A commit costs one wait for the disk however much is in it, so under load the writes of many requests share one. A
group that fails is undone and its parts are tried again one by one, so that each fails or succeeds for itself.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from noisewise.errors import OutputError

MOST_IN_GROUP = 256
MOST_WAITING = 4096

Item = TypeVar("Item")
Done = Future[Any] | asyncio.Future[Any]


class Writer(Generic[Item]):
    """``commit`` writes a group in one transaction and returns each item's result, or the exception meant for it.

    It raises if the whole group was undone.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Any]]) -> None:
        self._commit = commit
        self._queue: queue.SimpleQueue[tuple[Item, Done] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="noisewise-writer", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> "Future[Any]":
        """Write this soon. The future has the result once it is on disk."""
        done: Future[Any] = Future()
        self._put(item, done)
        return done

    def submit_async(self, item: Item) -> "asyncio.Future[Any]":
        """The same to await. Its loop is woken once for all that one commit wrote."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(item, done)
        return done

    def _put(self, item: Item, done: Done) -> None:
        with self._lock:
            if self._closed:
                raise OutputError("The store is closed; nothing more is written.")
            if self.waiting >= MOST_WAITING:
                raise OutputError(f"{MOST_WAITING} writes are waiting for the disk already; try again soon.")
            self._queue.put((item, done))

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

    def _next(self) -> tuple[list[tuple[Item, Done]], bool]:
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

    def _write(self, group: list[tuple[Item, Done]]) -> None:
        try:
            results = self._commit([item for item, _ in group])
        except Exception as error:
            if len(group) > 1:
                for part in group:
                    self._write([part])
                return
            results = [error]
        _tell((done, result) for (_, done), result in zip(group, results, strict=True))


def _tell(outcomes: Iterable[tuple[Done, Any]]) -> None:
    """Give every future its result or exception; one of an event loop has to be set by that loop."""
    awaited: dict[asyncio.AbstractEventLoop, list[tuple[Done, Any]]] = {}
    for done, result in outcomes:
        if isinstance(done, Future):
            _set(done, result)
        else:
            awaited.setdefault(done.get_loop(), []).append((done, result))
    for loop, pairs in awaited.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_all, pairs)


def _set_all(pairs: Iterable[tuple[Done, Any]]) -> None:
    for done, result in pairs:
        _set(done, result)


def _set(done: Done, result: Any) -> None:
    if done.done():  # whoever waited has gone
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
