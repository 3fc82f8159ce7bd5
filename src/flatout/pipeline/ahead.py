"""Batches begun before they are asked for."""

import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from flatout.pipeline.after_step import AfterStep

__all__ = ["Ahead"]

T = TypeVar("T")


class Ahead(Generic[T]):
    """What `take` gives, in its order, one begun ahead while `may()` says so: before the one before it is given out.

    With `after`, it is begun later, once the step on that one is queued. Errors come at their turn.
    """

    def __init__(self, take: Callable[[], T], may: Callable[[], bool], after: AfterStep | None = None) -> None:
        """Begin nothing yet; `take` raises StopIteration at the end."""
        self._take, self._may, self._after = take, may, after
        self._begun: deque[tuple[list[T], Exception | None]] = deque()
        alive = weakref.WeakMethod(self._begin_if_may)
        self._begin_later = lambda: _call(alive)

    def next(self) -> T:
        """Return the next one, or raise what was raised for it."""
        if not self._begun:
            self._begin()
        if self._after is None or not self._after.puts_off(self._begin_later):
            self._begin_if_may()
        taken, failed = self._begun.popleft()
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # its traceback holds this frame: a circle, in which the pass and its threads would live on
        return taken[0]

    def _begin(self) -> None:
        try:
            self._begun.append(([self._take()], None))
        except Exception as error:  # the end, too
            self._begun.append(([], error))

    def _begin_if_may(self) -> None:
        ended = bool(self._begun) and self._begun[-1][1] is not None
        if len(self._begun) <= 1 and not ended and self._may():
            self._begin()


def _call(method: "weakref.WeakMethod[Callable[[], None]]") -> None:
    alive = method()
    if alive is not None:
        alive()
