"""One pass over a loader without workers that reads a stream, of which another process reads the next batches.

That process is a copy of the script's from the moment before the pass, and begins the same pass. The script's own
process reads the first batch, with whatever the stream sets up for itself, and in the first pass some more, and all of
them are compared. From then on it takes what the other one has read. Before each batch the random streams are compared
with the states that it was read from, and the data set with what the other process is a copy of. Where something
differs, the batches delivered so far are read again here, each from its own random state and held against what was
delivered; then the script goes on alone, exactly where it would be.
"""

import contextlib
import time
import weakref
from collections.abc import Callable
from typing import Any

from flatout.torch_loader.handover import BatchHere, must_stay
from flatout.torch_loader.predicted.batch_transport import bytes_of
from flatout.torch_loader.predicted.early_batches import WorkerHangsError
from flatout.torch_loader.predicted.random_streams import StreamState
from flatout.torch_loader.streamed.batch_digest import digest_of
from flatout.torch_loader.streamed.delivered_batches import DeliveredBatches
from flatout.torch_loader.streamed.loose_streams import undrawn
from flatout.torch_loader.streamed.read_together import ReadTogether
from flatout.torch_loader.streamed.stream_memory import KeptReader
from flatout.torch_loader.streamed.stream_reader import StreamReader
from flatout.torch_loader.streamed.stream_worker import Delivered, ReadJob
from flatout.torch_loader.streamed.streamed_loader import StreamedLoader, StreamPlan
from flatout.units import format_ms
from flatout.watch.dataset_state import same
from flatout.watch.main_thread import off_main_thread

__all__ = ["StreamPass", "walk"]

_PROOFS = 3  # batches that both read, before any is taken
_TOGETHER = 64  # batches that both read at most: who has not caught up by then is no faster
_LAG = 1  # batches that the other process may be behind by when it takes over
_TRIED = 16  # batches, after which it is known whether they are worth handing over: some come out of a buffer
_WORTH_S = 1e-3  # a batch that is read sooner costs about as much to receive
_LOST = (EOFError, OSError, WorkerHangsError)
_SETTINGS = "is read under other settings"
_IN_A_THREAD = "is read in another thread, while the main one may draw random numbers"


