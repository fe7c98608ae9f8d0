"""The entry points of the density of ``individual``, as ``exact.entry`` has them."""

from functools import cache
from pathlib import Path

from numba import carray

from noisewise.analyst.methods.exact import entry as exact
from noisewise.analyst.methods.exact.entry import Entry, digest, kept_on_disk, told, unpacked
from noisewise.analyst.methods.exact.layout import SOFTNESS, number
from noisewise.analyst.methods.individual.density import expand, log_density


@cache
def entry() -> Entry:
    """The functions of ``individual``; much of their code is that of ``exact``."""
    version = digest(Path(exact.__file__).parent, Path(__file__).parent)

    def density_(size, x_, grad_, log_p_, data_):
        grad, data = carray(grad_, (size,)), unpacked(data_)
        log_p = log_density(carray(x_, (size,)), grad, data, number(data, SOFTNESS))
        return told(log_p, grad, log_p_) if version >= 0 else 1

    def expand_(size, kept, x_, out_, data_):
        expand(carray(x_, (size,)), carray(out_, (kept,)), unpacked(data_))
        return 0 if version >= 0 else 1

    return kept_on_disk(density_, expand_)
