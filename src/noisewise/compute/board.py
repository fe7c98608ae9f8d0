"""The board: the coordinator's server. Holders enrol here and see which rounds there are; anyone may read the rest.

It holds public records only. The relay passes sealed envelopes on to the nodes, for holders whose firewall allows one
address; it can't open them.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from noisewise.compute.board_openapi import describe
from noisewise.compute.coordinator import Coordinator, Standing
from noisewise.compute.notebook import Record
from noisewise.compute.web import BYTES, Limits, Refusal, Web, reply
from noisewise.errors import OutputError, UnreachableError
from noisewise.protocol.envelope import largest
from noisewise.protocol.keys import is_key
from noisewise.protocol.signed import Signed
from noisewise.protocol.task import Card

LARGEST_ENROLMENT = 4096
# Seconds for which the nodes' word on a round is passed on without asking them again.
FRESH = 3.0

Result = TypeVar("Result")


class Board:
    """The server's requests; ``relay`` is whether it passes envelopes on."""

    def __init__(self, coordinator: Coordinator, *, relay: bool = True, limits: Limits | None = None) -> None:
        self._coordinator = coordinator
        self._notebook = coordinator.notebook
        # the holder's client repeats what got lost; a relay that did so too would multiply it
        self._network = replace(coordinator.network, attempts=1)
        self._relay = relay
        self._web = Web(limits)
        self._standings: dict[str, tuple[float, Standing]] = {}

    def application(self) -> ASGIApp:
        routes = [
            Route("/enrolments", self._enrol, methods=["POST"]),
            Route("/rounds", self._rounds),
            Route("/rounds/{round}", self._round),
            Route("/rounds/{round}/task", self._task),
            Route("/rounds/{round}/release", self._release),
        ]
        if self._relay:
            routes += [
                Route("/relay/{node}/rounds/{round}", self._progress),
                Route("/relay/{node}/rounds/{round}/envelopes/{holder}", self._forward, methods=["PUT"]),
            ]
        return self._web.application(routes, description=describe(self._relay), healthy=self._healthy)

    async def _healthy(self) -> bool:
        try:
            await asyncio.to_thread(self._notebook.holders)
        except OutputError:
            return False
        return True

    async def _enrol(self, request: Request) -> Response:
        raw = await self._web.read_json(request, LARGEST_ENROLMENT, "The enrolment")
        signed = Signed.from_dict(raw, "enrolment")
        new = await _aside(lambda: self._coordinator.enrol(signed))
        return reply({"name": signed.body["name"], "key": signed.signer}, 201 if new else 200)

    async def _rounds(self, request: Request) -> Response:
        holder = request.query_params.get("holder")
        records = await _aside(self._notebook.rounds)
        shown = [record for record in records if holder is None or holder in record.task.keys]
        return reply({"rounds": [_brief(record) for record in shown]})

    async def _round(self, request: Request) -> Response:
        record = await self._record(request)
        standing = await _aside(lambda: self._standing(record))
        return reply({**_brief(record), **standing.to_dict()})

    async def _task(self, request: Request) -> Response:
        return reply((await self._record(request)).task.signed.to_dict())

    async def _release(self, request: Request) -> Response:
        record = await self._record(request)
        release = await _aside(lambda: self._notebook.release(record.task.id))
        if release is None:
            raise Refusal(404, f"The round is {record.phase}; there is no release yet.")
        return reply(release.to_dict())

    async def _progress(self, request: Request) -> Response:
        record, card = await self._node(request)

        def ask() -> Any:
            with self._network.remote(card.url, f"node {card.name!r}") as node:
                return node.get(f"/rounds/{record.task.id}")

        return reply(await _aside(ask))

    async def _forward(self, request: Request) -> Response:
        record, card = await self._node(request)
        holder = request.path_params["holder"]
        if holder not in record.task.keys:
            raise Refusal(403, "This key is not one of the round's holders.", kind="ForgeryError")
        content = await self._web.read(request, largest(record.task), BYTES)

        def send() -> int:
            with self._network.remote(card.url, f"node {card.name!r}") as node:
                return node.put_bytes(f"/rounds/{record.task.id}/envelopes/{holder}", content)

        return reply({"relayed": card.name}, await _aside(send))

    async def _record(self, request: Request) -> Record:
        round = request.path_params["round"]
        if not is_key(round):
            raise Refusal(404, "A round is named by 64 hexadecimal digits.")
        return await _aside(lambda: self._notebook.get(round))

    async def _node(self, request: Request) -> tuple[Record, Card]:
        record = await self._record(request)
        for card in record.task.nodes:
            if card.key == request.path_params["node"]:
                return record, card
        raise Refusal(404, "This key is not one of the round's nodes.")

    def _standing(self, record: Record) -> Standing:
        """The nodes' word, asked again at most every few seconds, however many people look."""
        asked, standing = self._standings.get(record.task.id, (0.0, None))
        if standing is None or time.monotonic() - asked > FRESH:
            standing = self._coordinator.standing(record.task.id)
            if len(self._standings) > 1000:
                self._standings.clear()
            self._standings[record.task.id] = (time.monotonic(), standing)
        return standing


async def _aside(action: Callable[[], Result]) -> Result:
    """Run what waits for a disk or for another server beside the event loop."""
    try:
        return await asyncio.to_thread(action)
    except UnreachableError as error:
        raise Refusal(502, str(error), kind="UnreachableError", retry_after=1) from None


def _brief(record: Record) -> dict[str, Any]:
    task = record.task
    return {
        "id": task.id,
        "study": task.study.name,
        "study_digest": task.study.digest,
        "phase": str(record.phase),
        "reason": record.reason,
        "opened": record.opened,
        "deadline": task.deadline.isoformat(),
        "holders": len(task.members),
        "needed": task.crowd.least,
    }
