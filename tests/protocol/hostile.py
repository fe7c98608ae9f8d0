"""Malformed and hostile messages, by the hundred thousand, against the real node and board.

    python tests/protocol/hostile.py --messages 100000 --seed 1

Sound messages of every kind are mutated: bits flipped, parts cut, doubled or swapped with other messages, values in
JSON replaced by nasty ones, and documents signed again by their rightful signer after that, so that what lies behind
the signature is reached too. Requests get wrong methods, paths, types and lengths. The answer has to be 2xx or 4xx,
soon, and memory must not grow; and after all of it an honest round among the noise ends with the right sum.
"""

import argparse
import asyncio
import gc
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.column import Column
from noisewise.compute.board import Board
from noisewise.compute.node_http import application
from noisewise.evaluation.local import UNLIMITED, Local
from noisewise.protocol.envelope import seal
from noisewise.protocol.keys import Identity
from noisewise.protocol.pooled import sign_manifest
from noisewise.protocol.shares import split
from noisewise.protocol.signed import Signed, digest
from noisewise.protocol.task import Task
from noisewise.release import Release
from noisewise.study import Study

JSON, OCTETS = "application/json", "application/octet-stream"
PATIENCE = 10.0  # seconds after which an answer counts as a hang
HOLDERS = 4

NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 2**64, 10**400, 1e308, -0.0, "", "\x00", "a" * 5000, "\ud800", "0" * 64, "é" * 64, [], {}, [[]],
    {"a": {"b": []}}, "../../etc/passwd", "' OR 1=1 --", "2027-01-01T00:00:00+00:00", "0001-01-01T00:00:00+23:59",
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """A request; ``signer`` can sign its document again."""

    target: str
    method: str
    path: str
    media: str
    body: bytes
    signer: Identity | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass
class Tally:
    """What came back."""

    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    megabytes_grown: float = 0.0


class Site:
    """A coordinator, two nodes and four enrolled holders, with a round that must survive and one that need not."""

    def __init__(self, folder: Path) -> None:
        self.local = Local(folder, nodes=("north", "south"))
        self.people = [self.local.enrol(f"holder {k}") for k in range(HOLDERS)]
        self.kept, self.spare = (self.local.open(self.study(name), may_drop=1) for name in ("kept", "spare"))
        self.apps = {name: application(node, UNLIMITED) for name, node in self.local.nodes.items()}
        self.apps["board"] = Board(self.local.coordinator, limits=UNLIMITED).application()
        self.values = [np.arange(self.kept.length, dtype=np.int64) + 10**k for k in range(HOLDERS)]

    @staticmethod
    def study(name: str) -> Study:
        return Study([Column("x", -1, 1)], Column("y", -1, 1), epsilon=1.0, delta=1e-6, name=name)

    def envelopes(self, task: Task, holder: int) -> tuple[bytes, ...]:
        return seal(task, self.people[holder].identity, split(self.values[holder], 2))

    def corpus(self, honest: Sequence[tuple[bytes, ...]], release: dict[str, Any]) -> list[Message]:
        """One sound message of every kind for the node 'north', and for the board."""
        coordinator, node = self.local.coordinator.identity, self.local.nodes["north"]
        at = f"/rounds/{self.spare.id}"
        out = [
            self._document(f"/rounds/{self.kept.id}", self.kept.signed, coordinator),
            self._document(f"{at}/freeze", Signed.by(coordinator, "freeze", {"task": self.spare.id}), coordinator),
            self._document(
                f"{at}/abort", Signed.by(coordinator, "abort", {"task": self.spare.id, "reason": "x"}), coordinator
            ),
            Message("north", "PUT", f"{at}/release", JSON, json.dumps(release).encode()),
        ]
        held = frozenset((person.identity.key, "0" * 64) for person in self.people)
        manifests = [sign_manifest(own.folder.identity, self.spare, held) for own in self.local.nodes.values()]
        body = json.dumps({"manifests": [signed.to_dict() for signed in manifests]}).encode()
        out.append(Message("north", "PUT", f"{at}/manifests", JSON, body))
        for task in (self.kept, self.spare):
            for holder, person in enumerate(self.people):
                path = f"/rounds/{task.id}/envelopes/{person.identity.key}"
                own = honest[holder] if task is self.kept and holder < len(honest) else self.envelopes(task, holder)
                out.append(Message("north", "PUT", path, OCTETS, own[0]))
        reads = ("", "/task", "/manifest", "/sum")
        out += [Message("north", "GET", f"/rounds/{self.kept.id}{what}", JSON, b"") for what in reads]
        stranger = Identity.generate()
        enrolment = Signed.by(stranger, "enrolment", {"name": "x", "token": "y"})
        out.append(replace(self._document("/enrolments", enrolment, stranger), target="board", method="POST"))
        out += [Message("board", "GET", path, JSON, b"") for path in ("/rounds", f"/rounds/{self.kept.id}/task")]
        relay = f"/relay/{node.key}/rounds/{self.kept.id}/envelopes/{self.people[3].identity.key}"
        out.append(Message("board", "PUT", relay, OCTETS, self.envelopes(self.kept, 3)[1]))
        return out

    def _document(self, path: str, signed: Signed, signer: Identity) -> Message:
        return Message("north", "PUT", path, JSON, json.dumps(signed.to_dict()).encode(), signer)


