"""A round as people run it: a board and three nodes as processes on loopback, everyone else by commands."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.cli import app
from tests.protocol.world import STUDY, table

MAIN = "import sys; sys.argv[0] = 'noisewise'; from noisewise.cli import main; main()"
NAMES = ("north", "south", "west")
HOLDERS = ("Ash clinic", "Beech clinic", "Cedar clinic", "Fir clinic")


class Server:
    """``noisewise ... serve`` in a process of its own; it is up when its first line of log is read."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", MAIN, *self._arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path.cwd())
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        assert "listening" in line, line + self._process.stderr.read()
        self.port = int(json.loads(line)["port"])

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        _, self.log = self._process.communicate(timeout=60)
        return self._process.returncode


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def run(*arguments: str, code: int = 0, **options: Any) -> str:
    result = CliRunner(env={"NO_COLOR": "1", "TERM": "dumb"}).invoke(app, list(arguments), **options)
    assert result.exit_code == code, result.output + (str(result.exception) if result.exception else "")
    return result.output if code or "--json" not in arguments else result.stdout


def asked(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Server]]:
    """A coordinator's board and three nodes, running; and trust.toml with their keys."""
    monkeypatch.chdir(tmp_path)
    STUDY.save("study.toml")
    coordinator = asked("round", "init", "coordinator")["key"]
    running: dict[str, Server] = {}
    try:
        running["board"] = Server("round", "serve", "coordinator", "--port", "0")
        pinned = ""
        for name in NAMES:
            port = str(free_port())
            address = f"http://127.0.0.1:{port}"
            run("node", "init", f"node-{name}", "--name", name, "--url", address, "--coordinator", coordinator)
            pinned += f'{name} = "{asked("node", "card", f"node-{name}")["signing_key"]}"\n'
            running[name] = Server("node", "serve", f"node-{name}", "--port", port)
        board = f"http://127.0.0.1:{running['board'].port}"
        Path("trust.toml").write_text(f'board = "{board}"\ncoordinator = "{coordinator}"\n[nodes]\n{pinned}')
        yield running
    finally:
        for server in running.values():
            server.stop()


def enrol(name: str) -> Path:
    """Invite and enrol a holder, and give it a table and a ledger."""
    folder = Path(name.split()[0].lower())
    token = asked("round", "invite", "coordinator", name)["token"]
    told = run("join", "enrol", str(folder), "--trust", "trust.toml", "--name", name, input=f"{token}\n")
    assert token not in told
    rows = table(50, seed=len(name))
    np.savetxt(folder / "rows.csv", np.column_stack([rows["x"], rows["y"]]), delimiter=",", header="x,y", comments="")
    nw.Ledger.create(folder / "ledger", dataset=name, epsilon=1.0, delta=1e-6)
    return folder


def sending(folder: Path) -> list[str]:
    study = ["--study", "study.toml", "--ledger", str(folder / "ledger")]
    return ["join", "send", str(folder), str(folder / "rows.csv"), *study]


