"""A secure sum of real processes: a board, nodes and holders, each started by the command that its operator would use.

A place is where a party's processes run: this machine's loopback, or a network namespace of its own. Holder k has
10 * 2^k rows, so the number of rows in the pooled release, which has no noise, tells who is in it, and how often.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.column import Column
from noisewise.compute.coordinator import Coordinator
from noisewise.compute.folder import Folder
from noisewise.privacy.ledger import Ledger
from noisewise.protocol.pooled import Evidence, verify
from noisewise.release import Release
from noisewise.study import Study

# After which a process that should have started or ended is taken for hung.
SECONDS = 60.0
STUDY = Study(features=(Column("x", -1, 1),), target=Column("y", -1, 1), epsilon=1.0, delta=1e-6)
# A proxy of the house is for the way out; these processes talk to one another.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
NOISEWISE = [sys.executable, "-c", "from noisewise.cli import main; main()"]


@dataclass(frozen=True)
class Place:
    """Where processes run, and the address and port at which others reach a server there."""

    address: str
    port: int
    prefix: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"


@dataclass
class Party:
    """A party's folder, its place and its processes."""

    name: str
    folder: Path
    place: Place
    serving: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    commands: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, wait: bool = True) -> None:
        """Serve; by default this returns once the server says that it listens."""
        self._log = self.folder.with_suffix(f".{time.monotonic_ns()}.log")
        where = ("--host", self.place.address, "--port", str(self.place.port))
        with self._log.open("wb") as file:
            self.process = self._open([*self.serving, str(self.folder), *where], file)
        if wait:
            self.wait()

    def wait(self) -> None:
        assert self.process is not None
        end = time.monotonic() + SECONDS
        while b'"listening"' not in self._log.read_bytes():
            assert self.process.poll() is None, f"{self.name} did not start:\n{self._log.read_text()}"
            assert time.monotonic() < end, f"{self.name} did not start within {SECONDS:g} s:\n{self._log.read_text()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, to this one process."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(SECONDS)

    def begin(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """A command of this party, still running."""
        command = self._open([*words, "--allow-http"], subprocess.PIPE, **environment)
        self.commands.append(command)
        return command

    def run(self, *words: str, **environment: str) -> tuple[int, str]:
        """A command of this party: its exit code and what it said."""
        command = self.begin(*words, **environment)
        said, _ = command.communicate(timeout=4 * SECONDS)
        return command.returncode, said.decode()

    def end(self) -> None:
        for process in [self.process, *self.commands]:
            if process is not None:
                with suppress(ProcessLookupError):
                    process.kill()
                process.wait(SECONDS)
                if process.stdout:
                    process.stdout.close()

    def _open(self, words: Sequence[str], output: Any, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.place.prefix, *NOISEWISE, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_ENVIRONMENT, **environment},
        )


class Federation:
    """Everyone of a round, with folders made and nothing running yet."""

    def __init__(self, base: Path, board: Place, nodes: Sequence[Place], holders: Sequence[Place]) -> None:
        self.base = base
        coordinator = Coordinator.create(base / "board")
        self.board = Party("board", base / "board", board, ("round", "serve", "--allow-http"))
        self.nodes = [Party(f"node-{k}", base / f"node-{k}", place, ("node", "serve")) for k, place in enumerate(nodes)]
        keys = [
            Folder.create(
                node.folder, name=node.name, url=node.place.url, coordinators=[coordinator.identity.key]
            ).identity.key
            for node in self.nodes
        ]
        self.study = base / "study.toml"
        STUDY.save(self.study)
        self.trust = base / "trust.toml"
        pinned = "\n".join(f'{node.name} = "{key}"' for node, key in zip(self.nodes, keys, strict=True))
        self.trust.write_text(f'board = "{board.url}"\ncoordinator = "{coordinator.identity.key}"\n[nodes]\n{pinned}\n')
        self.holders = [Party(f"holder-{k}", base / f"holder-{k}", place) for k, place in enumerate(holders)]
        self._tokens = {holder.name: coordinator.invite(holder.name) for holder in self.holders}
        for k, holder in enumerate(self.holders):
            self._table(k)
            Ledger.create(base / f"{holder.name}.ledger", dataset=holder.name, epsilon=2.0, delta=1e-5)

    def _table(self, k: int) -> None:
        rows = np.random.default_rng(k).uniform(-1, 1, (10 * 2**k, 2))
        np.savetxt(self.base / f"holder-{k}.csv", rows, delimiter=",", header="x,y", comments="")

    @property
    def servers(self) -> list[Party]:
        return [self.board, *self.nodes]

    def start(self) -> None:
        """All servers, and every holder enrolled."""
        for server in self.servers:
            server.start(wait=False)
        for server in self.servers:
            server.wait()
        enrolling = [
            holder.begin(
                *("join", "enrol", str(holder.folder), "--trust", str(self.trust), "--name", holder.name),
                NOISEWISE_TOKEN=self._tokens[holder.name],
            )
            for holder in self.holders
        ]
        for command in enrolling:
            said, _ = command.communicate(timeout=SECONDS)
            assert command.returncode == 0, said.decode()

    def open(self, may_drop: int) -> None:
        addresses = [word for node in self.nodes for word in ("--node", node.place.url)]
        options = ("--study", str(self.study), "--may-drop", str(may_drop), "--deadline", "1h")
        self.sure(self.board, "round", "open", str(self.board.folder), *options, *addresses)

    def sending(self, holder: Party) -> list[str]:
        """The words with which a holder takes part, or sends again what it has."""
        table, ledger = self.base / f"{holder.name}.csv", self.base / f"{holder.name}.ledger"
        words = ["join", "send", str(holder.folder), str(table), "--study", str(self.study), "--ledger", str(ledger)]
        return [*words, "--yes"]

    def collecting(self) -> list[str]:
        return ["round", "collect", str(self.board.folder), "--early", "--output", str(self.base / "pooled.json")]

    def sure(self, party: Party, *words: str, attempts: int = 5, **environment: str) -> None:
        """Run a command again until it succeeds; whatever was in its way is over soon."""
        for _ in range(attempts):
            code, said = party.run(*words, **environment)
            if code == 0:
                return
            if "--spend-again" in said and "--spend-again" not in words:
                words = (*words, "--spend-again")  # a kill between the ledger and the outbox; its operator pays again
        raise AssertionError(f"{' '.join(words)} failed {attempts} times; at last:\n{said}")

    def check(self, holders: Sequence[int]) -> Evidence:
        """The pooled release verifies, and is the sum over these holders, each counted once; all of it is on record."""
        release = Release.load(self.base / "pooled.json")
        evidence = verify(release)
        assert sorted(evidence.holders) == [f"holder-{k}" for k in holders]
        assert release.n == sum(10 * 2**k for k in holders)
        for k in holders:
            entries = Ledger.open(self.base / f"holder-{k}.ledger").entries()
            paid = {entry.hash for entry in entries if entry.payload.get("round") == evidence.task.id}
            confirmed = [entry.payload["entry"] for entry in entries if entry.kind == "confirm"]
            assert len(confirmed) == 1
            assert confirmed[0] in paid
        return evidence

    def close(self) -> None:
        for party in [*self.servers, *self.holders]:
            party.end()
