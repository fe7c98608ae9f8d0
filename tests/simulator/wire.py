"""The network between the parties: it carries HTTP to applications in this process, and loses some of it.

One message moves at a time, so that a seed decides everything that happens. A late message is kept and arrives after
later ones; a replayed one is any that was ever sent; a cut-off one ends in the middle of its body.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

import httpx

from tests.simulator.disk import Disk
from tests.simulator.weather import CALM, FATES, Tally, Weather

# Disk steps of a node within which an armed crash strikes: an upload has about ten, the sum about twenty.
LIFE_LEFT = 25


class PowerCutError(BaseException):
    """The party that is running has lost its power; no code of it may catch this."""


@dataclass(frozen=True)
class Message:
    """A request as it is on the wire."""

    sender: str
    host: str
    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Host:
    """A server: an ASGI application on a disk, which can be started, and can lose its power at any step."""

    def __init__(self, name: str, disk: Disk, clock: Callable[[], datetime], build: Callable[[], Any]) -> None:
        self.name = name
        self.disk = disk
        self.clock = clock
        self._build = build
        self._app: Any = None
        self._loop = asyncio.new_event_loop()
        self._lifespan: Lifespan | None = None

    @property
    def up(self) -> bool:
        return self._app is not None and not self.disk.crashed

    @property
    def busy(self) -> bool:
        """It is in the middle of a request, for which it waits for another server."""
        return self._loop.is_running()

    def start(self) -> None:
        """A new life, from what the last one left on the disk."""
        self.end()
        if self.disk.crashed:
            self.disk.reborn()
        self._app = self._build()
        self._lifespan = Lifespan(self._app)
        self._loop.run_until_complete(self._lifespan.start())

    def end(self) -> None:
        """Let go of the old life's threads and files; after a crash what it still writes is seen by nobody."""
        if self._lifespan is not None:
            self._loop.run_until_complete(self._lifespan.end())
        self._app = self._lifespan = None

    def call(self, message: Message, keep: float = 1.0) -> Answer | None:
        """What the application answers; None if it lost its power first. ``keep`` is the part of the body it gets."""
        try:
            answer = self._loop.run_until_complete(_ask(self._app, message, keep))
        except PowerCutError:  # while it was talking to another server itself
            return None
        return None if self.disk.crashed else answer

    def close(self) -> None:
        self.end()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class Lifespan:
    """An application's beginning and end, as a server tells it of them."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._app({"type": "lifespan"}, self._orders.get, self._answers.put))
        await self._order("lifespan.startup")
        # what the application begins by itself, such as a sum that a crash cut short, is done before the next message
        others = asyncio.all_tasks() - {self._task, asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def end(self) -> None:
        await self._order("lifespan.shutdown")
        await self._task

    async def _order(self, kind: str) -> None:
        await self._orders.put({"type": kind})
        answer = await self._answers.get()
        assert answer["type"] == f"{kind}.complete", answer


async def _ask(app: Any, message: Message, keep: float) -> Answer:
    body = message.body[: int(len(message.body) * keep)]
    pending = [{"type": "http.request", "body": body, "more_body": keep < 1.0}]
    start: dict[str, Any] = {"status": 0, "headers": []}
    parts = bytearray()

    async def receive() -> dict[str, Any]:
        return pending.pop() if pending else {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            start.update(event)
        else:
            parts.extend(event.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": message.method,
        "scheme": "https",
        "path": message.path,
        "raw_path": message.path.encode(),
        "query_string": message.query,
        "root_path": "",
        "headers": list(message.headers),
        "client": (message.sender, 1),
        "server": (message.host, 443),
    }
    await app(scope, receive, send)
    return Answer(start["status"], tuple((bytes(k), bytes(v)) for k, v in start["headers"]), bytes(parts))


@dataclass
class Wire:
    """The network; ``saw`` is told of every answer that a host gave, whether or not it arrives."""

    chance: Random
    tally: Tally
    saw: Callable[[Host, Message, Answer], None]
    weather: Weather = CALM
    hosts: dict[str, Host] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    late: list[Message] = field(default_factory=list)

    def transport(self, sender: str, disk: Disk | None = None) -> httpx.BaseTransport:
        return _Transport(self, sender, disk)

    def carry(self, message: Message) -> Answer:
        """Send a message on its way, into whatever fate it has."""
        self.sent.append(message)
        self.tally["messages"] += 1
        self._others()
        match self._fate():
            case "lost_request":
                raise httpx.ConnectError("the request was lost")
            case "late":
                self.late.append(message)
                raise httpx.ReadTimeout("the request is late")
            case "cut_off":
                self._deliver(message, keep=self.chance.random())
                raise httpx.WriteError("the connection broke")
            case "lost_response":
                self._deliver(message)
                raise httpx.ReadTimeout("the response was lost")
            case "duplicated":
                first, second = self._deliver(message), self._deliver(message)
                return self._arrived(first if self.chance.random() < 0.5 else second)
            case _:
                return self._arrived(self._deliver(message))

    def settle(self) -> None:
        """Everything that was late arrives now, in any order."""
        self.chance.shuffle(self.late)
        while self.late:
            self._deliver(self.late.pop())

    def _others(self) -> None:
        """What else may arrive before the message that is on its way."""
        if self.late and self.chance.random() < 0.2:
            self._deliver(self.late.pop(self.chance.randrange(len(self.late))))
        if self._strikes("replayed"):
            self._deliver(self.chance.choice(self.sent))

    def _fate(self) -> str:
        for fate in FATES:
            if self._strikes(fate):
                return fate
        return ""

    def _strikes(self, fault: str) -> bool:
        struck = self.chance.random() < float(getattr(self.weather, fault))
        if struck:
            self.tally.strike(fault)
        return struck

    def _deliver(self, message: Message, keep: float = 1.0) -> Answer | None:
        host = self.hosts[message.host]
        if not host.up or host.busy:
            return None
        dies = self.chance.random() < self.weather.node_killed
        if dies:
            host.disk.crash_after(self.chance.randint(1, LIFE_LEFT))
        answer = host.call(message, keep)
        what = f"{message.sender} {message.method} {host.name}{message.path[:60]}"
        self.tally.tell(f"  {what}: {answer.status if answer else 'dead'}")
        if answer is not None:
            self.saw(host, message, answer)
        if dies:
            host.disk.crash()  # if it outlived the request's steps, the power fails as the answer is on its way
            self.tally.strike("node_killed", host.name)
        return None if dies else answer

    @staticmethod
    def _arrived(answer: Answer | None) -> Answer:
        if answer is None:
            raise httpx.RemoteProtocolError("the server went away")
        return answer


class _Transport(httpx.BaseTransport):
    """One party's way onto the network; every message is a step at which its own power may fail."""

    def __init__(self, wire: Wire, sender: str, disk: Disk | None) -> None:
        self._wire, self._sender, self._disk = wire, sender, disk

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._step()
        message = Message(
            sender=self._sender,
            host=request.url.host,
            method=request.method,
            path=request.url.path,
            query=request.url.query,
            headers=tuple((name.lower(), value) for name, value in request.headers.raw),
            body=request.read(),
        )
        answer = self._wire.carry(message)
        self._step()
        return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)

    def _step(self) -> None:
        if self._disk is not None:
            self._disk.step()
            if self._disk.crashed:
                raise PowerCutError