@pytest.mark.slow
def test_a_round_by_commands(servers: dict[str, Server]) -> None:
    folders = [enrol(name) for name in HOLDERS]
    nodes = [word for name in NAMES for word in ("--node", f"http://127.0.0.1:{servers[name].port}")]
    crowd = ["--may-drop", "1", "--may-collude", "1", "--deadline", "2h"]
    opened = asked("round", "open", "coordinator", "--study", "study.toml", *nodes, *crowd)["round"]

    shown = run(*sending(folders[0]), "--dry-run")
    assert "4: Ash clinic" in shown
    assert "epsilon 1, delta 1e-06" in shown
    assert "50 rows used of 50 read" in shown
    assert "Aborted" in run(*sending(folders[0]), code=1, input="n\n")
    assert nw.Ledger.open(folders[0] / "ledger").summary().reservations == 0  # neither spent

    assert "all 3 nodes have it: nothing more is to be done" in run(*sending(folders[0]), input="y\n")
    servers["south"].stop(signal.SIGKILL)
    told = run(*sending(folders[1]), "--yes", code=2)
    assert "2 of 3 nodes have it" in told
    assert "node 'south'" in told
    assert "no answer from south" in run("round", "status", "coordinator")
    assert "needs all its nodes" in run("round", "collect", "coordinator", code=2)
    servers["south"].start()
    again = asked("join", "send", str(folders[1]), "--ledger", str(folders[1] / "ledger"))["rounds"][0]
    assert (again["round"], again["complete"]) == (opened, True)
    assert "all 3 nodes have it" in run(*sending(folders[2]), "--yes")
    assert asked("join", "status", str(folders[2]))["rounds"][0]["complete"]
    for folder in folders[:3]:
        summary = nw.Ledger.open(folder / "ledger").summary()
        assert (summary.reservations, summary.unconfirmed) == (1, 0)

    status = asked("round", "status", "coordinator")
    assert [one["name"] for one in status["missing"]] == ["Fir clinic"]
    assert "1 of 4 holders are still missing (Fir clinic)" in run("round", "collect", "coordinator", code=2)
    collect = ["round", "collect", "coordinator", opened[:10], "--output", "pooled.json"]
    digest = asked(*collect, "--early")["digest"]
    assert asked(*collect)["digest"] == digest  # again, and the same
    assert "the round is released" in run("join", "status", str(folders[0]))
    watching = [sys.executable, "-c", MAIN, "round", "status", "coordinator", "--watch"]  # ends, though one is missing
    watched = subprocess.run(watching, capture_output=True, text=True, timeout=60, check=True)
    assert watched.stdout == "released\nmissing: Fir clinic\n"
    check_release(opened, [nodes[0]])
    assert servers["north"].stop() == 0
    assert "Ash" not in servers["north"].log


def check_release(opened: str, nodes: list[str]) -> None:
    keys = asked("round", "verify", "pooled.json")
    assert (keys["round"], keys["missing"]) == (opened, ["Fir clinic"])
    pinned = [word for node in keys["nodes"] for word in ("--node", node["key"])]
    run("round", "verify", "pooled.json", "--coordinator", keys["coordinator"], *pinned)
    wrong = run("round", "verify", "pooled.json", "--coordinator", "0" * 64, code=2)
    assert f"coordinator has key {keys['coordinator']}" in wrong
    assert "nodes are not those given" in run("round", "verify", "pooled.json", *pinned[:4], code=2)
    release = nw.Release.load("pooled.json")
    assert release.n == 150
    assert "epsilon 1" in release.privacy_statement()
    run("fit", "pooled.json", "--method", "fixed-s", "--seed", "1")

    body = json.loads(Path("pooled.json").read_text())
    body["values"][1] += 1
    Path("forged.json").write_text(json.dumps(body))
    assert "does not match its digest" in run("round", "verify", "forged.json", code=2)


def test_what_commands_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    STUDY.save("study.toml")
    run("round", "init", "c")
    assert "there is a coordinator already" in run("round", "init", "c", code=2)
    opening = ["round", "open", "c", "--study", "study.toml", "--node", "https://north.example.org"]
    assert "'soon' is not a time; give 90m, 12h, 7d" in run(*opening, "--deadline", "soon", code=2)
    assert "with its zone" in run(*opening, "--deadline", "2030-01-01T10:00", code=2)
    assert "at most 366 days; got 1000" in run("round", "invite", "c", "x", "--days", "1000", code=2)
    assert "There is no round" in run("round", "status", "c", code=2)
    assert "no coordinator here" in run("round", "status", "absent", code=2)
    assert "trust.toml: can't be read" in run(
        "join", "enrol", "h", "--trust", "trust.toml", "--name", "x", "--token", "t", code=2
    )
    assert "trust.toml: there is no such file" in run("join", "send", "h", "--ledger", "l", code=2)
    assert "name the ledger" in run("join", "send", "h", code=2)
    alone = nw.exact_release(STUDY, table())
    alone.save("alone.json")
    assert "made by one holder alone" in run("round", "verify", "alone.json", code=2)
