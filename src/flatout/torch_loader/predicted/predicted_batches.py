"""One pass over a loader without workers whose random samples other processes make, from predicted states.

The data set draws from the script's own streams, in between the draws of the training step. A process can make a batch
early if it knows where the streams will stand when the script asks for it. That is predicted; when the script asks, the
streams are compared with the state that the process began from. Equal: the batch is the one that would have been made
here, and the streams are set to where the process left them. Unequal: the batch is made here, as ever.
"""

import time
import weakref
from typing import TYPE_CHECKING, Any

from flatout.torch_loader.predicted.early_batches import WorkerHangsError
from flatout.torch_loader.predicted.numbered_indices import NumberedIndices
from flatout.torch_loader.predicted.predicted_loader import PredictedLoader
from flatout.torch_loader.predicted.random_streams import StreamState, at_one_place
from flatout.torch_loader.predicted.sample_worker import Made
from flatout.torch_loader.predicted.schedule import Schedule, size_of
from flatout.torch_loader.worker_pool import IndicesAhead
from flatout.watch.dataset_state import same
from flatout.watch.files.opened_files import are_as_before
from flatout.watch.main_thread import off_main_thread

if TYPE_CHECKING:
    from flatout.torch_loader.handover import BatchHere

__all__ = ["PredictedBatches"]

_LOSSES = 3  # of processes; after more of them no others are started


