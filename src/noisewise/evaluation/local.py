"""All parties of a secure sum in one process: a coordinator, its nodes and any number of holders.

They are the same code as in separate organisations, down to the requests: keys, folders, databases, signatures and
sealed envelopes are real. Only the network is missing: a switchboard hands each request to the server in this process
that has its address. For tests, simulations and the demonstration.
"""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import httpx
from starlette.types import ASGIApp, Message

from noisewise.compute.board import Board
from noisewise.compute.coordinator import Coordinator
from noisewise.compute.folder import Folder
from noisewise.compute.limits import Rate
from noisewise.compute.node import Node
from noisewise.compute.node_http import application
from noisewise.compute.web import Limits
from noisewise.holder.share import Participant
from noisewise.protocol.remote import Network
from noisewise.protocol.task import Task
from noisewise.study import Study

BOARD = "board"
# every request in this process comes from one address
UNLIMITED = Limits(address=Rate(per_second=0.0, burst=1))


class Switchboard(httpx.BaseTransport):
    """Requests to ASGI applications in this process, by host name; an unplugged host can't be reached."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="noisewise-switchboard", daemon=True)
        self._thread.start()
        self._transports: dict[str, httpx.ASGITransport] = {}
        self._lives: list[tuple[asyncio.Queue[Message], Future[None]]] = []
        self._unplugged: set[str] = set()

    def connect(self, host: str, app: ASGIApp) -> None:
        self._transports[host] = httpx.ASGITransport(app, raise_app_exceptions=False)
        started = threading.Event()
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        inbox.put_nowait({"type": "lifespan.startup"})

        async def told(message: Any) -> None:
            started.set()

        life = app({"type": "lifespan", "asgi": {"version": "3.0"}}, inbox.get, told)
        self._lives.append((inbox, self._run(life)))
        started.wait(30.0)

    def unplug(self, host: str) -> None:
        self._unplugged.add(host)

    def plug(self, host: str) -> None:
        self._unplugged.discard(host)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host in self._unplugged or host not in self._transports:
            raise httpx.ConnectError(f"nobody listens at {host}")
        # the caller's request streams its body in its own thread's way; this one is whole
        whole = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        response: httpx.Response = self._run(self._answer(self._transports[host], whole)).result()
        return response

    @staticmethod
    async def _answer(transport: httpx.ASGITransport, request: httpx.Request) -> httpx.Response:
        response = await transport.handle_async_request(request)
        content = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=content)

    def _run(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def shut(self) -> None:
        """End every application and the thread; not ``close``, which each client calls for itself."""
        for inbox, life in self._lives:
            self._loop.call_soon_threadsafe(inbox.put_nowait, {"type": "lifespan.shutdown"})
            with suppress(Exception):
                life.result(30.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)
        self._loop.close()


class Local:
    """A coordinator and its nodes, ready for holders. ``folder`` has one for each party; it can be opened again."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("north", "south", "west")) -> None:
        self.folder = folder
        self.switchboard = Switchboard()
        self.network = Network(transport=self.switchboard, attempts=2, pause=lambda seconds: None)
        home = folder / "coordinator"
        self.coordinator = (Coordinator if home.exists() else Coordinator.create)(home, self.network)
        self.switchboard.connect(BOARD, Board(self.coordinator, limits=UNLIMITED).application())
        self.nodes = {name: self._start(name) for name in nodes}

    def _start(self, name: str) -> Node:
        home, keys = self.folder / f"node-{name}", [self.coordinator.identity.key]
        if not home.exists():
            Folder.create(home, name=name, url=f"https://{name}", coordinators=keys)
        made = Folder.load(home)
        node = Node(made, made.store())
        self.switchboard.connect(name, application(node, UNLIMITED))
        return node

    def trust(self) -> str:
        """The trust.toml of a holder that asked every operator for its key."""
        pinned = "\n".join(f'{name} = "{node.key}"' for name, node in self.nodes.items())
        return f'board = "https://{BOARD}"\ncoordinator = "{self.coordinator.identity.key}"\n\n[nodes]\n{pinned}\n'

    def enrol(self, name: str) -> Participant:
        """Invite a holder, and let it enrol."""
        token = self.coordinator.invite(name)
        folder = self.home(name)
        return Participant.enrol(folder, trust=self.trust(), name=name, token=token, network=self.network)

    def home(self, name: str) -> Path:
        """The folder of a holder."""
        return self.folder / f"holder-{name}"

    def open(self, study: Study, *, may_drop: int = 0, may_collude: int = 0, hours: float = 1.0) -> Task:
        """Open a round with all nodes and everyone who is enrolled."""
        return self.coordinator.open(
            study,
            [f"https://{name}" for name in self.nodes],
            may_drop=may_drop,
            may_collude=may_collude,
            deadline=datetime.now(UTC) + timedelta(hours=hours),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.switchboard.shut()
