"""Passes over a stream that came out the same, kept: from the third one on its batches come from memory.

Nothing says of a stream that its samples are the same in each pass but the passes themselves. So two whole ones are
read by other processes, from random states of their own; where no batch of either draws, and all are equal to the last
bit, those of the second are kept. The script's own process still begins each pass and reads its first batch, which is
compared, and every so often a whole pass is read again.
"""

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from flatout.torch_loader.predicted.batch_transport import Parcel
from flatout.torch_loader.predicted.random_streams import StreamSet, StreamState
from flatout.torch_loader.streamed.batch_digest import digest_of
from flatout.torch_loader.streamed.stream_place import NotedPlace
from flatout.torch_loader.streamed.stream_worker import Delivered, ReadJob
from flatout.watch.files.opened_files import FileMark, are_as_before

__all__ = ["KeptBatches", "KeptReader", "StreamMemory"]

_AGAIN = 8  # the pass of so many that is read again
_FEW = 12  # files that are looked at before each batch; more, at the beginning of a pass and at its end
_Room = Callable[[int, object], bool]


class KeptBatches(NamedTuple):
    """How many batches are kept.

    Attributes:
        number: so many.
        num_bytes: they take so much memory.
        given: so many came from there.
        reason: why none are, as far as that is known.
    """

    number: int = 0
    num_bytes: int = 0
    given: int = 0
    reason: str = ""


class _KeptBatch(NamedTuple):
    digest: int
    place: NotedPlace | None
    batch: Any = None


class _Record:
    """One pass, as it is read."""

    def __init__(self) -> None:
        self.batches: list[_KeptBatch] = []
        self.num_bytes = 0
        self.files: dict[str, FileMark] = {}
        self.place: NotedPlace | None = None  # at the end
        self.drew, self.given = False, 0

    @property
    def marks(self) -> list[int]:
        return [each.digest for each in self.batches]


class StreamMemory:
    """What is kept of one loader over a stream, as long as that is what it was.

    Attributes:
        reason: why nothing is kept, as far as that is known.
    """

    def __init__(self, room: _Room | None = None) -> None:
        """Keep nothing yet; `room(num_bytes, owner)` takes memory until the owner is gone; None: nothing is kept."""
        self._room, self.reason = room, ""
        self._record: _Record | None = None
        self._whole: _Record | None = None  # the last pass that was read to its end
        self._kept: _Record | None = None
        self._served = 0

    def reader(self, streams: StreamSet) -> "KeptReader | None":
        """Return what gives the batches of a new pass from memory; None where it is to be read, and be heard of."""
        self._record = None
        if self._kept is not None and not are_as_before(self._kept.files):
            self._kept = self._whole = None
        if self._kept is None or self._served % _AGAIN == _AGAIN - 1:
            self._served += self._kept is not None
            self._record = None if self._room is None or self.reason else _Record()
            return None
        self._served += 1
        return KeptReader(self._kept, streams)

    def add(self, batch: Any, digest: int, place: NotedPlace | None, *, drew: bool) -> None:
        """Take the next batch of a pass; `drew`: a random stream has moved."""
        record = self._record
        if record is None:
            return
        record.drew |= drew
        wanted = self._whole is not None and self._kept is None and not record.drew
        kept = _KeptBatch(digest, place)
        if wanted:
            try:
                record.num_bytes += len(pickle.dumps(batch, 5))
                kept = kept._replace(batch=copy.deepcopy(batch))
                wanted = digest_of(kept.batch) == digest
            except Exception:
                wanted = False
            if not wanted:
                self._refuse("its batches cannot be copied")
                return
        record.batches.append(kept)

    def heard(self, files: tuple[tuple[str, FileMark], ...]) -> None:
        """Take the files that were opened for a batch."""
        if self._record is not None:
            for name, mark in files:
                self._record.files.setdefault(name, mark)

    @property
    def kept_batches(self) -> KeptBatches:
        """Return what is kept."""
        if self._kept is None:
            return KeptBatches(reason=self.reason)
        return KeptBatches(len(self._kept.batches), self._kept.num_bytes, self._kept.given)

    def leave(self) -> None:
        """Take it that the rest of the pass is not heard of."""
        self._record = None

    def end(self, place: NotedPlace | None) -> bool:
        """Take it that the pass is over, at `place`; return False where batches from memory may have been wrong."""
        record, before = self._record, self._whole
        self._record = None
        if record is None:
            return self._kept is None or are_as_before(self._kept.files)
        record.place = place
        alike = not record.drew and before is not None and record.marks == before.marks
        if self._kept is not None:
            return alike
        if record.drew:
            self._refuse("it draws random numbers")
        elif before is not None and not alike:
            self._refuse("its passes are not the same")
        elif before is not None and self._room is not None and not self._room(record.num_bytes, record):
            self._refuse("its batches take more memory than the budget allows")
        elif before is not None:
            self._kept = record
        self._whole = record
        return True

    def _refuse(self, why: str) -> None:
        self._record, self._whole, self.reason = None, None, why


class KeptReader:
    """Gives the batches of one pass from memory, as a process does that reads it.

    Attributes:
        depth: as of such a process.
        given: how many batches it was asked for.
        begun: where the random streams stood when the script's pass had begun.
    """

    def __init__(self, kept: _Record, streams: StreamSet) -> None:
        """Give what is kept; `streams`: the random streams of this process, of which none is moved."""
        self.depth, self.given = 1, 0
        self._kept, self._streams = kept, streams
        self._first: tuple[StreamState, ...] = ()
        self.begun: tuple[StreamState, ...] = ()

    def give(self, job: ReadJob) -> None:
        """Have the next batch."""
        self.given = job.number + 1
        self._first = job.start if job.start is not None else self._first

    def opened(self) -> tuple[StreamState, ...]:
        """Return where the random streams stood when the pass had begun."""
        return self.begun

    def started(self, _number: int) -> tuple[StreamState, ...]:
        """Return the states that a batch is read from: whatever they are."""
        return self._streams.read()

    def delivered(self, number: int) -> Delivered:
        """Return what came of a batch."""
        end = self._streams.read() if number else self._first
        if number and len(self._kept.files) <= _FEW and not are_as_before(self._kept.files):
            return Delivered(number, end, failed=True)
        if number >= len(self._kept.batches):
            return Delivered(number, end, ended=True, place=self._kept.place)
        kept, words = self._kept.batches[number], (0,) * len(end)
        return Delivered(number, end, digest=kept.digest, parcel=Parcel(b""), words=words, place=kept.place)

    def arrived(self, _number: int) -> bool:
        """Return that it is known what came of a batch."""
        return True

    def taken(self, number: int) -> None:
        """Forget nothing."""

    def unpacked(self, found: Delivered) -> Any:
        """Return the batch itself, a copy that the script may write to."""
        self._kept.given += 1
        return copy.deepcopy(self._kept.batches[found.number].batch)

    def end(self) -> None:
        """End nothing."""
