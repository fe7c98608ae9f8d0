"""From a table to its exact Gram matrix, in one pass and bounded memory.

Rows are encoded into one buffer that stays in the processor's cache, and each full buffer is one matrix product.
Files are read one or two batches ahead by a second thread: Arrow decodes and BLAS multiplies without Python's lock, so
both cores work. The sums are integers, so none of this can change them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from noisewise.errors import DataError
from noisewise.gram import Floats, Gram, max_chunk_rows
from noisewise.holder.columns import ExtraColumns
from noisewise.holder.encode import Encoder, RowReport
from noisewise.holder.files import Batches
from noisewise.holder.tables import open_table
from noisewise.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int], None]

# Values in the buffer, 8 bytes each: a few MB stay in the cache that the cores share, and one column in a core's own.
BUFFER_VALUES = 1 << 20
# Rows of the buffer are this many values further apart than they are long. At a power of two, equal positions of all
# rows would share one set of cache lines, and the product takes a seventh more time.
PADDING = 24
READ_AHEAD = 2


def gram_of(
    study: Study,
    table: object,
    progress: Progress | None = None,
    *,
    extra_columns: ExtraColumns = "refuse",
    chunk_rows: int | None = None,
) -> tuple[Gram, RowReport]:
    """The exact Gram matrix of a table, and what was done to its rows.

    ``progress`` is called with the number of rows read so far. ``chunk_rows`` sets how many rows go into one matrix
    product; the result does not depend on it. Where the study averages groups of rows, the last rows that fill no group
    are left out.
    """
    source = open_table(table, study, extra_columns)
    encoder = Encoder(study)
    k = study.average_rows
    groups = min((chunk_rows or best_chunk_rows(study)) // k, max_chunk_rows(study.bits, k))
    size = k * max(groups, 1)
    buffer = np.empty((study.d + 2, size + PADDING))[:, :size]
    gram = Gram.empty(study)
    read = filled = 0
    for batch in _ahead(source.batches()) if source.from_disk else source.batches():
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, size - filled)
            room = buffer[:, filled : filled + part.num_rows]
            filled += encoder.encode(part, read + start, out=room).shape[1]
            start += part.num_rows
            if filled == size:
                gram, filled = gram.add_chunk(_sums_of_groups(buffer, k)), 0
        read += batch.num_rows
        if progress is not None:
            progress(read)
    if read == 0:
        raise DataError(f"{source.label} has no rows (a reader can be read only once); give a table with rows.")
    left = filled % k
    gram = gram.add_chunk(_sums_of_groups(buffer[:, : filled - left], k))
    return gram, encoder.report(left_over=left)


def _sums_of_groups(w: Floats, k: int) -> Floats:
    """Sums of k rows each, in the order of the table, which says nothing of their values."""
    return w if k == 1 else w.reshape(w.shape[0], -1, k).sum(axis=2)


def best_chunk_rows(study: Study) -> int:
    """How many rows of this study fill the buffer: a power of two."""
    rows = BUFFER_VALUES // (study.d + 2)
    return 1 << max(8, min(15, rows.bit_length() - 1))


def _ahead(batches: Batches) -> Iterator["pa.RecordBatch"]:
    """The same batches, read ahead by one other thread; errors come where their batch would have come."""
    with ThreadPoolExecutor(1, thread_name_prefix="noisewise-reader") as reader:
        try:
            pending = deque(reader.submit(next, batches, None) for _ in range(READ_AHEAD))
            while (batch := pending.popleft().result()) is not None:
                pending.append(reader.submit(next, batches, None))
                yield batch
        finally:
            reader.shutdown(cancel_futures=True)
