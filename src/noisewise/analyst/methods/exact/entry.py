"""The two entry points of the density of ``exact`` in the C calling convention, compiled once and kept on disk.

Sampler threads call them directly, with no Python and no lock between chains.
"""

import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import carray, cfunc, types

from noisewise.analyst.methods.exact.compile import FAST
from noisewise.analyst.methods.exact.density import expand, log_density

_NUMBERS = types.CPointer(types.double)
_DENSITY = types.int64(types.uint64, _NUMBERS, _NUMBERS, _NUMBERS, types.voidptr)
_EXPAND = types.int64(types.uint64, types.uint64, _NUMBERS, _NUMBERS, types.voidptr)


class Entry(NamedTuple):
    """Compiled functions, with the attributes ``address`` and ``ctypes``."""

    density: Any
    expand: Any


def _digest() -> int:
    """Of all the code that ends up in the machine code: this folder's."""
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return zlib.crc32(code) & 0x7FFFFFFF


@cache
def entry() -> Entry:
    """Compile, or load what an earlier process compiled."""
    version = _digest()  # seen by both functions below, hence part of the key under which they are kept

    def density_(size, x_, grad_, log_p_, data_):
        length = int(carray(data_, (1,), np.float64)[0])
        data = carray(data_, (length,), np.float64)
        grad = carray(grad_, (size,))
        log_p = log_density(carray(x_, (size,)), grad, data)
        carray(log_p_, (1,))[0] = log_p
        # a code above 0 makes the sampler reject the point as a divergence
        good = np.isfinite(log_p) and np.isfinite(grad).all()
        return 0 if good and version >= 0 else 1

    def expand_(size, kept, x_, out_, data_):
        length = int(carray(data_, (1,), np.float64)[0])
        expand(carray(x_, (size,)), carray(out_, (kept,)), carray(data_, (length,), np.float64))
        return 0 if version >= 0 else 1

    options: dict[str, Any] = {"cache": True, "fastmath": FAST, "error_model": "numpy"}
    return Entry(cfunc(_DENSITY, **options)(density_), cfunc(_EXPAND, **options)(expand_))
