"""`@flatout.compiled`, which is there with and without numba and numpy."""

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Return `function`, with its numeric part compiled by numba where that is sure to give the same results.

    Without numba (`pip install flatout[numba]`), and where nothing in it has a compiled form, it is returned as it is.
    """
    try:
        from flatout.numeric.functions import with_compiled
    except ImportError:
        return function
    return with_compiled(function)
