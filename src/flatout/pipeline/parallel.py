"""Work on one sample after the other, on as many threads as there are cores."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flatout.machine import usable_cores

__all__ = ["in_parallel"]

T = TypeVar("T")


def in_parallel(one: Callable[[int], T], number: int) -> Iterator[T]:
    """Return what `one` gives for each number below `number`, in order; it should release the interpreter's lock."""
    cores = usable_cores()
    if cores < 2 or number < 2:
        return map(one, range(number))
    with ThreadPoolExecutor(cores, thread_name_prefix="flatout-steps") as pool:  # 0.1 ms; one that stays would be left
        return pool.map(one, range(number))
