"""Many rounds in many worlds, each from its own seed, with a tally of what struck and what came of it."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from noisewise.protocol import remote
from tests.simulator.disk import watched
from tests.simulator.weather import Tally
from tests.simulator.world import World

ROUNDS_A_WORLD = 5
MEMORY = Path("/dev/shm")


class BrokenPromiseError(AssertionError):
    """A round in which something happened that should never happen; the message says how to see it again."""


def play(seed: int, rounds: int) -> Tally:
    """Play this many rounds; BrokenPromiseError at the first that goes wrong."""
    tally = Tally()
    for world in range(-(-rounds // ROUNDS_A_WORLD)):
        tally += play_world(f"{seed}/{world}", min(ROUNDS_A_WORLD, rounds - world * ROUNDS_A_WORLD))
    return tally


def play_world(seed: str, rounds: int = ROUNDS_A_WORLD, tell: Callable[[str], None] = lambda line: None) -> Tally:
    """The rounds of one world; the same seed has the same faults at the same places."""
    tally = Tally(tell)
    with _one_at_a_time(), watched():
        _play_world(seed, rounds, tally)
    return tally


def _play_world(seed: str, rounds: int, tally: Tally) -> None:
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="noisewise-faults-", dir=memory, ignore_cleanup_errors=True) as base:
        world = World(seed, tally, Path(base))
        try:
            for number in range(rounds):
                tally.strike(f"round {world.play()}")
                if world.witness.broken:
                    found = "; ".join(dict.fromkeys(world.witness.broken))
                    raise BrokenPromiseError(
                        f"world {seed}, round {number}: {found}. Again: python -m tests.simulator --world {seed}"
                    )
        finally:
            world.close()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Clients talk to one server after another, and servers keep their logs to themselves."""
    at_once, remote.AT_ONCE = remote.AT_ONCE, 1
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        remote.AT_ONCE = at_once
        logging.disable(logging.NOTSET)
