"""Which process makes which of the next batches, and from where in the random streams it begins."""

from typing import Any

from flatout.torch_loader.predicted.draw_pattern import DrawPattern
from flatout.torch_loader.predicted.early_batches import EarlyBatches
from flatout.torch_loader.predicted.random_streams import StreamState, WordCounts
from flatout.torch_loader.predicted.sample_worker import AFTER_END, AFTER_START

__all__ = ["Schedule", "size_of"]


class Schedule:
    """The batches of a pass from one on whose state is known, given out in order.

    Where batches take a fixed number of words they go to all processes in turn, each at its distance from the first.
    Elsewhere one process makes them one after the other: it knows itself where the last one ended.

    Attributes:
        number: of the batch that is to be given out next.
        in_turn: they go to all processes.
    """

    def __init__(self, early: EarlyBatches, pattern: DrawPattern, number: int, state: tuple[StreamState, ...]) -> None:
        """Begin with batch `number`, which starts at `state`; what earlier schedules gave out is wanted no more."""
        self.number, self.in_turn = number, pattern.is_fixed
        self._early, self._pattern, self._state = early, pattern, state
        self._offset: WordCounts = (0,) * len(state)
        self._given: dict[int, WordCounts] = {}  # worker -> where its last batch began
        self._size = 0  # of the batch before
        early.forget()

    def give(self, index: Any) -> bool:
        """Give out the next batch, the one of `index`; return whether somebody had room for it."""
        size = size_of(index)
        given = self._in_turn(index, size) if self.in_turn else self._chained(index)
        if given:
            self._size = size
            self.number += 1
        return given

    def _in_turn(self, index: Any, size: int) -> bool:
        worker, between = self.number % self._early.count, self._pattern.words_between(size)
        if between is None:
            return False
        base: tuple[StreamState, ...] | str = self._state
        words, last = self._offset, self._given.get(worker)
        if last is not None:
            base, words = AFTER_START, tuple([here - there for here, there in zip(words, last, strict=True)])
        if not self._early.give(worker, self.number, index, base, words):
            return False
        self._given[worker] = self._offset
        self._offset = tuple([here + more for here, more in zip(self._offset, between, strict=True)])
        return True

    def _chained(self, index: Any) -> bool:
        step = self._pattern.words_of_step(self._size)
        if step is None:
            return False
        first = not self._given
        base, words = (self._state, self._offset) if first else (AFTER_END, step)
        if not self._early.give(0, self.number, index, base, words):
            return False
        self._given[0] = self._offset
        return True


def size_of(index: Any) -> int:
    """Return how many samples a batch has, by what the sampler has drawn for it."""
    return len(index) if hasattr(index, "__len__") and not isinstance(index, str) else 1
