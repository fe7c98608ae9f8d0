"""The other end of a connection: one party's server as its clients see it, over HTTPS, outbound only.

Every message of a round may be sent again, so what got lost on the way is repeated here, a bounded number of times
with growing pauses. An answer that says no (4xx) is not repeated: it becomes a RefusedError with the server's words.
Answers are untrusted: their size is bounded, and redirects are not followed.
"""

import ipaddress
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from noisewise.errors import RefusedError, RoundError, UnreachableError
from noisewise.protocol.signed import canonical, parse

if TYPE_CHECKING:
    import httpx

# The largest answer that is read: a manifest of a million holders is about 140 MB.
LARGEST_ANSWER = 256 << 20
LONGEST_PAUSE = 20.0
# Parties that are talked to at the same time.
AT_ONCE = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Network:
    """How a party reaches the others; the defaults are for real use.

    ``allow_http`` permits unencrypted addresses beyond this machine. ``authority`` is a file of certificates to trust
    instead of the system's. ``transport`` carries requests some other way than the network, for parties in one process.
    """

    allow_http: bool = False
    authority: Path | None = None
    transport: "httpx.BaseTransport | None" = None
    attempts: int = 5
    timeout: float = 30.0
    pause: Callable[[float], None] = time.sleep

    def remote(self, url: str, name: str) -> "Remote":
        return Remote(check_url(url, name, self.allow_http), name, self)


def check_url(url: str, name: str, allow_http: bool = False) -> str:
    """The address without a final slash; refused unless it is https, or leads to this very machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise RoundError(f"The address {url!r:.300} of {name} is not one such as https://node.example.org.")
    if parts.scheme == "http" and not allow_http and not _is_this_machine(host):
        raise RoundError(
            f"The address {url} of {name} is not encrypted: use https://. Where something else encrypts the way to it, "
            "--allow-http says so."
        )
    return url.rstrip("/")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Remote:
    """One server. ``name`` is what errors call it, such as "node 'north'"."""

    def __init__(self, url: str, name: str, network: Network) -> None:
        import httpx

        self.url = url
        self.name = name
        self._network = network
        local = _is_this_machine(urlsplit(url).hostname or "")
        self._client = httpx.Client(
            transport=network.transport,
            timeout=network.timeout,
            verify=_certificates(network.authority),
            trust_env=not local,  # a proxy of the house is for the way out, not for this machine
        )

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """The JSON answer."""
        return parse(self._send("GET", path)[1], f"The answer of {self.name}")

    def send(self, method: str, path: str, body: Any) -> Any:
        """Send JSON; the JSON answer."""
        content = canonical(body)
        return parse(self._send(method, path, content, "application/json")[1], f"The answer of {self.name}")

    def put_bytes(self, path: str, content: bytes) -> int:
        """Send bytes; the status: 201 new, 200 known already."""
        return self._send("PUT", path, content, "application/octet-stream")[0]

    def _send(self, method: str, path: str, content: bytes | None = None, kind: str = "") -> tuple[int, bytes]:
        import httpx

        problem = ""
        for attempt in range(self._network.attempts):
            if attempt:
                # full jitter, so that many clients that lost one server do not come back at the same moment
                self._network.pause(min(LONGEST_PAUSE, 0.25 * 2**attempt) * (0.5 + random.random() / 2))
            try:
                status, answer = self._once(method, path, content, {"Content-Type": kind} if kind else {})
            except (httpx.TransportError, httpx.StreamError) as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if 200 <= status < 300:
                return status, answer
            words = _words(answer) or f"HTTP status {status}"
            if status < 500 and status != 429:
                raise RefusedError(f"{self.name} refused: {words}", status)
            problem = words
        raise UnreachableError(
            f"{self.name} at {self.url} can't be reached or fails ({problem}); tried {self._network.attempts} times. "
            "Run the command again when it is back: nothing is done twice."
        )

    def _once(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        with self._client.stream(method, self.url + path, content=content, headers=dict(headers)) as response:
            answer = bytearray()
            for chunk in response.iter_bytes():
                answer += chunk
                if len(answer) > LARGEST_ANSWER:
                    raise RoundError(f"The answer of {self.name} is larger than {LARGEST_ANSWER >> 20} MB; not read.")
            return response.status_code, bytes(answer)


def _certificates(authority: Path | None) -> ssl.SSLContext | bool:
    if authority is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError):
        raise RoundError(f"{authority}: there are no certificates here that could be read; give a PEM file.") from None


def _words(answer: bytes) -> str:
    """The server's own words, cut to a length that a person reads, in printable characters."""
    try:
        body = parse(answer, "answer")
    except RoundError:
        return ""
    words = body.get("error") if isinstance(body, dict) else None
    return "".join(c if c.isprintable() else " " for c in words)[:1000] if isinstance(words, str) else ""


def each(items: Sequence[Item], action: Callable[[Item], Result]) -> list[Result | RoundError]:
    """The action on every item, several at a time; a RoundError is a result like others, so that one does not hide."""

    def attempt(item: Item) -> Result | RoundError:
        try:
            return action(item)
        except RoundError as error:
            return error

    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(items))), thread_name_prefix="noisewise-remote") as pool:
        return list(pool.map(attempt, items))