class PredictedBatches:
    """Where one iterator of the script gets its batches from; it holds neither that iterator nor a `Handover`."""

    def __init__(
        self, loader: Any, kept: PredictedLoader, here: "BatchHere", ahead: IndicesAhead, *, first: Any = None
    ) -> None:
        """Begin a pass; `first`: its first batch, where that was delivered already."""
        self._loader, self._kept, self._here, self._sample = loader, kept, here, first
        self._number = int(first is not None)
        self._indices = NumberedIndices(ahead, self._number)
        self._left: tuple[tuple[StreamState, ...], int] | None = None  # the streams after the last batch, and its size
        self._schedule: Schedule | None = None
        self._peeked: tuple[int, Any] | None = None
        self._alone: bool | None = None  # batches are made here; None: not known yet
        kept.share.passes += 1
        kept.share.asked += self._number
        self.finished = False

    def __call__(self, _: Any) -> Any:
        """Return the next batch, as a stage of a `Handover`."""
        index, number = self._take(), self._number
        self._number += 1
        self._kept.share.asked += 1
        if self._alone is None:
            self._alone = not self._begun()
        if self._alone or self._kept.backoff.rests():
            self._left = None
            self._stop()
            return self._here.make(index)
        now = self._kept.streams.read()
        if self._kept.to_prove and number:
            return self._proved(number, index, now)
        try:
            found = self._from_worker(number, index, now)
        except (EOFError, OSError, WorkerHangsError):
            self._lost()
            found = None
        return self._made_here(number, index, now) if found is None else found[0]

    def peek(self) -> Any:
        """Return the next batch if another process has made it already, else None; it may yet turn out wrong."""
        early, number = self._kept.early, self._number
        if self._peeked is None and not self._alone and early is not None and self._schedule is not None:
            try:
                if early.arrived(number) and early.made(number).parcel is not None:
                    self._peeked = number, self._here.pinned(early.unpacked(early.made(number)))
            except (EOFError, OSError):
                return None
        return None if self._peeked is None or self._peeked[0] != number else self._peeked[1]

    # -- a pass -----------------------------------------------------------------------------------------------------

    def _take(self) -> Any:
        """Return the index of the next batch; StopIteration ends the pass."""
        try:
            return self._indices.take()
        except StopIteration:
            self.finished = True
            if not self._alone:
                self._kept.end_pass()
            raise

    def _begun(self) -> bool:
        """Have processes for this pass; return whether there are some."""
        user = self._kept.user() if self._kept.user is not None else None
        if off_main_thread() or (user is not None and not user.finished):
            return False
        try:
            against = self._kept.begin(self._loader, self._here.fetch, self._sample)
        except Exception as error:
            against = f"has workers that could not be started ({type(error).__name__})"
        self._sample = None
        if against:
            self._give_up(against)
            return False
        self._kept.user = weakref.ref(self)
        return True

    def _made_here(self, number: int, index: Any, now: tuple[StreamState, ...]) -> Any:
        """Make a batch here and count what it draws; others begin with the next ones meanwhile where that is known."""
        kept, size, schedule = self._kept, size_of(index), None
        self._count_step(now)
        between = kept.pattern.words_between(size)
        if kept.pattern.is_fixed and between is not None:
            schedule = self._from(number + 1, now, between)
        start = time.perf_counter()
        batch = self._here.make(index)
        kept.here_s = time.perf_counter() - start
        end = kept.streams.read()
        expected = self._note(now, end, size)
        if not (schedule and expected):
            self._go_on(number + 1, end, size)
        self._left = end, size
        return batch

    def _from_worker(self, number: int, index: Any, now: tuple[StreamState, ...]) -> tuple[Any] | None:
        """Return the batch that another process has made, None where it is to be made here."""
        kept, early, began = self._kept, self._kept.early, time.perf_counter()
        if early is None:
            return None
        if number not in early:
            if number:
                kept.backoff.missed()
            return None
        start = early.began(number)
        if not at_one_place(start, now):
            kept.backoff.missed()
            return None
        made = early.made(number)
        if not kept.stands():
            self._changed()
            return None
        if made.against:
            self._give_up(made.against)
            return None
        if made.parcel is None or not are_as_before(dict(made.files)):
            kept.backoff.missed()
            return None
        batch = self._unpacked(number, made)
        kept.pattern.stepped_as_expected()
        kept.backoff.hit(time.perf_counter() - began, kept.here_s)
        self._taken(number, size_of(index), now, (start, made.end))
        return (batch,)

    def _taken(
        self, number: int, size: int, now: tuple[StreamState, ...], theirs: tuple[tuple[StreamState, ...], ...]
    ) -> None:
        """Set the streams to where the batch leaves them, and see to the next ones; `theirs`: its start and end."""
        kept, early = self._kept, self._kept.early
        end = kept.streams.settled(now, *theirs)
        kept.streams.write(end, now)
        kept.share.taken += 1
        kept.plan.hit()
        assert early is not None
        early.release(number)
        expected, self._left = self._note(now, end, size), (end, size)
        in_turn = self._schedule is not None and self._schedule.in_turn
        if in_turn != kept.pattern.is_fixed or (in_turn and not expected):
            self._go_on(number + 1, end, size)
        else:
            self._fill()

    def _unpacked(self, number: int, made: Made) -> Any:
        peeked, self._peeked = self._peeked, None
        if peeked is not None and peeked[0] == number:
            return peeked[1]
        assert self._kept.early is not None
        return self._here.pinned(self._kept.early.unpacked(made))

    # -- the first batches are made twice ---------------------------------------------------------------------------

    def _proved(self, number: int, index: Any, now: tuple[StreamState, ...]) -> Any:
        """Make a batch here and in another process, and compare."""
        kept, early, size = self._kept, self._kept.early, size_of(index)
        self._count_step(now)
        asked = early is not None and (early.count > 1 or number % 2 == 1)
        if early is not None and asked:  # of one process every second one: what moves unseen is then seen
            early.forget()
            early.give(number % early.count, number, index, now, (0,) * len(now))
        start = time.perf_counter()
        batch = self._here.make(index)
        kept.here_s = time.perf_counter() - start
        end = kept.streams.read()
        self._note(now, end, size)
        self._left = end, size
        if asked and self._agrees(number, batch, end):
            kept.to_prove -= 1
            if not kept.to_prove:
                self._go_on(number + 1, end, size)
        return batch

    def _agrees(self, number: int, batch: Any, end: tuple[StreamState, ...]) -> bool:
        """Return whether another process has made the same batch; where not, none will be asked again."""
        kept, early = self._kept, self._kept.early
        assert early is not None
        try:
            made = early.made(number)
            equal = made.parcel is not None and same(batch, self._here.pinned(early.unpacked(made)))
        except (EOFError, OSError, WorkerHangsError):
            self._lost()
            return False
        early.release(number)
        if not kept.stands():
            self._changed()
        elif made.against:
            self._give_up(made.against)
        elif not (equal and at_one_place(end, made.end)):
            self._give_up("gives other batches in a worker")
        elif not kept.is_unharmed(deep=kept.to_prove == 1):
            self._give_up("changes while it is read")
        else:
            return True
        return False

    # -- what comes next --------------------------------------------------------------------------------------------

    def _count_step(self, now: tuple[StreamState, ...]) -> None:
        """Count the words of the step before this batch."""
        if self._left is not None:
            end, size = self._left
            self._kept.pattern.stepped(self._kept.streams.words(end, now), size)
        self._left = None

    def _note(self, start: tuple[StreamState, ...], end: tuple[StreamState, ...], size: int) -> bool:
        streams = self._kept.streams
        return self._kept.pattern.drawn(streams.residues(start, end), size, lambda: streams.words(start, end))

    def _go_on(self, number: int, end: tuple[StreamState, ...], size: int) -> None:
        """Have the batches from `number` on made anew; the streams stand at `end`, after a batch of so many samples."""
        step = self._kept.pattern.words_of_step(size)
        if step is None:
            self._stop()
        else:
            self._from(number, end, step)

    def _from(self, number: int, state: tuple[StreamState, ...], words: tuple[int, ...]) -> Schedule | None:
        early = self._kept.early
        if early is None:
            return None
        if self._indices.has(number):  # else the pass ends before
            state = self._kept.streams.advanced(state, words)
            self._schedule = Schedule(early, self._kept.pattern, number, state)
            self._fill()
            return self._schedule
        self._stop()
        return None

    def _stop(self) -> None:
        """Want no batches from elsewhere for now."""
        if self._schedule is not None and self._kept.early is not None:
            self._kept.early.forget()
        self._schedule = None

    def _fill(self) -> None:
        """Give out batches while there is room for them."""
        schedule = self._schedule
        try:
            while schedule is not None and self._indices.has(schedule.number):
                if not schedule.give(self._indices.at(schedule.number)):
                    return
        except OSError:
            self._lost()

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Make this batch here; where the data set is another one by now, those after it, too."""
        self._kept.backoff.missed()  # a setting may stay another one
        if self._kept.has_changed:
            self._kept.plan.origins.changed(self._loader)
            self._kept.end()
            self._alone = True

    def _lost(self) -> None:
        """Go on here, in this pass, without the processes."""
        self._kept.end()
        self._kept.losses += 1
        self._alone, self._schedule = True, None
        if self._kept.losses > _LOSSES:
            self._give_up("has workers that end or hang again and again")

    def _give_up(self, why: str) -> None:
        """Make all batches here, in later passes, too."""
        name = type(self._loader.dataset).__name__
        self._kept.share.reason = why if why.startswith(name) else f"{name} {why}"
        self._kept.plan.stand_back(self._kept.share.reason)
        self._kept.plan.left_alone.add(self._loader)
        self._kept.plan.predicted.pop(self._loader, None)
        self._kept.end()
        self._alone, self._schedule = True, None
