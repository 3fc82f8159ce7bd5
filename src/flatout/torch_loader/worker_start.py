"""How a loader's workers are started, and on how many threads torch computes for it.

Sums of many numbers come out otherwise on two threads than on one.
"""

import contextlib
import multiprocessing
from collections.abc import Iterator
from typing import Any

import torch

from flatout.watch.forked_copy import in_a_copy

__all__ = ["computing_on", "start_method", "starts_anew", "threads_of"]


def threads_of(loader: Any) -> int:
    """Return on how many threads the script's own code computes for `loader`: workers have one each."""
    return 1 if loader.num_workers else torch.get_num_threads()


def start_method(loader: Any) -> str:
    """Return how workers of `loader` are started: fork, spawn or forkserver; nothing is settled by asking."""
    context = loader.multiprocessing_context or multiprocessing
    return str(context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0])


def starts_anew(loader: Any) -> bool:
    """Tell whether workers begin with modules that they import themselves, as what was set since is not theirs."""
    return start_method(loader) != "fork"


@contextlib.contextmanager
def computing_on(number: int) -> Iterator[None]:
    """Let torch compute on `number` threads."""
    before = torch.get_num_threads()
    if number == before or in_a_copy():  # a copy of the process has one thread, and would wait for others for ever
        yield
        return
    try:
        torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)