class Mutator:
    """Endless hostile messages made of sound ones; one seed, one sequence."""

    def __init__(self, corpus: Sequence[Message], seed: int) -> None:
        self._corpus = corpus
        self._random = random.Random(seed)

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self._random.choice(self._corpus)
            for _ in range(self._random.choice((1, 1, 1, 2, 4))):
                message = self._random.choice(self._ways(message))(message)
            yield message

    def _ways(self, message: Message) -> list[Callable[[Message], Message]]:
        ways: list[Callable[[Message], Message]] = [self._request]
        if message.body:
            ways += [self._bytes, self._bytes]
        if message.media == JSON and message.body:
            ways += [self._json] * 4 + ([self._signed_again] * 4 if message.signer else [])
        return ways

    def _bytes(self, message: Message) -> Message:
        rng, body = self._random, bytearray(message.body)
        start = rng.randrange(len(body) + 1)
        stop = min(len(body), start + rng.choice((1, 2, 8, 32, 64, 1000)))
        match rng.randrange(7):
            case 0 if body:
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
            case 1:
                del body[start:stop]
            case 2:
                body[start:start] = body[start:stop]
            case 3:
                body[start:stop] = rng.randbytes(stop - start)
            case 4:
                body = body[:start]
            case 5:
                body += rng.randbytes(rng.choice((1, 100, 5000)))
            case _:
                body[start:stop] = rng.choice(self._corpus).body[start:stop]
        return replace(message, body=bytes(body))

    def _json(self, message: Message) -> Message:
        try:
            raw = json.loads(message.body)
        except (ValueError, RecursionError):
            return self._bytes(message)
        return replace(message, body=_dumped(self._changed(raw)))

    def _signed_again(self, message: Message) -> Message:
        """A changed body under a signature that holds; a task then names another round."""
        try:
            raw = json.loads(message.body)
            body = self._changed(raw["body"])
            signed = {"kind": raw["kind"], "body": body, **_signature(message.signer, raw["kind"], body)}
        except Exception:  # what can't be signed any more is sent as it is
            return self._bytes(message) if message.body else message
        path = message.path
        if raw["kind"] == "task" and self._random.random() < 0.8:
            path = f"/rounds/{digest(body)}"
        return replace(message, path=path, body=_dumped(signed))

    def _changed(self, raw: Any) -> Any:
        """One place somewhere in the document is nasty, gone, doubled or swapped."""
        rng = self._random
        if isinstance(raw, dict) and raw and rng.random() < 0.9:
            key = rng.choice(list(raw))
            if rng.random() < 0.1:
                return {k: v for k, v in raw.items() if k != key}
            if rng.random() < 0.05:
                return {**raw, "extra": rng.choice(NASTY)}
            return {**raw, key: self._changed(raw[key])}
        if isinstance(raw, list) and raw and rng.random() < 0.9:
            at = rng.randrange(len(raw))
            if rng.random() < 0.2:
                return [*raw[:at], *raw[at + 1 :]]
            if rng.random() < 0.2:
                return [*raw, raw[at]]
            return [*raw[:at], self._changed(raw[at]), *raw[at + 1 :]]
        return rng.choice(NASTY)

    def _request(self, message: Message) -> Message:
        rng = self._random
        other = rng.choice(self._corpus)
        match rng.randrange(7):
            case 0:
                return replace(message, method=rng.choice(("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "BREW")))
            case 1:
                return replace(message, path=other.path)
            case 2:
                at = rng.randrange(len(message.path) + 1)
                odd = rng.choice(("/", "//", "..", "%00", "\x00", "é", "?x=1", "A", "0", "%2e%2e/", "a" * 3000))
                return replace(message, path=f"{message.path[:at]}{odd}{message.path[at + rng.randrange(3) :]}")
            case 3:
                media = rng.choice(("", "text/plain", "application/xml", OCTETS, JSON, "a" * 300, "application/json;"))
                return replace(message, media=media)
            case 4:
                length = rng.choice((b"-1", b"0", b"99999999999999999999", b"abc", b"1"))
                return replace(message, headers=((b"content-length", length),))
            case 5:
                return replace(message, body=rng.choice((b"", b"[" * 20_000, b"\xff" * 100, b"0" * 20_000, b'"')))
            case _:
                return replace(message, target=rng.choice(("north", "board")), body=other.body)


def _dumped(raw: Any) -> bytes:
    return json.dumps(raw).encode("utf-8", "surrogatepass")


def _signature(signer: Identity | None, kind: str, body: Any) -> dict[str, str]:
    assert signer is not None
    signed = Signed.by(signer, kind, body)  # type: ignore[arg-type]
    return {"signer": signed.signer, "signature": signed.signature}


async def send(app: Any, message: Message) -> int:
    """One request, as a server would hand it on; the status of the answer, 0 if there was none."""
    status = 0
    path, _, query = message.path.partition("?")
    parts = [message.body[: len(message.body) // 2], message.body[len(message.body) // 2 :]]
    headers = [(b"content-type", message.media.encode("latin-1"))] if message.media else []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": message.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query.encode("utf-8", "surrogatepass"),
        "root_path": "",
        "headers": [*headers, *message.headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def answer(event: dict[str, Any]) -> None:
        nonlocal status
        if event["type"] == "http.response.start":
            status = event["status"]

    await asyncio.wait_for(app(scope, receive, answer), PATIENCE)
    return status


async def attack(site: Site, corpus: Sequence[Message], messages: int, seed: int) -> Tally:
    tally = Tally()
    settled = 0.0
    for number, message in enumerate(Mutator(corpus, seed)):
        if number == messages:
            break
        if number == messages // 5:  # caches and pools have their size by now
            settled = _megabytes()
        began = time.perf_counter()
        try:
            status = await send(site.apps[message.target], message)
        except Exception as error:
            status, words = 0, type(error).__name__
        else:
            words = str(status)
        tally.slowest = max(tally.slowest, time.perf_counter() - began)
        tally.statuses[status] += 1
        if not (200 <= status < 300 or 400 <= status < 500):
            body = message.body[:200]
            tally.failures.append(f"{number}: {words} for {message.method} {message.path[:100]} {body!r}")
    tally.megabytes_grown = _megabytes() - settled
    return tally


def _megabytes() -> float:
    import psutil

    gc.collect()
    return float(psutil.Process().memory_info().rss) / 1e6


def run(folder: Path, messages: int, seed: int) -> tuple[Tally, Release, list[int]]:
    """Attack a site in the middle of an honest round; what came back, its release, and what that has to hold."""
    site = Site(folder)
    with site.local:
        honest = [site.envelopes(site.kept, holder) for holder in range(HOLDERS - 1)]
        for holder, envelopes in enumerate(honest[:2]):
            deliver(site, holder, envelopes)
        release = _other_release(site)
        tally = asyncio.run(attack(site, site.corpus(honest, release), messages, seed))
        for holder, envelopes in enumerate(honest):
            deliver(site, holder, envelopes)
        made = site.local.coordinator.collect(site.kept.id, early=True)
    expected = np.sum(site.values[: HOLDERS - 1], axis=0)
    return tally, made, expected.tolist()


def deliver(site: Site, holder: int, envelopes: Sequence[bytes]) -> None:
    for card, content in zip(site.kept.nodes, envelopes, strict=True):
        with site.local.network.remote(card.url, card.name) as node:
            node.put_bytes(f"/rounds/{site.kept.id}/envelopes/{site.people[holder].identity.key}", content)


def _other_release(site: Site) -> dict[str, Any]:
    """A sound pooled release, of a third round."""
    task = site.local.open(site.study("other"), may_drop=1)
    for holder in range(HOLDERS):
        for card, content in zip(task.nodes, site.envelopes(task, holder), strict=True):
            with site.local.network.remote(card.url, card.name) as node:
                node.put_bytes(f"/rounds/{task.id}/envelopes/{site.people[holder].identity.key}", content)
    return site.local.coordinator.collect(task.id).to_dict()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="noisewise-hostile-") as place:
        found, pooled, right = run(Path(place), options.messages, options.seed)
    for line in found.failures[:20]:
        print(line)
    print(f"{options.messages:,} messages, seed {options.seed}: {len(found.failures)} answers other than 2xx and 4xx")
    print(", ".join(f"{status}: {count:,}" for status, count in sorted(found.statuses.items())))
    print(f"slowest answer {1000 * found.slowest:.0f} ms, memory grew by {found.megabytes_grown:.1f} MB")
    print("the honest round's sum is", "right" if list(pooled.values) == right else "WRONG")
