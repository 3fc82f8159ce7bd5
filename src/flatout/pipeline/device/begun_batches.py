"""Batches begun before they are asked for."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from flatout.watch.script_signals import any_but_signals

__all__ = ["BegunBatches"]

T = TypeVar("T")


class BegunBatches(Generic[T]):
    """What `take` gives, in its order, `number` of them begun ahead while `may()` says so.

    Errors come at their turn.
    """

    def __init__(self, take: Callable[[], T], may: Callable[[], bool], number: int = 1) -> None:
        """Begin nothing yet; `take` raises StopIteration at the end."""
        self._take, self._may, self._number = take, may, number
        self._begun: deque[tuple[list[T], Exception | None]] = deque()

    def next(self) -> T:
        """Return the next one, or raise what was raised for it."""
        while not self._begun or (len(self._begun) <= self._number and self._begun[-1][1] is None and self._may()):
            try:
                self._begun.append(([self._take()], None))
            except StopIteration as end:  # which may wait here for long: its frames, and what they hold, need not
                self._begun.append(([], end.with_traceback(None)))
            except any_but_signals() as error:
                self._begun.append(([], error))
        taken, failed = self._begun.popleft()
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # its traceback holds this frame: a circle, in which the pass and its threads would live on
        return taken[0]
