"""What is noted while the script's own iterator makes batches: their indices, and whether it drew random numbers."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flatout.watch.dataset_state import random_states, undrawn
from flatout.watch.files.opened_files import FileMark, OpenedFiles
from flatout.watch.first_use import Attributes
from flatout.watch.memory.object_graph import available
from flatout.watch.state_watch import StateWatch

__all__ = ["CheckedCollate", "Flagged", "NotedSampler", "StrictCollate"]


_SETTLING = 2  # times that a data set may set itself up while it is read


class Flagged(NamedTuple):
    """A batch from a worker, whether random numbers were drawn for it, and what else speaks against keeping it."""

    batch: Any
    drew: bool
    against: str = ""
    files: tuple[tuple[str, FileMark], ...] = ()  # that were opened for it, as they were then


class CheckedCollate:
    """The script's collate function, with a look at the random streams after each batch; lives in a worker."""

    def __init__(self, collate: Callable[..., Any], init: Callable[[int], Any] | None) -> None:
        """Take the script's own functions."""
        self._collate = self._theirs = collate
        self._init = init
        self._before = random_states()
        self._watch: StateWatch | None = None
        self._attributes: Attributes | None = None
        self._settling = _SETTLING

    def begin(self, worker_id: int) -> None:
        """Start in a worker, whose streams have just been seeded."""
        if self._init is not None:
            self._init(worker_id)
        self._watched()
        self._before = random_states()

    def _watched(self) -> None:
        told = sys.modules["torch"].utils.data.get_worker_info()
        if told is not None and available():
            self._watch = StateWatch([(type(told.dataset).__name__, told.dataset), ("collate_fn", self._theirs)])
            self._attributes = Attributes(told.dataset, self._theirs)

    def __call__(self, samples: Any) -> Flagged:
        """Return the batch of `samples`, and whether something was drawn since the last one."""
        batch = self._collate(samples)
        after = random_states()
        drew, self._before = not undrawn(self._before, after), after
        return Flagged(batch, drew, self._changed())

    def _changed(self) -> str:
        """Return what of the data set has changed in this worker; what it sets up for its first batches may."""
        changed = "" if self._watch is None else self._watch.look()
        if changed and self._settling and self._watch is not None and self._attributes is not None:
            self._settling -= 1
            if self._attributes.only_opened(self._watch):
                self._watched()
                return ""
        return f"{changed} changes while it is read" if changed else ""


class StrictCollate(CheckedCollate):
    """The same for workers that stand in for others: a data set may set itself up at the first batch, if at all.

    It tells of the files that were opened for each batch, too.
    """

    def __init__(self, collate: Callable[..., Any], init: Callable[[int], Any] | None, *, sets_up: bool) -> None:
        """Take the script's own functions; `sets_up`: the data set may set itself up at the first batch."""
        super().__init__(collate, init)
        self._settling = int(sets_up)
        self._ear: OpenedFiles | None = None

    def begin(self, worker_id: int) -> None:
        """Start in a worker."""
        self._ear = OpenedFiles()
        super().begin(worker_id)

    def _watched(self) -> None:
        told = sys.modules["torch"].utils.data.get_worker_info()
        if told is not None and available():
            roots = [(type(told.dataset).__name__, told.dataset), ("collate_fn", self._theirs)]
            self._watch = StateWatch(roots, files="passed")
            self._attributes = Attributes(told.dataset, self._theirs)

    def __call__(self, samples: Any) -> Flagged:
        """Return the batch of `samples`, with what speaks against it."""
        made = super().__call__(samples)
        self._settling = 0
        assert self._ear is not None
        wrote = f"writes to {self._ear.written} while it is read" if self._ear.written else ""
        return made._replace(against=made.against or wrote, files=tuple(self._ear.taken().items()))


class NotedSampler:
    """The loader's own batch sampler; notes what it gives, in order, for the pass begun last."""

    def __init__(self, sampler: Any) -> None:
        """Take the loader's batch sampler."""
        self._sampler = sampler
        self.pending: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass now: some samplers draw where they are asked for an iterator, not for the first indices."""
        self.pending = deque()
        return self._noted(iter(self._sampler), self.pending)

    @staticmethod
    def _noted(given: Iterator[Any], pending: deque[Any]) -> Iterator[Any]:
        for indices in given:
            pending.append(indices)
            yield indices

    def __len__(self) -> int:
        return len(self._sampler)
