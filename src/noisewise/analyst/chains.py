"""The shared runner of compiled chains: a seed for each, all cores by threads, warm-up, thinning, progress, a verdict.

A chain adapts its proposals while it warms up and never after, so that what is kept comes from one Markov chain with
one stationary law. Compiled sweeps release the interpreter's lock, hence threads are enough to use all cores.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock
from typing import NamedTuple, Protocol

import numpy as np

from noisewise.analyst.diagnostics import convergence_notes
from noisewise.analyst.methods.base import Run
from noisewise.errors import FitError
from noisewise.gram import Floats

Progress = Callable[[int, int], None]

BLOCKS = 100  # pieces of a run between which progress is told and an interrupt is heard


class Chain(Protocol):
    """One chain; its state lives inside and moves on in place."""

    def warm_up(self, sweeps: int) -> None:
        """Make sweeps that may adapt the proposals."""

    def draw(self, thin: int, kept: Floats) -> None:
        """Fill the rows of ``kept``, ``thin`` sweeps each, with the proposals frozen."""

    def statistics(self) -> Mapping[str, Floats]:
        """Acceptance rates of the frozen sweeps, and the scales that the proposals were frozen at."""


@dataclass(frozen=True)
class Schedule:
    """How long to adapt, which sweeps to keep, on how many cores (None: all)."""

    warmup: int
    thin: int = 1
    cores: int | None = None

    def __post_init__(self) -> None:
        for name in ("warmup", "thin", "cores"):
            value = getattr(self, name)
            if name == "cores" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise FitError(f"{name} {value!r} is not a whole number of at least 1.")


class Chains(NamedTuple):
    """``kept`` is (chains, draws, quantities); statistics have a first axis for the chains."""

    kept: Floats
    statistics: dict[str, Floats]


class _StoppedError(Exception):
    """Another chain failed, or the user interrupted."""


def run_chains(
    start: Callable[[np.random.Generator], Chain],
    quantities: int,
    run: Run,
    schedule: Schedule,
    progress: Progress | None = None,
) -> Chains:
    """Start every chain from its own seed and run it; ``progress`` gets (sweeps done, sweeps in all), a call at a time.

    What comes out depends on the seed alone, not on the number of cores.
    """
    total = run.chains * (schedule.warmup + run.draws * schedule.thin)
    kept = np.empty((run.chains, run.draws, quantities))
    stop, lock, done = Event(), Lock(), [0]

    def advance(sweeps: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if progress is not None:
            with lock:
                done[0] += sweeps
                progress(done[0], total)

    def one(index: int, seed: np.random.SeedSequence) -> Mapping[str, Floats]:
        chain = start(np.random.default_rng(seed))
        for first, last in _blocks(schedule.warmup):
            chain.warm_up(last - first)
            advance(last - first)
        for first, last in _blocks(run.draws):
            chain.draw(schedule.thin, kept[index, first:last])
            advance((last - first) * schedule.thin)
        return chain.statistics()

    workers = min(run.chains, schedule.cores or os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, index, seed) for index, seed in enumerate(run.seed.spawn(run.chains))]
        try:
            results = [future.result() for future in futures]
        except BaseException:
            stop.set()  # the others end at their next block, and the pool can close
            raise
    return Chains(kept, {name: np.stack([result[name] for result in results]) for name in results[0]})


def _blocks(total: int) -> list[tuple[int, int]]:
    edges = np.unique(np.linspace(0, total, BLOCKS + 1).astype(int))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def verdict(draws: Floats, schedule: Schedule) -> tuple[str, ...]:
    """What a reader of (chains, draws, quantities) has to know of convergence; nothing where all is well."""
    return convergence_notes(
        draws,
        to_settle=f"Raise warmup (now {schedule.warmup}) and thin (now {schedule.thin}), each several times over.",
        to_lengthen=f"thin (now {schedule.thin}) or draws",
    )
