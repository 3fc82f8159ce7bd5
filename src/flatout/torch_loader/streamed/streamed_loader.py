"""What is kept of a loader over a stream from pass to pass, and what all such loaders of a process have in common."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flatout.torch_loader.predicted.predicted_loader import undrawable
from flatout.torch_loader.predicted.random_streams import StreamSet, unpredictable
from flatout.torch_loader.predicted.worker_shares import WorkerShare, WorkerShares
from flatout.torch_loader.streamed.closing_code import closing_code
from flatout.torch_loader.streamed.loose_streams import LooseStreams
from flatout.torch_loader.streamed.step_words import StepWords
from flatout.torch_loader.streamed.stream_memory import KeptBatches, KeptReader
from flatout.torch_loader.streamed.stream_origin import StreamOrigin
from flatout.torch_loader.streamed.stream_reader import StreamReader
from flatout.torch_loader.streamed.stream_worker import streams_of
from flatout.watch.batch_side_effects import keeps_results, unfollowed
from flatout.watch.dataset_state import unsafe
from flatout.watch.main_thread import off_main_thread
from flatout.watch.memory.object_graph import available
from flatout.watch.own_generators import generators_in

__all__ = ["StreamPlan", "StreamedLoader", "kept_batches"]

_HANG_S, _HANG_TIMES = 60.0, 50  # a batch that takes this long, and so many times what it took here, never comes
_FIRST_BYTES = 32 << 20  # of a batch of which nothing is known; what is not written takes no memory
_LOSSES, _MISSES = 3, 3  # of processes and predictions; after more of them no others are started
_LONGEST_WAIT, _FEWEST = 1.0, 16  # times what a batch takes here, where so many were waited for


@dataclass(slots=True, kw_only=True)
class StreamPlan:
    """What is wanted, who is told, and what is known of each loader so far."""

    hit: Callable[[], None]  # a batch was read by another process
    stand_back: Callable[[str], None]  # a loader is left alone, and why
    shares: WorkerShares
    where: Callable[[], str]  # the line of the script that walks a loader
    depth: int = 4  # batches that are read ahead
    on_change: str = "stop"
    room: Callable[[int, object], bool] | None = None  # takes memory for passes that are kept; None: none is
    loaders: Any = field(default_factory=weakref.WeakKeyDictionary)  # loader -> what is kept of it

    def of(self, loader: Any) -> "StreamedLoader":
        """Return what is kept of a loader."""
        kept = self.loaders.get(loader)
        if kept is None:
            share = self.shares.begin(loader, self.where())
            kept = self.loaders[loader] = StreamedLoader(self, share, type(loader.dataset).__name__)
        return kept  # type: ignore[no-any-return]


@dataclass
class _Counts:
    lost: int = 0  # processes
    missed: int = 0  # predictions
    waits: int = 0  # in the latest pass
    waited_s: float = 0.0


class StreamedLoader:
    """What is kept of a loader.

    Attributes:
        plan: of which it is one.
        share: of the batches that another process has read.
        streams: random streams that the stream may draw from.
        steps: what the steps draw.
        loose: those streams that no batch draws from.
        here_s: what a batch takes here.
        batch_bytes: of a batch.
        proven: another process has read the same batches.
        user: the pass that has a process.
    """

    def __init__(self, plan: StreamPlan, share: WorkerShare, name: str) -> None:
        """Keep nothing yet; `name`: of the data set's class."""
        self.plan, self.share, self._name = plan, share, name
        self.streams, self.steps, self.loose = StreamSet([]), StepWords(), LooseStreams()
        self.here_s, self.batch_bytes, self.proven = 0.0, 0, False
        self.user: weakref.ref[Any] | None = None
        self._origin: StreamOrigin | None = None
        self._counts = _Counts()

    @property
    def origin(self) -> StreamOrigin:
        """Return what the process is a copy of."""
        assert self._origin is not None
        return self._origin

    def begin(self, loader: Any) -> StreamReader | KeptReader | None:
        """Return a process, or memory, that begins a pass over `loader`; None where the pass is the script's own."""
        self.share.passes += 1
        user = self.user() if self.user is not None else None
        if self.share.reason or off_main_thread() or (user is not None and not user.finished):
            return None
        self._counts.waits, self._counts.waited_s = 0, 0.0
        try:
            against = unsafe(loader.dataset, loader.collate_fn, generators=False) or undrawable(loader)
            against = against or self._look(loader)
            kept = None if against else self.origin.memory.reader(self.streams)
            if kept is not None:
                return kept
            if not against:
                num_bytes, hang_s = self.batch_bytes or _FIRST_BYTES, max(_HANG_S, _HANG_TIMES * self.here_s)
                return StreamReader(loader, self.streams, self.plan.depth, batch_bytes=num_bytes, hang_s=hang_s)
        except Exception as error:
            against = f"cannot be read by another process ({type(error).__name__})"
        self.give_up(against)
        return None

    def set_up(self, loader: Any) -> str:
        """Take what the first batch of a pass has set up; return what speaks against going on, "" for nothing."""
        return self._look(loader) if self.origin.changed_by_reading() else ""

    def _look(self, loader: Any) -> str:
        if self._origin is None or not self._origin.begins(loader):
            if not available():
                return "may change unseen"
            self._origin = StreamOrigin(loader, self.plan.on_change, self.plan.room)
            keeps = "keeps results of functions (lru_cache)" if keeps_results(*_things(loader)) else ""
            against = unfollowed(self._origin) or keeps or _closing(loader, self._origin)
            if against:
                return against
        met = self._origin.graph.met.generators
        against = unpredictable([*met, *(each for thing in _things(loader) for each in generators_in(thing))])
        if not against:
            self.streams = streams_of(loader, met)
        return against

    def took(self, took_s: float, number: int) -> None:
        """Note what batch `number` of a pass took here."""
        if not self.proven:
            self.here_s += (took_s - self.here_s) / (number + 1)

    def waited(self, waited_s: float) -> None:
        """Note how long a batch was waited for."""
        self._counts.waits += 1
        self._counts.waited_s += waited_s

    def end_pass(self) -> None:
        """Look at what is not seen at once.

        Raises:
            ChangedTooLate: it has changed.
        """
        counts, memory = self._counts, self.origin.memory
        may_be_kept = self.plan.room is not None and not memory.reason
        if not may_be_kept and counts.waits >= _FEWEST and counts.waited_s > _LONGEST_WAIT * self.here_s * counts.waits:
            self.give_up("is read no faster by another process")
        self.origin.end_pass()

    def trouble(self, *, lost: bool = False, missed: bool = False) -> None:
        """Note that a process was lost, or a prediction missed; that may not go on for ever."""
        self._counts.lost += lost
        self._counts.missed += missed
        if self._counts.lost > _LOSSES:
            self.give_up("is read by processes that end or hang again and again")
        elif self._counts.missed > _MISSES:
            self.give_up("draws from a random stream that steps draw from, too, another number each time")

    def give_up(self, why: str) -> None:
        """Leave later passes to the script."""
        if not self.share.reason:
            self.share.reason = why if why.startswith(self._name) else f"{self._name} {why}"
            self.plan.stand_back(self.share.reason)


def kept_batches(streamed: StreamedLoader) -> KeptBatches:
    """Return how many batches are kept, and how many came from there."""
    return KeptBatches() if streamed._origin is None else streamed._origin.memory.kept_batches


def _closing(loader: Any, origin: StreamOrigin) -> str:
    found = closing_code(loader.dataset, *origin.place.nodes)
    return f"runs code where its pass ends ({found}), which sees how far it was read" if found else ""


def _things(loader: Any) -> tuple[Any, ...]:
    return loader.dataset, loader.collate_fn
