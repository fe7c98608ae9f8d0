"""A whole secure sum over loopback: real nodes in their own processes, durable storage, and where the time goes.

1. Uploads of 20 KB a second to one node with durable commits, next to the same server that stores nothing.
2. A round of N holders and three nodes, for vectors of 105 and about 1,000 entries: split and seal, send (which
   verifies, opens and stores durably), freeze, agree and sum, pool and verify. The noise is left out: drawing it is
   every holder's own affair (its cost is printed), and ten thousand holders do it side by side.

Everything shares the cores of this machine; at real holders the first step and half of the second cost nothing here.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil

from benchmarks import text_table
from noisewise.column import Column
from noisewise.privacy.noise import SecureNoise
from noisewise.protocol.envelope import Envelope, seal
from noisewise.protocol.keys import Identity
from noisewise.protocol.pooled import pool, read_manifest, read_sum, verify
from noisewise.protocol.round import intersection
from noisewise.protocol.shares import Total, split
from noisewise.protocol.signed import Signed
from noisewise.protocol.task import Card, Member, Task
from noisewise.study import Study

CONNECTIONS = 32


def run(quick: bool = False) -> str:
    uploads = 500 if quick else 4_000
    holders = 300 if quick else 10_000
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as place:
        folder = Path(place)
        durable = [upload_rate(folder / f"durable-{k}", uploads, store=True) for k in range(2)]
        forgetful = [upload_rate(folder / f"forgetful-{k}", uploads, store=False) for k in range(2)]
        best, ceiling = max(durable), max(forgetful)
        parts = [
            f"Uploads of 20 KB, {CONNECTIONS} connections: {best:,.0f} a second with durable commits, {ceiling:,.0f} "
            f"by the same server without storage: {best / ceiling:.2f} of it (each the better of two)."
        ]
        for features in (12, 43):
            parts.append(whole_round(folder / f"round-{features}", holders, features))
    return "\n\n".join(parts)


@dataclass
class Server:
    """A node in its own process, on loopback."""

    process: subprocess.Popen[bytes]
    url: str
    card: Card

    @classmethod
    def start(cls, folder: Path, name: str, coordinator: str, *, store: bool = True) -> "Server":
        from noisewise.compute.folder import Folder

        made = Folder.create(folder, name=name, url="http://127.0.0.1:1", coordinators=[coordinator])
        settings = folder / "node.toml"
        text = re.sub(r"(?m)^(holder_)?requests_per_second = .*$", r"\1requests_per_second = 0.0", settings.read_text())
        settings.write_text(text)
        log = folder / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.secure_round", str(folder), *([] if store else ["--forgetful"])],
                stderr=errors,
            )
        url = f"http://127.0.0.1:{_port(log, process)}"
        sealing = made.keyring.active.key.key
        return cls(process, url, Card.issue(made.identity, name=name, url=url, sealing_key=sealing))

    def cpu(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    for _ in range(600):
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return int(json.loads(line)["port"])
        if process.poll() is not None:
            raise RuntimeError(f"the node ended: {log.read_text()[-500:]}")
        time.sleep(0.05)
    raise RuntimeError("the node does not listen")


def upload_rate(folder: Path, uploads: int, *, store: bool) -> float:
    """Envelopes of 20 KB a second that one node takes."""
    coordinator = Identity.generate()
    servers = [Server.start(folder / name, name, coordinator.key, store=store or name == "b") for name in ("a", "b")]
    try:
        task, members = _task(coordinator, servers, uploads, features=69)
        _put(servers[0].url, f"/rounds/{task.id}", task.signed.to_dict())
        values = np.zeros(task.length, dtype=np.int64)
        requests = [
            _request(task, member, seal(task, member, split(values, 2))[0], servers[0].url) for member in members
        ]
        began = time.perf_counter()
        asyncio.run(_send_all(servers[0].url, requests))
        return uploads / (time.perf_counter() - began)
    finally:
        for server in servers:
            server.stop()


def whole_round(folder: Path, holders: int, features: int) -> str:
    coordinator = Identity.generate()
    servers = [Server.start(folder / name, name, coordinator.key) for name in ("a", "b", "c")]
    rows: list[list[str]] = []

    def timed(what: str, action: Callable[[], Any]) -> Any:
        wall, own, nodes = time.perf_counter(), time.process_time(), sum(server.cpu() for server in servers)
        result = action()
        spent = sum(server.cpu() for server in servers) - nodes
        rows.append([what, f"{time.perf_counter() - wall:.2f}", f"{time.process_time() - own:.2f}", f"{spent:.2f}"])
        return result

    try:
        task, members = _task(coordinator, servers, holders, features)
        rng = np.random.default_rng(1)
        values = rng.integers(-(2**40), 2**40, (holders, task.length))
        at = f"/rounds/{task.id}"
        timed("send the task", lambda: [_put(server.url, at, task.signed.to_dict()) for server in servers])
        sealed = timed(
            "split and seal",
            lambda: [seal(task, member, split(own, 3)) for member, own in zip(members, values, strict=True)],
        )
        timed("send: verify, open, store durably", lambda: asyncio.run(_send_round(task, members, servers, sealed)))
        word = Signed.by(coordinator, "freeze", {"task": task.id}).to_dict()
        manifests = timed("freeze", lambda: [_put(server.url, f"{at}/freeze", word) for server in servers])
        answers = timed(
            "agree and sum",
            lambda: [_put(server.url, f"{at}/manifests", {"manifests": manifests}) for server in servers],
        )

        def finish() -> Any:
            agreed = intersection(read_manifest(raw, task)[1] for raw in manifests)
            release = pool(task, agreed, [read_sum(raw, task)[1] for raw in answers])
            verify(release)
            return release

        release = timed("pool and verify", finish)
        assert list(release.values) == values.sum(axis=0).tolist()
        notes = _share_of_work(task, servers, folder, members, sealed)
        return text_table(
            f"A round of {holders:,} holders, 3 nodes, {task.length:,} entries (seconds)",
            ["step", "wall", "CPU here", "CPU of nodes"],
            rows,
            notes,
        )
    finally:
        for server in servers:
            server.stop()


def _share_of_work(
    task: Task, servers: Sequence[Server], folder: Path, members: Sequence[Identity], sealed: Any
) -> list[str]:
    """What one node does with an envelope, step by step, and what a holder's noise costs."""
    from noisewise.compute.folder import Folder

    key, some = Folder.load(folder / "b").keyring.active.key, [envelopes[1] for envelopes in sealed[:1000]]
    envelopes = [Envelope.read(content) for content in some]
    total = Total(task.length)
    opened: list[bytes] = []
    micro = {
        "verify": _microseconds(lambda: [envelope.check(task, 1) for envelope in envelopes], len(some)),
        "open": _microseconds(lambda: opened.extend(e.open(key, task.length) for e in envelopes), len(some)),
        "expand and add": _microseconds(lambda: total.add_all(opened), len(some)),
    }
    noise = SecureNoise()
    noise.draw("gaussian", task.scales)
    drawn = _microseconds(lambda: [noise.draw("gaussian", task.scales) for _ in range(5)], 5)
    steps = ", ".join(f"{what} {spent:.0f}" for what, spent in micro.items())
    return [f"Microseconds of CPU an envelope at node b: {steps}. A holder's own noise: {drawn / 1000:.1f} ms."]


