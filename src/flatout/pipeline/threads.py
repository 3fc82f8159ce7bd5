"""On how many threads torch computes: sums of many numbers come out otherwise on two threads than on one."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from flatout.pipeline.inspect.forked_copy import in_a_copy

__all__ = ["computing_on", "threads_of"]


def threads_of(loader: Any) -> int:
    """Return on how many threads the script's own code computes for `loader`: workers have one each."""
    return 1 if loader.num_workers else torch.get_num_threads()


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
