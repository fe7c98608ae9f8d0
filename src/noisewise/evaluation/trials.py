"""Many independent trials on all cores, each kept as soon as it ends, so that an experiment can be stopped and resumed.

A case (one method at one size, say) has a name, which is its file's, and its trials have numbers. A trial depends on
its case and its number alone, so the order, the number of workers and interruptions change nothing. One CSV file a
case, one short line a trial, only ever appended to; its first line says with which settings it was made.
"""

import csv
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from noisewise.errors import DataError, OutputError

Row = Mapping[str, object]
Progress = Callable[[int, int], None]

AHEAD = 4  # trials handed out for each worker, so that none waits for the next


class Case(Protocol):
    """It crosses process boundaries, so it can be pickled."""

    @property
    def name(self) -> str:
        """The file's path in the archive, without its ending."""

    @property
    def settings(self) -> str:
        """What the numbers depend on besides the name, in one line."""

    def trial(self, number: int) -> Row:
        """One trial's results, the same names in the same order for every number."""


@dataclass(frozen=True)
class Archive:
    """The folder of the cases' files."""

    folder: Path

    def path(self, case: Case) -> Path:
        return self.folder / f"{case.name}.csv"

    def names(self) -> list[str]:
        """The cases that have a file."""
        found = self.folder.rglob("*.csv")
        return sorted(path.relative_to(self.folder).with_suffix("").as_posix() for path in found)

    def read(self, case: Case) -> list[dict[str, str]]:
        """The trials that are there, each once, by number; a last line that was cut off by a crash is removed."""
        path = self.path(case)
        if not path.exists():
            return []
        text = path.read_text(encoding="utf-8")
        if not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        lines = text.splitlines()
        if lines and lines[0] != f"# {case.settings}":
            raise DataError(
                f"{path} was made with other settings ({lines[0][2:]}; now {case.settings}). Move the file away, or go "
                "back to those settings: trials of both can't stand in one file."
            )
        rows = {int(row["trial"]): row for row in csv.DictReader(lines[1:])}
        return [rows[number] for number in sorted(rows)]

    def append(self, case: Case, number: int, row: Row) -> None:
        path, fields = self.path(case), {"trial": number, **row}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            _, columns = file.readline(), file.readline().strip()
            if not columns:  # new, or its head was cut off
                file.truncate(0)
                file.write(f"# {case.settings}\n{','.join(fields)}\n")
            elif columns != ",".join(fields):
                raise OutputError(
                    f"{path} has the columns {columns}, and a trial now gives {','.join(fields)}. Move the file away."
                )
            file.write(",".join(map(str, fields.values())) + "\n")


def by_number(cases: Sequence[Case], trials: int, archive: Archive) -> list[tuple[Case, int]]:
    """What is left of that many trials of each case: number by number, so that a run cut off has as many of each."""
    done = {case.name: {int(row["trial"]) for row in archive.read(case)} for case in cases}
    return [(case, number) for number in range(trials) for case in cases if number not in done[case.name]]


def run_trials(
    wanted: Iterable[tuple[Case, int]],
    archive: Archive,
    *,
    workers: int,
    minutes: float = float("inf"),
    progress: Progress | None = None,
) -> int:
    """Run them on that many processes and keep each in the archive; how many were done within the time.

    An interrupt or a trial's failure ends it after the trials that are running, which are kept like all before.
    """
    left = list(wanted)
    end, done = time.monotonic() + 60.0 * minutes, 0
    with ProcessPoolExecutor(workers, initializer=_leave_signals_to_parent) as pool:
        running: dict[Future[Row], tuple[Case, int]] = {}
        try:
            for future in _completed(pool, iter(left), AHEAD * workers, lambda: time.monotonic() < end, running):
                _keep(future, *running[future], archive)
                del running[future]
                done += 1
                if progress is not None:
                    progress(done, len(left))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            for future, (case, number) in running.items():
                if not future.cancelled() and future.exception() is None:
                    archive.append(case, number, future.result())
            raise
    return done


def _leave_signals_to_parent() -> None:
    """A worker that ends on an interrupt would lose its trial; and the parent's handler is not for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _completed(
    pool: ProcessPoolExecutor,
    left: Iterator[tuple[Case, int]],
    ahead: int,
    go_on: Callable[[], bool],
    running: dict[Future[Row], tuple[Case, int]],
) -> Iterator[Future[Row]]:
    """What ends, as it ends; few are handed out at a time, since grids are long and a run may end early."""

    def hand_out(count: int) -> None:
        for case, number in islice(left, count) if go_on() else ():
            running[pool.submit(case.trial, number)] = (case, number)

    hand_out(ahead)
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield future
            hand_out(1)


def _keep(future: Future[Row], case: Case, number: int, archive: Archive) -> None:
    if error := future.exception():
        error.add_note(f"This was trial {number} of {case.name}.")
    archive.append(case, number, future.result())
