"""What every server of a secure sum does with a request, whatever it is about.

Errors become JSON, {"error": words, "kind": class}; nothing of the inside is told. A body is read up to its limit and
for a limited time, and all requests that wait for an answer share one budget of memory. Senders have a rate. Every
request is counted, timed and logged in one line of public facts.
"""

import asyncio
import errno
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noisewise.compute import logs
from noisewise.compute.limits import Buckets, Rate, network
from noisewise.compute.openapi import BYTES as BYTES
from noisewise.compute.openapi import JSON as JSON
from noisewise.errors import ForgeryError, NoisewiseError, OutputError, RefusedError
from noisewise.protocol.keys import is_key
from noisewise.protocol.signed import parse

LONGEST = 1000  # characters of an answer's words: some quote what they refuse


class Refusal(Exception):  # noqa: N818
    """An answer other than success, from anywhere below a route."""

    def __init__(self, status: int, words: str, *, kind: str = "RoundError", retry_after: int = 0) -> None:
        super().__init__(words)
        self.status, self.words, self.kind, self.retry_after = status, words, kind, retry_after


@dataclass(frozen=True)
class Limits:
    """``seconds`` is how long a body may take, ``memory`` how many bytes all unanswered ones may take."""

    address: Rate = field(default_factory=lambda: Rate(per_second=200.0, burst=2000))
    seconds: float = 30.0
    memory: int = 256 * 1024 * 1024


class Metrics:
    """What Prometheus asks for; a server adds its own to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "noisewise_requests", "Requests by route and answer.", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "noisewise_request_seconds", "Time from a request's head to its answer.", ["route"], registry=self.registry
        )
        self.reading = Gauge("noisewise_body_bytes", "Bytes of unfinished requests in memory.", registry=self.registry)


Handler = Callable[[Request], Awaitable[Response]]


class Web:
    """The shared part of a server: make one, give it routes, and serve its ``application``."""

    def __init__(self, limits: Limits | None = None, metrics: Metrics | None = None) -> None:
        self.limits = limits or Limits()
        self.metrics = metrics or Metrics()
        self._senders = Buckets(self.limits.address, time.monotonic)
        self._reading = 0

    def application(
        self,
        routes: Sequence[BaseRoute],
        *,
        description: Mapping[str, Any],
        healthy: Callable[[], Awaitable[bool]],
        lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
    ) -> ASGIApp:
        """An ASGI application of these routes and of /healthz, /metrics and /openapi.json."""

        async def healthz(request: Request) -> Response:
            fine = await healthy()
            return reply({"status": "ok" if fine else "the store does not answer"}, 200 if fine else 503)

        async def metrics(request: Request) -> Response:
            content = generate_latest(self.metrics.registry)
            return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

        described = reply(description).body

        async def openapi(request: Request) -> Response:
            return Response(described, media_type=JSON)

        shared = [Route("/healthz", healthz), Route("/metrics", metrics), Route("/openapi.json", openapi)]
        handlers: Mapping[Any, Any] = {
            Refusal: _refused,
            NoisewiseError: _refused,
            HTTPException: _http,
            ClientDisconnect: _gone,
            Exception: _failed,
        }
        app = Starlette(routes=[*shared, *routes], exception_handlers=handlers, lifespan=lifespan)
        app.router.redirect_slashes = False
        return self._gate(app)

    def _gate(self, app: ASGIApp) -> ASGIApp:
        """Around everything else: the sender's rate, one line of log, the numbers."""

        async def gate(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            begun = time.perf_counter()
            status = 0

            async def sent(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            sender = network(scope["client"][0]) if scope.get("client") else "local"
            scope["nw"] = facts = {"request": secrets.token_hex(6), "client": sender}
            try:
                if wait := self._senders.take(sender):
                    refusal = Refusal(429, f"Too many requests; try again in {wait} s.", retry_after=wait)
                    await answer(refusal, scope)(scope, receive, sent)
                else:
                    await app(scope, receive, sent)
            except Exception as error:
                # Starlette has answered 500 already, or the connection is gone; here it is only written down
                logs.error("a request failed", **facts, **logs.unexpected(error))
            finally:
                self._hold(scope, -scope.get(_HELD, 0))
                self._note(scope, facts, status, time.perf_counter() - begun)

        return gate

    def _note(self, scope: Scope, facts: dict[str, Any], status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.requests.labels(route, method, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        for name, value in scope.get("path_params", {}).items():
            if is_key(value):
                facts[name] = value[:16]
        write = logs.info if status < 400 else logs.warning
        write("request", **facts, method=method, route=route, status=status, ms=round(1000 * seconds, 2))

    async def read(self, request: Request, most: int, media: str) -> bytes:
        """The body: of this media type, at most ``most`` bytes, within the limits of time and memory."""
        given = request.headers.get("content-type", media).partition(";")[0].strip().lower()
        if given != media:
            raise Refusal(415, f"The body is of type {given!r:.60}; {media} is taken here.")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_large(most)
        parts = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in request.stream():
                    parts += part
                    self._hold(request.scope, len(part))
                    if len(parts) > most:
                        raise _too_large(most)
                    if self._reading > self.limits.memory:
                        raise Refusal(503, "Too many requests are being read; try again soon.", retry_after=1)
        except TimeoutError:
            raise Refusal(408, f"The body did not arrive within {self.limits.seconds:g} s; send it again.") from None
        return bytes(parts)

    async def read_json(self, request: Request, most: int, what: str) -> Any:
        """The body as JSON from outside; large ones are parsed beside the event loop."""
        content = await self.read(request, most, JSON)
        if len(content) < 64 * 1024:
            return parse(content, what)
        return await asyncio.to_thread(parse, content, what)

    def _hold(self, scope: Scope, size: int) -> None:
        """Count what a request has in memory, until it is answered."""
        scope[_HELD] = scope.get(_HELD, 0) + size
        self._reading += size
        self.metrics.reading.set(self._reading)


_HELD = "noisewise.held"
_METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"}


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"The body is larger than the {most:,} bytes that are taken here.")


def reply(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; ASCII only, so that no text whatever can break it."""
    content = json.dumps(body, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Response(content, status, headers=dict(headers or {}), media_type=JSON)


def answer(refusal: Refusal, scope: Scope) -> Response:
    scope.get("nw", {})["refused"] = refusal.words
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    return reply({"error": refusal.words[:LONGEST], "kind": refusal.kind}, refusal.status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, Refusal):
        return answer(error, request.scope)
    status, wait = 400, 0
    if isinstance(error, ForgeryError):
        status = 403
    elif isinstance(error, RefusedError):
        status = error.status
    elif isinstance(error, OutputError):
        status, wait = (507 if error.errno == errno.ENOSPC else 503), 5
    return answer(Refusal(status, str(error), kind=type(error).__name__, retry_after=wait), request.scope)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing here.", 405: "This method is not taken here."}.get(error.status_code, "Refused.")
    response = answer(Refusal(error.status_code, words), request.scope)
    response.headers.update(error.headers or {})
    return response


async def _gone(request: Request, error: Exception) -> Response:
    return answer(Refusal(400, "The sender hung up before the body was complete."), request.scope)


async def _failed(request: Request, error: Exception) -> Response:
    return reply({"error": "Something unexpected failed; the operator's log says where.", "kind": "Failure"}, 500)
