"""Real processes on loopback, killed with SIGKILL at random moments: the round still ends in the right sum."""

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.processes import Federation, Party, Place


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    places = [Place("127.0.0.1", port) for port in free_ports(3)]
    made = Federation(tmp_path, places[0], places[1:], [Place("127.0.0.1", 0)] * 3)
    yield made
    made.close()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; taken all at once, so that they differ."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def harass(victims: list[Party], command: Party, words: list[str], chance: random.Random) -> None:
    """Run a command while servers are killed and restarted, and the command itself is killed in one of two runs."""
    running = command.begin(*words)
    for _ in range(2):
        time.sleep(chance.uniform(0, 0.6))
        victim = chance.choice(victims)
        victim.kill()
        victim.start()
    if chance.random() < 0.5:
        running.kill()
    running.communicate(timeout=120)


@pytest.mark.slow
def test_a_round_survives_kills_of_anyone_at_any_moment(federation: Federation) -> None:
    chance = random.Random(20261118)
    federation.start()
    federation.open(may_drop=1)
    for holder in federation.holders:
        harass(federation.nodes, holder, federation.sending(holder), chance)
        federation.sure(holder, *federation.sending(holder))
    harass(federation.nodes, federation.board, federation.collecting(), chance)
    federation.sure(federation.board, *federation.collecting())
    federation.check([0, 1, 2])


@pytest.mark.slow
def test_a_holder_that_never_finishes_is_left_out_whole(federation: Federation) -> None:
    """One node is dead while a holder sends: what reached the other node alone is in no sum."""
    federation.start()
    federation.open(may_drop=1)
    for holder in federation.holders[:2]:
        federation.sure(holder, *federation.sending(holder))
    federation.nodes[1].kill()
    code, said = federation.holders[2].run(*federation.sending(federation.holders[2]))
    assert code != 0
    assert "1 of 2 nodes have it; it counts only when all do" in " ".join(said.split())
    federation.nodes[1].start()
    federation.sure(federation.board, *federation.collecting())
    federation.check([0, 1])