def _microseconds(action: Callable[[], Any], count: int) -> float:
    began = time.process_time()
    action()
    return 1e6 * (time.process_time() - began) / count


def _task(coordinator: Identity, servers: Sequence[Server], holders: int, features: int) -> tuple[Task, list[Identity]]:
    members = [Identity.generate() for _ in range(holders)]
    columns = [Column(f"x{i}", -1, 1) for i in range(features)]
    task = Task.draft(
        coordinator,
        Study(columns, Column("y", -1, 1), epsilon=1.0, delta=1e-6),
        [Member(f"holder {k}", member.key) for k, member in enumerate(members)],
        [server.card for server in servers],
        may_drop=holders // 10,
        may_collude=holders // 10,
        deadline=datetime.now(UTC) + timedelta(hours=2),
    )
    return task, members


def _put(url: str, path: str, body: Any) -> Any:
    answer = httpx.put(f"{url}{path}", json=body, timeout=300)
    answer.raise_for_status()
    return answer.json()


async def _send_round(task: Task, members: Sequence[Identity], servers: Sequence[Server], sealed: Any) -> None:
    await asyncio.gather(
        *(
            _send_all(
                server.url,
                [_request(task, member, own[k], server.url) for member, own in zip(members, sealed, strict=True)],
            )
            for k, server in enumerate(servers)
        )
    )


def _request(task: Task, member: Identity, content: bytes, url: str) -> bytes:
    head = (
        f"PUT /rounds/{task.id}/envelopes/{member.key} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _send_all(url: str, requests: Sequence[bytes]) -> None:
    """Keep-alive connections, each with its part of the requests; every answer has to be 201.

    Bare sockets: what is measured is the server, and a client library would take more of the machine than it does.
    """
    where = urlsplit(url)

    async def one(part: Sequence[bytes]) -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        for request in part:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(head.decode("latin-1"))
            length = re.search(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
        writer.close()

    await asyncio.gather(*(one(requests[k::CONNECTIONS]) for k in range(CONNECTIONS)))


def _serve(folder: Path, forgetful: bool) -> None:
    """A node as ``noisewise node serve`` runs it; a forgetful one acknowledges what it never stored."""
    from noisewise.compute.folder import Folder
    from noisewise.compute.node import Node
    from noisewise.compute.node_http import application
    from noisewise.compute.service import Listening, serve
    from noisewise.compute.store import Deposit, Outcome, Store

    class Forgetful(Store):
        async def deposit(self, deposit: Deposit) -> Outcome:
            return Outcome.NEW

    found = Folder.load(folder)
    store = found.store()
    if forgetful:
        store.__class__ = Forgetful
    serve(lambda: application(Node(found, store)), Listening(port=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forgetful", action="store_true")
    options = parser.parse_args()
    _serve(options.folder, options.forgetful)
