"""The batches of a pass that another process has read, by what it takes to read them again, and to see that it went so.

A batch takes four bytes here, whatever it holds.
"""

import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from flatout.torch_loader.predicted.random_streams import StreamState, WordCounts
from flatout.torch_loader.streamed.stream_place import KeptPlace
from flatout.watch.files.opened_files import FileMark, are_as_before

__all__ = ["DeliveredBatches"]

_FILES = 8  # opened last: a stream may have them open still


class DeliveredBatches:
    """What was delivered since the script's own process read a batch of this pass.

    Attributes:
        base: where the random streams stood after that one.
        place: where the stream of samples was then, as it notes that in itself.
        index: what the script's iterator asks for, the same each time.
    """

    def __init__(self, base: tuple[StreamState, ...] = (), place: KeptPlace | None = None, index: Any = None) -> None:
        """Begin after a batch that left the streams at `base`."""
        self.base, self.place, self.index = base, place, index
        self._digests = array.array("L")
        self._runs: list[tuple[WordCounts, int]] = []  # words before a batch, and at how many in a row
        self._files: OrderedDict[str, FileMark] = OrderedDict()

    def __len__(self) -> int:
        return len(self._digests)

    def __iter__(self) -> Iterator[tuple[WordCounts, int]]:
        """Yield the words between a batch and the one before, and its digest."""
        words = (words for words, count in self._runs for _ in range(count))
        return iter(zip(words, self._digests, strict=True))

    def add(self, words: WordCounts, digest: int) -> None:
        """Add a batch."""
        self._digests.append(digest)
        if self._runs and self._runs[-1][0] == words:
            self._runs[-1] = words, self._runs[-1][1] + 1
        else:
            self._runs.append((words, 1))

    def files_stand(self, files: Iterable[tuple[str, FileMark]]) -> bool:
        """Return whether `files`, opened for the next batch, and those opened last are as they were then."""
        for name, mark in files:
            self._files.setdefault(name, mark)
            self._files.move_to_end(name)
        stand = are_as_before(self._files)
        while len(self._files) > _FILES:
            self._files.popitem(last=False)
        return stand
