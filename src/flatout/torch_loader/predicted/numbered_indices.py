"""The indices of one pass by the numbers of their batches, drawn as far ahead as they are asked for."""

from typing import Any

from flatout.torch_loader.worker_pool import IndicesAhead

__all__ = ["NumberedIndices"]


class NumberedIndices:
    """Indices that were drawn and not taken yet, and those to come."""

    def __init__(self, ahead: IndicesAhead, number: int) -> None:
        """Begin with batch `number`."""
        self._ahead = ahead
        self._taken = self._drawn = number
        self._found: dict[int, Any] = {}

    def take(self) -> Any:
        """Return the index of the next batch, and let the draws for it be seen; StopIteration ends the pass."""
        index = self._ahead.take()
        if self._taken in self._found:
            del self._found[self._taken]
        else:
            self._drawn += 1
        self._taken += 1
        return index

    def has(self, number: int) -> bool:
        """Return whether there is a batch `number`, one of those drawn or the next one."""
        if number == self._drawn:
            try:
                self._found[number] = next(self._ahead)
            except StopIteration:
                return False
            self._drawn += 1
        return number in self._found

    def at(self, number: int) -> Any:
        """Return the index of a batch that there is."""
        return self._found[number]
