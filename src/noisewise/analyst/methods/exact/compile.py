"""How the numerical code of ``exact`` is compiled.

Only the two entry points (``entry``) are kept on disk, under a key that holds the digest of all this code: the
compiler's own key knows one file, and would serve stale machine code after an edit of another.

No fastmath: a seed has to give the same draws in the process that compiled as in those that load (docs/decisions/0005).
"""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    return cast(Function, njit(error_model="numpy")(function))
