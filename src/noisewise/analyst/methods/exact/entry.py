"""The two entry points of the density of ``exact`` in the C calling convention, compiled once and kept on disk.

Sampler threads call them directly, with no Python and no lock between chains.
"""

import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import carray, cfunc, types

from noisewise.analyst.methods.exact.compile import compiled
from noisewise.analyst.methods.exact.density import expand, log_density
from noisewise.analyst.methods.exact.layout import SOFTNESS, number
from noisewise.gram import Floats

_NUMBERS = types.CPointer(types.double)
_DENSITY = types.int64(types.uint64, _NUMBERS, _NUMBERS, _NUMBERS, types.voidptr)
_EXPAND = types.int64(types.uint64, types.uint64, _NUMBERS, _NUMBERS, types.voidptr)


class Entry(NamedTuple):
    """Compiled functions, with the attributes ``address`` and ``ctypes``."""

    density: Any
    expand: Any


def digest(*folders: Path) -> int:
    """Of all the code that ends up in the machine code."""
    files = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    return zlib.crc32(b"".join(path.read_bytes() for path in files)) & 0x7FFFFFFF


@compiled
def unpacked(data_: Any) -> Any:
    """What ``pack`` packed, from its address."""
    return carray(data_, (int(carray(data_, (1,), np.float64)[0]),), np.float64)


@compiled
def told(log_p: float, grad: Floats, log_p_: Any) -> int:
    """Hand the log density on; a code above 0 makes the sampler reject the point as a divergence."""
    carray(log_p_, (1,))[0] = log_p
    return 0 if np.isfinite(log_p) and np.isfinite(grad).all() else 1


def kept_on_disk(density_: Any, expand_: Any) -> Entry:
    """Compiled for C, or loaded if an earlier process did that."""
    options: dict[str, Any] = {"cache": True, "error_model": "numpy"}
    return Entry(cfunc(_DENSITY, **options)(density_), cfunc(_EXPAND, **options)(expand_))


@cache
def entry() -> Entry:
    """The functions of ``exact``."""
    version = digest(Path(__file__).parent)  # seen by both functions below, hence part of the key they are kept under

    def density_(size, x_, grad_, log_p_, data_):
        grad, data = carray(grad_, (size,)), unpacked(data_)
        log_p = log_density(carray(x_, (size,)), grad, data, number(data, SOFTNESS))
        return told(log_p, grad, log_p_) if version >= 0 else 1

    def expand_(size, kept, x_, out_, data_):
        expand(carray(x_, (size,)), carray(out_, (kept,)), unpacked(data_))
        return 0 if version >= 0 else 1

    return kept_on_disk(density_, expand_)
