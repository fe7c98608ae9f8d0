"""How the numerical code of ``exact`` is compiled.

Only the two entry points (``entry``) are kept on disk, under a key that holds the digest of all this code: the
compiler's own key knows one file, and would serve stale machine code after an edit of another.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])

# Sums may be reordered; NaN and infinity keep their meaning, for the sampler has to see them.
FAST = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: Function) -> Function:
    return cast(Function, njit(fastmath=FAST, error_model="numpy")(function))
