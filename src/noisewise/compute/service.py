"""A server as a process: its socket, TLS, the proxy before it, patience with slow senders, and a clean end.

SIGTERM and SIGINT stop taking connections, let the running requests end, then the application closes its store; the
exit code is 0. The first line of the log says where the server listens, so port 0 is a port that someone can find.
"""

import asyncio
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from noisewise.compute import logs
from noisewise.errors import RoundError

# Seconds that a connection may be open with no request on its way, and that running requests have on shutdown.
PATIENCE = 30
LAST_REQUESTS = 30
MOST_CONNECTIONS = 1000


@dataclass(frozen=True)
class Listening:
    """Where and how; ``proxy`` is the address of the one proxy whose X-Forwarded-For is believed."""

    host: str = "127.0.0.1"
    port: int = 8470
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    proxy: str = ""


class _Impatient(H11Protocol):
    """Closes connections that send no whole head of a request in time; the server itself waits for one for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(PATIENCE, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            logs.info("listening", host=host, port=port, tls=self.config.is_ssl)


def serve(make: Callable[[], ASGIApp], where: Listening) -> None:
    """Serve what ``make`` makes until SIGTERM or SIGINT; the process is this server's alone.

    The socket and TLS are checked first: what is refused there has opened no store yet.
    """
    logs.start()
    tls: dict[str, Any] = {}
    if bool(where.tls_certificate) != bool(where.tls_key):
        raise RoundError("TLS needs both a certificate and its key; give both, or neither behind a proxy with TLS.")
    if where.tls_certificate and where.tls_key:
        _check_tls(where.tls_certificate, where.tls_key)
        tls = {"ssl_certfile": str(where.tls_certificate), "ssl_keyfile": str(where.tls_key)}
    listener = _bind(where)
    config = uvicorn.Config(
        make(),
        http=_Impatient,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(where.proxy),
        forwarded_allow_ips=where.proxy or None,
        limit_concurrency=MOST_CONNECTIONS,
        backlog=MOST_CONNECTIONS,
        timeout_graceful_shutdown=LAST_REQUESTS,
        **tls,
    )
    # the server ends by raising the signal once more, which here means: done
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    _Server(config).run(sockets=[listener])


def _bind(where: Listening) -> socket.socket:
    try:
        family = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((where.host, where.port), family=family, backlog=MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        words = error.strerror if isinstance(error, OSError) else "a port is at most 65535"
        raise RoundError(f"{where.host}:{where.port} can't be listened on ({words}); choose another.") from None
    listener.set_inheritable(True)
    return listener


def _check_tls(certificate: Path, key: Path) -> None:
    for file in (certificate, key):
        if not file.is_file():
            raise RoundError(f"{file}: there is no such file; TLS needs a certificate and its key in PEM form.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise RoundError(f"{certificate}, {key}: these are no certificate and its key ({error.reason}).") from None
