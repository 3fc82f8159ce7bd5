"""Small batches of a pass, several made at once before they are asked for: a call for each costs more than its work.

What makes them draws nothing, and what they are made of is kept: nobody can tell.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.cache.gather import Gather
from flatout.pipeline.compile.intra_op_threads import IntraOpThreads
from flatout.torch_loader.sampler_order import DrawnAhead, InOneDraw
from flatout.watch.script_signals import any_but_signals

__all__ = ["BatchBuffer"]


class BatchBuffer:
    """The batches that are made already; of all others the indices, which it yields."""

    def __init__(
        self,
        gather: Callable[[], Gather | None],
        due: Callable[[], bool],
        given: Callable[[Any], Any],
        intra_op: IntraOpThreads,
        order: InOneDraw | DrawnAhead,
        size: int,
    ) -> None:
        """Begin with none.

        Args:
            gather: returns what makes batches, None where it may not be used any more.
            due: returns whether the next batch is to be made by itself, since something is looked at with it.
            given: takes note of a batch that is given out, and returns it.
            intra_op: finds on how many threads several batches are made fastest.
            order: the indices of the batches of the pass, drawn at its first.
            size: samples of a batch.
        """
        self._order, self._size, self._gather, self._due, self._given = order, size, gather, due, given
        self._intra_op = intra_op
        self._made: deque[Any] = deque()
        self._indices = torch.empty(0, dtype=torch.int64)  # of those that were made together last
        self._by: Gather | None = None  # what made them
        self._state: tuple[object, ...] = ()  # of that, when it did
        self._undone: deque[torch.Tensor] = deque()  # indices of batches that were made and are not to be used

    def __iter__(self) -> "BatchBuffer":
        return self

    def __next__(self) -> torch.Tensor:
        """Return the indices of the next batch, which is to be made by itself."""
        if not self._undone:
            return next(self._order)
        first = self._undone[0]
        if len(first) <= self._size:
            return self._undone.popleft()
        self._undone = deque((*first.split(self._size), *list(self._undone)[1:]))
        return self._undone.popleft()

    def batch(self) -> Any:
        """Return the next batch, None where it is to be made by itself."""
        if isinstance(self._order, InOneDraw) and self._order.size != self._size:
            self._cut_anew(self._order)
        gather = self._gather()
        if self._made:
            self._undone.clear()  # an interrupt may have come between the two
        if self._made and (gather is None or gather is not self._by or gather.state() != self._state):
            self._undone.extend(self._indices.split(self._size)[-len(self._made) :])
            self._made.clear()
        if not (self._made or gather is None or self._undone or self._due()):
            self._make(gather)
        return self._given(self._made.popleft()) if self._made else None

    def _cut_anew(self, order: InOneDraw) -> None:
        """Give back what is left of batches of another size than the script wants by now."""
        made = self._indices.split(self._size)[-len(self._made) :] if self._made else ()
        order.give_back(sum(map(len, made)) + sum(map(len, self._undone)))
        self._made.clear()
        self._undone.clear()
        self._size = order.size

    def _make(self, gather: Gather) -> None:
        self._by, self._state = gather, gather.state()
        number = gather.num_at_once(self._size)
        if not number:
            return
        self._undone.append(self._order.several(number))
        self._indices = self._undone[0]  # undone for now, whatever is raised meanwhile, an interrupt too
        if not len(self._indices):
            self._undone.clear()
            return
        try:
            self._made.extend(self._intra_op.run(gather.several, self._indices, self._size))
            self._undone.clear()
        except any_but_signals():  # an odd index: who makes batches one by one knows what is to be done
            pass
