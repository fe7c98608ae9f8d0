"""A node's routes: HTTP to the node's methods and back. What each answers is described in node_openapi.py."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from noisewise.compute import logs
from noisewise.compute.limits import Buckets
from noisewise.compute.node import Node, Seat
from noisewise.compute.node_openapi import DESCRIPTION
from noisewise.compute.store import Outcome
from noisewise.compute.web import BYTES, JSON, Limits, Refusal, Web, reply
from noisewise.errors import ForgeryError
from noisewise.protocol.keys import is_key
from noisewise.protocol.signed import parse

Result = TypeVar("Result")

SMALL = 16 * 1024
# Envelopes up to this size are opened on the event loop: it takes less time than to hand them to a thread.
QUICK = 256 * 1024

_ANSWERS = {
    Outcome.SAME: (200, ""),
    Outcome.NEW: (201, ""),
    Outcome.UNKNOWN: (404, "This round is not known here."),
    Outcome.DIFFERENT: (409, "Another envelope of this holder is stored; send the bytes of the outbox again."),
    Outcome.CLOSED: (410, "The round takes no envelopes any more."),
}


def application(node: Node, limits: Limits | None = None) -> ASGIApp:
    """The node as an ASGI application; the store is closed when it ends."""
    return NodeRoutes(node, limits or Limits(address=node.settings.address_rate)).application()


class NodeRoutes:
    def __init__(self, node: Node, limits: Limits) -> None:
        self._node = node
        self._web = Web(limits)
        self._holders = Buckets(node.settings.holder_rate, time.monotonic)
        self._heavy = asyncio.Semaphore(2)  # large documents: few at a time, so that memory and the core last
        registry = self._web.metrics.registry
        self._envelopes = Counter("noisewise_envelopes", "Sound envelopes.", ["outcome"], registry=registry)
        waiting = Gauge("noisewise_writes_waiting", "Writes that wait for the disk.", registry=registry)
        waiting.set_function(lambda: node.store.waiting)

    def application(self) -> ASGIApp:
        at = "/rounds/{round}"
        routes = [
            Route("/card", self._card),
            Route(at, self._at_round, methods=["GET", "PUT"]),
            Route(f"{at}/task", self._document("task")),
            Route(f"{at}/envelopes/{{holder}}", self._envelope, methods=["PUT"]),
            Route(f"{at}/freeze", self._word(self._node.freeze), methods=["PUT"]),
            Route(f"{at}/manifest", self._document("manifest")),
            Route(f"{at}/manifests", self._manifests, methods=["PUT"]),
            Route(f"{at}/sum", self._document("sum")),
            Route(f"{at}/abort", self._word(self._node.abort), methods=["PUT"]),
            Route(f"{at}/release", self._release, methods=["PUT"]),
        ]
        return self._web.application(routes, description=DESCRIPTION, healthy=self._healthy, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        going_on = asyncio.create_task(self._go_on())
        try:
            yield
        finally:
            going_on.cancel()
            await asyncio.to_thread(self._node.store.close)
            logs.info("stopped", words="every write is on disk")

    async def _go_on(self) -> None:
        """Sum the rounds that were agreed on when the node last stopped."""
        for round_id in await asyncio.to_thread(self._node.unfinished):
            try:
                await asyncio.to_thread(self._node.finish, round_id)
                logs.info("went on", round=round_id[:16])
            except Exception as error:
                logs.error("a sum failed", round=round_id[:16], **logs.unexpected(error))

    async def _healthy(self) -> bool:
        return await asyncio.to_thread(self._node.store.healthy)

    async def _card(self, request: Request) -> Response:
        return reply(await asyncio.to_thread(self._node.card))

    async def _at_round(self, request: Request) -> Response:
        return await (self._open if request.method == "PUT" else self._status)(request)

    async def _open(self, request: Request) -> Response:
        round_id = _round(request)
        new = await self._handle(request, self._node.settings.largest_task, self._node.open)
        return reply({"id": round_id}, 201 if new else 200)

    async def _status(self, request: Request) -> Response:
        return reply(await asyncio.to_thread(self._node.status, _round(request)))

    def _document(self, what: str) -> Callable[[Request], Any]:
        async def document(request: Request) -> Response:
            text = await asyncio.to_thread(self._node.text, _round(request), what)
            return Response(text, media_type=JSON)

        return document

    def _word(self, act: Callable[[str, Any], str | None]) -> Callable[[Request], Any]:
        """A short signed word of the coordinator."""

        async def word(request: Request) -> Response:
            round_id = _round(request)
            raw = await self._web.read_json(request, SMALL, "The document")
            text = await asyncio.to_thread(act, round_id, raw)
            return Response(text, media_type=JSON) if text else await self._status(request)

        return word

    async def _envelope(self, request: Request) -> Response:
        seat = await self._seat(_round(request))
        holder = request.path_params["holder"]
        if holder not in seat.task.keys:
            raise Refusal(403, "This key is not one of the round's holders.", kind=ForgeryError.__name__)
        content = await self._web.read(request, seat.largest, BYTES)
        if len(content) <= QUICK:
            deposit = self._node.examine(seat, holder, content)
        else:
            deposit = await asyncio.to_thread(self._node.examine, seat, holder, content)
        # counted once the signature holds: nobody can use up another holder's requests
        if wait := self._holders.take(holder):
            raise Refusal(429, f"Too many envelopes of this holder; try again in {wait} s.", retry_after=wait)
        outcome = await self._node.store.deposit(deposit)
        self._envelopes.labels(outcome.name.lower()).inc()
        if outcome is Outcome.CLOSED:
            await asyncio.to_thread(self._node.touch, seat.task.id)
        status, words = _ANSWERS[outcome]
        if words:
            raise Refusal(status, words)
        return reply({"digest": deposit.digest}, status)

    async def _manifests(self, request: Request) -> Response:
        seat = await self._seat(_round(request))
        task = seat.task
        # a holding takes 135 bytes, and the rest of a manifest less than 500
        most = len(task.nodes) * (512 + 140 * len(task.members)) + 1024
        return Response(await self._handle(request, most, self._node.agree), media_type=JSON)

    async def _release(self, request: Request) -> Response:
        seat = await self._seat(_round(request))
        task = seat.task
        # the task with long names, the holders, the sums, the values and scales
        most = (1 << 20) + len(task.members) * 1000 + len(task.nodes) * (4096 + 24 * task.length) + 100 * task.length
        await self._handle(request, most, self._node.publish)
        return await self._status(request)

    async def _handle(self, request: Request, most: int, act: Callable[[str, Any], Result]) -> Result:
        """Act on a large document; it is read first, so that a slow sender keeps nobody else waiting."""
        round_id = _round(request)
        content = await self._web.read(request, most, JSON)
        async with self._heavy:
            return await asyncio.to_thread(lambda: act(round_id, parse(content, "The document")))

    async def _seat(self, round_id: str) -> Seat:
        seat = self._node.known_seat(round_id)
        return await asyncio.to_thread(self._node.seat, round_id) if seat is None else seat


def _round(request: Request) -> str:
    round_id = request.path_params["round"]
    if not is_key(round_id):
        raise Refusal(404, "A round is named by 64 hexadecimal digits.")
    return str(round_id)
