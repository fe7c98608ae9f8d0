"""The exact Gram matrix of a large Parquet file, next to what it can't do without: reading and multiplying.

Peers, on the same file and in chunks of the same size, each time in a fresh process:

- *read*: PyArrow reads every column and drops it. Three ways are tried; the fastest counts.
- *multiply*: one float64 ``X.T @ X`` per chunk, on a chunk that lies in the cache, so that this is the product alone.
- *plain*: what a short program does with both: read, put the columns together, multiply. For information.

The target is ours <= 1.5 x (read + multiply), and a peak below 700 MB with Python and Arrow in it. Rounds are
interleaved, and the least time of each counts: on a shared machine others can only add to it.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import text_table

COLUMNS = 20
ROUNDS = 3
WORST_RATIO = 1.5
MOST_MEGABYTES = 700
READERS = ("read: whole file", "read: by row group", "read: scanner")
PRODUCT, PLAIN, OURS, CUTTING = "multiply", "plain program", "ours", "ours, clipping and shrinking"


def run(quick: bool = False) -> str:
    """The comparison, then how ours grows with rows and with columns."""
    with tempfile.TemporaryDirectory(prefix="noisewise-bench-") as folder:
        rows = 1_000_000 if quick else 10_000_000
        parts = [_comparison(Path(folder), rows)]
        print(parts[0], end="\n\n", flush=True)
        few = rows // 10
        print(_growth(Path(folder), "rows", [(rows // 8, COLUMNS), (rows // 4, COLUMNS), (rows // 2, COLUMNS)]))
        return "\n" + _growth(Path(folder), "columns", [(few, 5), (few, 10), (few, 20), (few, 40), (few, 80)])


def _comparison(folder: Path, rows: int) -> str:
    path = _file(folder, rows, COLUMNS)
    tasks = (*READERS, PRODUCT, PLAIN, OURS, CUTTING)
    results: dict[str, list[dict[str, float]]] = {task: [] for task in tasks}
    for _ in range(ROUNDS):
        for task in tasks:
            results[task].append(_measure(task, path, COLUMNS))
    path.unlink()
    least = {task: min(result["seconds"] for result in results[task]) for task in tasks}
    middle = {task: statistics.median(result["seconds"] for result in results[task]) for task in tasks}
    work = {task: min(result["processor"] for result in results[task]) for task in tasks}
    peak = {task: max(result["megabytes"] for result in results[task]) for task in tasks}
    reader = min(READERS, key=least.__getitem__)
    ratio = least[OURS] / (least[reader] + least[PRODUCT])
    ratio_middle = middle[OURS] / (min(middle[task] for task in READERS) + middle[PRODUCT])
    return text_table(
        f"Gram matrix of {rows:,} x {COLUMNS} float64 in Parquet, {ROUNDS} rounds",
        ("", "least s", "median s", "processor s", "peak MB"),
        [
            (task, f"{least[task]:.2f}", f"{middle[task]:.2f}", f"{work[task]:.2f}", f"{peak[task]:.0f}")
            for task in tasks
        ],
        (
            f"ours / ({reader.removeprefix('read: ')} + multiply): {ratio:.2f} by least, {ratio_middle:.2f} by median "
            f"time; target {WORST_RATIO}: {'met' if ratio <= WORST_RATIO else 'MISSED'}",
            f"ours / plain program: {least[OURS] / least[PLAIN]:.2f}",
            f"peak of ours: {peak[OURS]:.0f} MB; target below {MOST_MEGABYTES}: "
            f"{'met' if peak[OURS] < MOST_MEGABYTES else 'MISSED'}",
        ),
    )


def _growth(folder: Path, what: str, sizes: list[tuple[int, int]]) -> str:
    lines = []
    for rows, columns in sizes:
        path = _file(folder, rows, columns)
        results = [_measure(OURS, path, columns) for _ in range(ROUNDS)]
        path.unlink()
        seconds = min(result["seconds"] for result in results)
        peak = max(result["megabytes"] for result in results)
        rate = rows * columns / seconds / 1e6
        lines.append((f"{rows:,} x {columns}", f"{seconds:.3f}", f"{rate:.0f}", f"{peak:.0f}"))
    return text_table(f"Growth with {what}", ("rows x columns", "least s", "million values/s", "peak MB"), lines)


def _file(folder: Path, rows: int, columns: int) -> Path:
    """A Parquet file of uniform values, written by another process so that this one stays small."""
    path = folder / f"{rows}x{columns}.parquet"
    _child("write", path, columns, rows)
    return path


def _measure(task: str, path: Path, columns: int) -> dict[str, float]:
    answer = _child(task, path, columns)
    return {key: float(value) for key, value in json.loads(answer).items()}


def _child(task: str, path: Path, columns: int, rows: int = 0) -> str:
    command = [sys.executable, "-m", "benchmarks.gram", task, str(path), str(columns), str(rows)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _names(columns: int) -> list[str]:
    return [*(f"x{position}" for position in range(columns - 1)), "y"]


def _write(path: Path, columns: int, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(1)
    names = _names(columns)
    with parquet.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names])) as writer:
        for start in range(0, rows, 1 << 20):
            size = min(1 << 20, rows - start)
            writer.write_table(pa.table({name: rng.uniform(-1, 1, size) for name in names}))


def _study(columns: int, *, cutting: bool) -> Any:
    import noisewise as nw

    *features, target = (
        nw.Column(name, -0.99, 0.99) if cutting else nw.Column(name, -1, 1) for name in _names(columns)
    )
    return nw.Study(tuple(features), target, epsilon=1.0, delta=1e-6, radius=(columns / 3) ** 0.5 if cutting else None)


def _read(task: str, path: Path, size: int) -> Iterator[Any]:
    from pyarrow import dataset, parquet

    if task == "read: scanner":
        yield from dataset.dataset(path).to_batches(batch_size=size)
        return
    file = parquet.ParquetFile(path)
    if task == "read: whole file":
        yield from file.iter_batches(batch_size=size)
    else:
        for group in range(file.num_row_groups):
            yield from file.iter_batches(batch_size=size, row_groups=[group])


def _task(task: str, path: Path, columns: int) -> Callable[[], None]:
    """What is to be timed, everything imported and made ready."""
    import numpy as np
    from pyarrow import dataset, parquet  # noqa: F401  (so that their import is not timed)

    from noisewise.holder.files import batch_rows
    from noisewise.holder.statistics import best_chunk_rows, gram_of

    study = _study(columns, cutting=task == CUTTING)
    size = batch_rows(study)
    rows = parquet.ParquetFile(path).metadata.num_rows

    def read() -> None:
        for _ in _read(task, path, size):
            pass

    def multiply() -> None:
        chunk = best_chunk_rows(study)
        X = np.random.default_rng(1).uniform(-1, 1, (chunk, columns))
        total = np.zeros((columns, columns))
        for start in range(0, rows, chunk):
            part = X[: min(chunk, rows - start)]
            total += part.T @ part

    def plain() -> None:
        total = np.zeros((columns, columns))
        for batch in _read("read: by row group", path, size):
            X = np.column_stack([column.to_numpy() for column in batch.columns])
            total += X.T @ X

    def ours() -> None:
        gram_of(study, path)

    return {PRODUCT: multiply, PLAIN: plain, OURS: ours, CUTTING: ours}.get(task, read)


def _peak_megabytes() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's pages from before exec
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def _main() -> None:
    parser = argparse.ArgumentParser(description="One measurement, in this process.")
    parser.add_argument("task")
    parser.add_argument("path", type=Path)
    parser.add_argument("columns", type=int)
    parser.add_argument("rows", type=int)
    options = parser.parse_args()
    if options.task == "write":
        _write(options.path, options.columns, options.rows)
        return
    action = _task(options.task, options.path, options.columns)
    processor, start = time.process_time(), time.perf_counter()
    action()
    seconds = time.perf_counter() - start
    answer = {
        "seconds": seconds,
        "processor": time.process_time() - processor,
        "megabytes": _peak_megabytes(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    _main()
