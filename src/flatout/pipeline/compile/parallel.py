"""Work on one sample after the other, on as many threads as there are cores."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flatout.machine import usable_cores
from flatout.pipeline.cache.ranks import local_ranks

__all__ = ["cores_of_this_rank", "in_parallel", "shared"]

T = TypeVar("T")


def in_parallel(one: Callable[[int], T], number: int) -> Iterator[T]:
    """Return what `one` gives for each number below `number`, in order; it should release the interpreter's lock."""
    cores = cores_of_this_rank()
    if cores < 2 or number < 2:
        return map(one, range(number))
    with ThreadPoolExecutor(cores, thread_name_prefix="flatout-steps") as pool:  # 0.1 ms; one that stays would be left
        return pool.map(one, range(number))


def cores_of_this_rank() -> int:
    """Return on how many cores this process may work at once: its share of those that all ranks of the machine have."""
    return max(1, usable_cores() // local_ranks())


def shared(one: Callable[[int], None], number: int, threads: int) -> None:
    """Do `one` for each number below `number`, on this thread and on others, `threads` in all, which end with it.

    What one of them raises is raised here, the first of it.
    """
    turns, raised = iter(range(number)), list[BaseException]()

    def work() -> None:
        try:
            for turn in turns:  # each number comes out once, whoever asks
                if raised:
                    return
                one(turn)
        except BaseException as error:
            raised.append(error)

    others = list[threading.Thread]()
    with contextlib.suppress(RuntimeError):  # the system has no more: those that there are do the work
        for _ in range(min(threads, number) - 1):
            other = threading.Thread(target=work, name="flatout-steps", daemon=True)
            other.start()
            others.append(other)
    work()
    for other in others:
        other.join()
    if raised:
        raise raised[0]