class StreamPass:
    """Where one iterator of the script gets its batches from; it must not hold that iterator: the two end together.

    Attributes:
        finished: no process reads for it any more.
    """

    def __init__(self, iterator: Any, loader: Any, kept: StreamedLoader, reader: StreamReader | KeptReader) -> None:
        """Take over the reading of batches for `iterator`, torch's single-process one, which has just begun."""
        self._loader, self._kept, self._reader = loader, kept, reader
        self._here, self._indices = BatchHere(iterator), iterator._sampler_iter
        self._number = 0
        self._left: tuple[StreamState, ...] = ()  # after the batch before
        self._together = ReadTogether(kept, reader)
        self._delivered = DeliveredBatches()
        self._peeked: Any = None
        # Functions, not bound methods, as in `Handover`: the process is to end with the pass.
        self._stage: Callable[[StreamPass, Any], Any] = StreamPass._both
        self.finished = False
        kept.user = weakref.ref(self)
        iterator._next_data = self.next_data
        iterator._batches = self

    def next_data(self) -> Any:
        """Return the next batch."""
        batch = self._stage(self, next(self._indices))
        self._kept.share.asked += 1
        return batch

    def peek(self) -> Any:
        """Return the next batch if it is there already, else None; it may yet turn out wrong."""
        if self._stage is not StreamPass._ahead or self._peeked is not None:
            return self._peeked
        try:
            if self._reader.arrived(self._number):
                self._unpacked(self._reader.delivered(self._number))
        except _LOST:
            return None
        return self._peeked

    # -- stages: each is a way to get the next batch --------------------------------------------------------------

    def _alone(self, index: Any) -> Any:
        """Read it here, as the script did."""
        return self._here.make(index)

    def _over(self, _: Any) -> Any:
        """Say that there are no more."""
        raise StopIteration

    def _both(self, index: Any) -> Any:
        """Read it here, and have the other process read it, too."""
        kept = self._kept
        against = self._moved()
        if against:
            self._stand_back(against)
            return self._alone(index)
        now = kept.streams.read()
        if self._number:
            kept.steps.note(kept.streams.words_of_each(self._left, now))
        batch = self._read_here(index)
        against = kept.origin.changed_by_reading() if self._number else kept.set_up(self._loader)
        against = against or kept.origin.drawn_in_threads(now, kept.streams.read())
        if must_stay(batch):
            against = against or "has batches that lie on a device, or are parts of larger memory"
        if against:
            self._stand_back(against)
            return batch
        self._left = kept.streams.read()
        try:
            self._read_too(batch, now, index)
        except _LOST:
            self._lose()
        except Exception as error:  # of what the batch is made of
            self._stand_back(f"has batches that cannot be compared ({type(error).__name__})")
        return batch

    def _ahead(self, index: Any) -> Any:
        """Take it from the other process; where that cannot be, go on alone."""
        now = self._kept.streams.read()
        try:
            found = self._received(now)
        except _LOST:
            self._kept.trouble(lost=True)
            found = None
        if found is not None:
            return self._taken(now, found)
        self._catch_up(index, now)
        return self._alone(index)

    # -- both read ------------------------------------------------------------------------------------------------

    def _moved(self) -> str:
        """Return what has changed since the batch before, an empty string for nothing."""
        if off_main_thread():
            return _IN_A_THREAD
        origin = self._kept.origin
        if not self._number or origin.holds(0):
            return ""
        if origin.changed:
            return f"changes while it is walked: {origin.changed}"
        return "is read elsewhere, too, in the middle of a pass" if origin.place.begun_anew() else _SETTINGS

    def _read_here(self, index: Any) -> Any:
        start = time.perf_counter()
        try:
            batch = self._here.make(index)
        except BaseException:  # the stream's end, too
            self._go_alone()
            raise
        self._kept.took(time.perf_counter() - start, self._number)
        return batch

    def _read_too(self, batch: Any, now: tuple[StreamState, ...], index: Any) -> None:
        """Have a batch that began from `now` read by the other process, too; see whether the next are to be taken."""
        kept = self._kept
        kept.batch_bytes = max(kept.batch_bytes, bytes_of(batch))
        self._together.add(self._number, batch, now, self._left)
        self._number += 1
        if kept.proven:
            self._go_ahead(index)
            return
        against = self._together.against(wait=False)
        is_worth_it = kept.here_s >= _WORTH_S
        if kept.share.asked + 1 >= _TRIED and not is_worth_it:  # of all passes
            took = format_ms(kept.here_s * 1e3)
            against = against or f"makes a batch in {took}, less than handing it over is worth"
        if against or self._number >= _TOGETHER:
            self._stand_back(against or "is read no faster by another process")
        elif self._number >= _PROOFS and len(self._together) <= _LAG and is_worth_it:
            self._go_ahead(index)

    # -- the other process reads ahead ----------------------------------------------------------------------------

    def _go_ahead(self, index: Any) -> None:
        self._delivered = DeliveredBatches(self._left, self._kept.origin.place.keep(), index)
        self._stage = StreamPass._ahead
        self._fill()

    def _fill(self) -> None:
        words = self._kept.steps.expected(len(self._left))
        while self._reader.given < self._number + self._reader.depth:
            self._reader.give(ReadJob(self._reader.given, None, words))

    def _received(self, now: tuple[StreamState, ...]) -> Delivered | None:
        """Return the next batch as it was sent, None where it is not the one that would be read here."""
        kept, reader, began = self._kept, self._reader, time.perf_counter()
        against = _IN_A_THREAD if off_main_thread() else self._together.against(wait=True)
        if against:
            self._late(against == _IN_A_THREAD or not isinstance(reader, KeptReader))
            kept.give_up(against)
            return None
        kept.proven = True
        start = reader.started(self._number)
        if kept.loose.differ(start, now):
            kept.steps.note(kept.streams.words_of_each(self._left, now))
            kept.trouble(missed=True)
            return None
        found = reader.delivered(self._number)
        if kept.loose.differ(start, now, found.end):
            kept.trouble(missed=True)
            return None
        if not kept.origin.holds():
            self._changed()
            return None
        against = found.against or kept.origin.drawn_in_threads(start, found.end)
        if against:
            kept.give_up(against)
            return None
        kept.waited(time.perf_counter() - began)
        if found.failed or not (self._delivered.files_stand(found.files) and self._unpacked(found)):
            return None
        return found

    def _unpacked(self, found: Delivered) -> bool:
        """Have the batch that was sent, if any; return whether it could be read."""
        if self._peeked is None and found.parcel is not None:
            try:
                self._peeked = self._here.pinned(self._reader.unpacked(found))
            except Exception:  # read in this process it raises what the script knows, or nothing
                return False
        return True

    def _taken(self, now: tuple[StreamState, ...], found: Delivered) -> Any:
        """Set the streams to where the batch leaves them, and return it; StopIteration where there was none."""
        kept, reader = self._kept, self._reader
        start = reader.started(self._number)
        still = undrawn(start, found.end)
        settled = kept.streams.settled(now, start, found.end)
        self._left = tuple([here if each else to for each, here, to in zip(still, now, settled, strict=True)])
        kept.streams.write(self._left, now)
        if found.place is not None:
            kept.origin.place.write(found.place)
        kept.origin.memory.heard(found.files)
        if found.ended:
            self._late(kept.origin.memory.end(found.place))
            self._go_alone(StreamPass._over)
            kept.end_pass()
            raise StopIteration
        batch, self._peeked = self._peeked, None
        kept.origin.memory.add(batch, found.digest, found.place, drew=not all(still))
        reader.taken(self._number)
        self._delivered.add(found.words, found.digest)
        self._number += 1
        kept.share.taken += 1
        kept.plan.hit()
        with contextlib.suppress(*_LOST):  # seen at the next batch
            self._fill()
        return batch

    def _late(self, right: bool) -> None:
        """Say so where batches that came from memory may not have been right.

        Raises:
            ChangedTooLate: they may not.
        """
        if not right:
            self._reader.end()
            self._kept.origin.too_late("what the stream reads", in_this_pass=False)

    # -- what goes wrong ------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Note that the data set is no more what the other process is a copy of.

        Raises:
            ChangedTooLate: what was delivered cannot be read again as it was.
        """
        origin = self._kept.origin
        if origin.changed and len(self._delivered):
            self._reader.end()
            origin.too_late(origin.changed)

    def _catch_up(self, index: Any, now: tuple[StreamState, ...]) -> None:
        """Read here what was delivered, and go on alone; the streams stand at `now` before and after.

        Raises:
            ChangedTooLate: it is not what was delivered.
        """
        streams, end, again = self._kept.streams, self._delivered.base, True
        delivered, place = self._delivered, self._kept.origin.place
        reached, anew = place.seen, place.keep() if place.begun_anew() else None
        self._go_alone()
        if delivered.place is not None:
            place.put_back(delivered.place)
        try:
            for words, digest in delivered:
                streams.write(streams.advanced(end, words))
                again = digest_of(self._here.fetch(index)) == digest
                end = streams.read()
                if not again:
                    break
            place.take()
            again = again and same(place.seen, reached)
        except Exception:  # StopIteration, too
            again = False
        finally:
            streams.write(now)
            if anew is not None:
                place.put_back(anew)
        if not again:
            self._kept.origin.too_late("what the stream reads")

    def _stand_back(self, why: str) -> None:
        """Go on alone, in later passes, too; nothing was taken from the other process."""
        self._kept.give_up(why)
        self._go_alone()

    def _lose(self) -> None:
        self._kept.trouble(lost=True)
        self._go_alone()

    def _go_alone(self, stage: Any = None) -> None:
        """End the other process."""
        self._stage, self.finished = stage or StreamPass._alone, True
        self._kept.origin.memory.leave()
        self._peeked = None
        self._delivered = DeliveredBatches()
        self._reader.end()


def walk(loader: Any, plan: StreamPlan, original: Callable[[Any], Any]) -> Any:
    """Return the iterator that `original` gives for a pass over `loader`, which reads a stream without workers."""
    kept = plan.of(loader)
    reader = kept.begin(loader)
    iterator = original(loader)
    if reader is None:
        return iterator
    if type(iterator).__name__ == "_SingleProcessDataLoaderIter":
        StreamPass(iterator, loader, kept, reader)
    else:
        reader.end()
    return iterator
