"""Every party in a network namespace of its own, with nothing between them but links that are cut and restored.

The hub is a bridge in one more namespace, with one link to each party. No address is known outside of these namespaces.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.processes import Federation, Place

SUBNET = "10.77.0"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Town:
    """A hub, and one link from it to each party."""

    def __init__(self) -> None:
        self._prefix = f"nw{os.getpid()}"
        self._names: list[str] = []

    def build(self) -> None:
        self._add("hub")
        ip("-n", self._name("hub"), "link", "add", "street", "type", "bridge")
        ip("-n", self._name("hub"), "link", "set", "street", "up")

    def place(self, party: str) -> Place:
        """A new namespace with an address and a link to the hub."""
        hub, home = self._name("hub"), self._add(party)
        address = f"{SUBNET}.{len(self._names)}"
        ip("-n", hub, "link", "add", party, "type", "veth", "peer", "name", "eth0", "netns", home)
        ip("-n", hub, "link", "set", party, "master", "street", "up")
        ip("-n", home, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", home, "link", "set", "eth0", "up")
        ip("-n", home, "link", "set", "lo", "up")
        return Place(address, 8470, ("ip", "netns", "exec", home))

    def cut(self, party: str) -> None:
        ip("-n", self._name("hub"), "link", "set", party, "down")

    def restore(self, party: str) -> None:
        ip("-n", self._name("hub"), "link", "set", party, "up")

    def remove(self) -> None:
        for name in self._names:
            ip("netns", "delete", name)

    def _add(self, party: str) -> str:
        name = self._name(party)
        ip("netns", "add", name)
        self._names.append(name)
        return name

    def _name(self, party: str) -> str:
        return f"{self._prefix}-{party}"


@pytest.fixture
def town() -> Iterator[Town]:
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip (Debian: iproute2)")
    made = Town()
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here ({error.stderr.decode().strip()}); run as root")
        yield made
    finally:
        made.remove()


@pytest.fixture
def federation(town: Town, tmp_path: Path) -> Iterator[Federation]:
    nodes = [town.place(f"node-{k}") for k in range(3)]
    made = Federation(tmp_path, town.place("board"), nodes, [town.place(f"holder-{k}") for k in range(3)])
    yield made
    made.close()


@pytest.mark.slow
def test_a_round_ends_right_though_links_are_cut(town: Town, federation: Federation) -> None:
    federation.start()
    federation.open(may_drop=1)
    town.cut("holder-2")  # for good: it drops out, and may
    town.cut("node-1")
    sending = [holder.begin(*federation.sending(holder)) for holder in federation.holders]
    time.sleep(3)
    town.restore("node-1")
    for holder, command in zip(federation.holders[:2], sending, strict=False):
        command.communicate(timeout=60)
        if command.returncode != 0:
            federation.sure(holder, *federation.sending(holder))
    assert sending[2].poll() != 0, "a holder behind a cut link has sent something"
    sending[2].kill()

    town.cut("node-2")
    collecting = federation.board.begin(*federation.collecting())
    time.sleep(2)
    town.restore("node-2")
    collecting.communicate(timeout=60)
    federation.sure(federation.board, *federation.collecting())
    federation.check([0, 1])
