"""What the process that reads a stream ahead is a copy of, and whether the script's own is still like that."""

from collections.abc import Sequence
from typing import Any

from flatout.torch_loader.predicted.random_streams import StreamState, at_one_place
from flatout.torch_loader.streamed.stream_memory import StreamMemory
from flatout.torch_loader.streamed.stream_place import StreamPlace, settings_of
from flatout.torch_loader.worker_origins import WorkerOrigin

__all__ = ["StreamOrigin"]


class StreamOrigin(WorkerOrigin):
    """As of workers; where a stream notes in itself where it is, that is followed, and nobody else may change it.

    Attributes:
        place: where it is.
        memory: its passes, as long as nothing else has changed.
    """

    def __init__(self, loader: Any, on_change: str = "stop", room: Any = None) -> None:
        """Take everything as it is now; `room`: as in `StreamMemory`."""
        self._room, self.memory = room, StreamMemory(room)
        self.place = StreamPlace(loader.dataset)
        self._settings = settings_of(self.place)
        super().__init__(loader, on_change, left_out=self.place.left_out, instead=self.place.others)

    def begins(self, loader: Any) -> bool:
        """Return whether a process that is forked now for a pass over `loader` would be the same, but for its place."""
        if self.place.differs():
            return False
        self.place.take()
        settings = settings_of(self.place)
        if settings != self._settings:
            self._settings, self.memory = settings, StreamMemory(self._room)
        return super().begins(loader)

    def holds(self, batches: int = 1) -> bool:
        """Return whether everything is as it was, as far as is seen at once; for every batch."""
        self.changed = self.changed or self.place.touched()
        return not self.place.begun_anew() and super().holds(batches)

    def drawn_in_threads(self, before: Sequence[StreamState], after: Sequence[StreamState]) -> str:
        """Return that threads of the stream may have drawn random numbers, in any order; "" where nothing was drawn."""
        alike = len(before) == len(after)  # else the stream has set up another generator
        still = not self.place.in_threads or (alike and at_one_place(before, after))
        return "" if still else "draws random numbers while threads of its own read several sources"

    def changed_by_reading(self) -> str:
        """Return what reading a batch has changed besides where the stream is, an empty string for nothing."""
        self.place.take()
        return super().changed_by_reading()
