"""One pass over a DataLoader whose batches worker processes make, in place of the training process.

The script's own iterator stays: only where it gets its next batch from is replaced. The training process makes the
first batches itself, next to the workers, and compares: workers take over when theirs are equal to the last bit and
nothing random was drawn. Indices are drawn ahead, and kept until their batch is delivered; so whatever goes wrong
later (a worker dies, hangs, raises, draws a random number), the training process makes that very batch itself, at
the moment and in the random state in which it always did. So it does where what workers made ahead is stale: before
each batch the data set is asked whether it is what the workers are copies of.
"""

import contextlib
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flatout.torch_loader.noted_batches import Flagged
from flatout.torch_loader.predicted.predicted_batches import PredictedBatches
from flatout.torch_loader.predicted.predicted_loader import PredictedLoader, undrawable
from flatout.torch_loader.predicted.worker_shares import WorkerShares
from flatout.torch_loader.worker_origins import WorkerOrigin, WorkerOrigins
from flatout.torch_loader.worker_pool import IndicesAhead, WorkerPool, generator_of
from flatout.units import format_ms
from flatout.watch.dataset_state import (
    drawn_on_device,
    holds_generator,
    parts,
    random_states,
    same,
    undrawn,
    unsafe,
)
from flatout.watch.files.opened_files import are_as_before, mark_of

__all__ = ["BatchHere", "Handover", "HandoverPlan", "must_stay"]

_WORTH_S = 0.4e-3  # a batch that is made sooner costs more to hand over: 0.2 ms of messages and a copy at 1.7 GB/s
_HANG_S, _HANG_TIMES = 60.0, 50  # a batch that takes this long, and so many times what it took here, never comes


@dataclass(slots=True, kw_only=True)
class HandoverPlan:
    """What is wanted, who is told, and what is known of each loader so far."""

    workers: int
    hit: Callable[[], None]  # a batch was delivered in this way
    stand_back: Callable[[str], None] = lambda reason: None  # a loader is left alone, and why
    prefetch: int = 2  # batches ahead, a worker
    persistent: bool = False
    left_alone: Any = field(default_factory=weakref.WeakSet)  # loaders that workers must not serve
    proven: Any = field(default_factory=weakref.WeakKeyDictionary)  # loaders whose workers made equal batches -> s each
    pools: Any = field(default_factory=weakref.WeakKeyDictionary)  # loader -> workers kept for the next pass
    origins: WorkerOrigins = field(default_factory=WorkerOrigins)
    predict: bool = False  # random samples are made from predicted states of the streams
    predicted: Any = field(default_factory=weakref.WeakKeyDictionary)  # loader -> what is kept for that
    shares: WorkerShares = field(default_factory=WorkerShares)  # what became of the batches of such loaders
    where: Callable[[], str] = str  # the line of the script that walks a loader


class BatchHere:
    """Makes batches in this process, as the script's own iterator does.

    Attributes:
        fetch: returns the batch of an index, not pinned.
    """

    def __init__(self, iterator: Any) -> None:
        """Take what that iterator makes them with."""
        self.fetch = iterator._dataset_fetcher.fetch
        self._pin = iterator._pin_memory_device if iterator._pin_memory else None

    def make(self, index: Any) -> Any:
        """Return the batch of the samples that a sampler has drawn."""
        return self.pinned(self.fetch(index))

    def pinned(self, data: Any) -> Any:
        """Return a batch in pinned memory where the script asks for that."""
        if self._pin is None:
            return data
        from torch.utils.data._utils.pin_memory import pin_memory

        return pin_memory(data, self._pin)


class Handover:
    """Where one iterator of the script gets its batches from. It must not hold that iterator: the two end together."""

    def __init__(self, iterator: Any, loader: Any, plan: HandoverPlan) -> None:
        """Take over the making of batches for `iterator`, torch's single-process one."""
        self._loader = loader
        self._plan = plan
        self._here = BatchHere(iterator)
        self._ahead = IndicesAhead(iterator._sampler_iter, generator_of(loader))
        self._pool: WorkerPool | None = None
        self._to_prove = min(plan.workers, 3) + 1
        self._origin: WorkerOrigin | None = None  # what the workers are copies of
        self._mapped: dict[str, Any] = {}  # files that the data set has mapped
        self._took_s = plan.proven.get(loader, 0.0)
        self._peeked: Flagged | None = None  # taken from the workers, not delivered yet
        self.finished = False
        # Functions, not bound methods: an object that holds a method of its own is freed only by the garbage collector,
        # and the workers would live on until then.
        self._stage: Callable[[Any], Any] = Handover._begin if loader in plan.proven else Handover._first
        if loader in plan.predicted:
            self._stage = PredictedBatches(loader, plan.predicted[loader], self._here, self._ahead)
        iterator._next_data = self.next_data
        iterator._batches = self

    def next_data(self) -> Any:
        """Return the next batch, as the iterator's own method of that name does."""
        return self._stage(self)

    def peek(self) -> Any:
        """Return the next batch if a worker has made it already and drew nothing, else None."""
        if isinstance(self._stage, PredictedBatches):
            return self._stage.peek()
        if self._peeked is None and self._stage is Handover._handed and self._pool is not None and self._pool.arrived:
            self._peeked = self._received()
        return None if self._peeked is None or self._peeked.drew or self._peeked.against else self._peeked.batch

    # -- stages: each is a way to get the next batch --------------------------------------------------------------

    def _alone(self) -> Any:
        """Make it here, as the script did."""
        return self._here.make(self._ahead.take())

    def _first(self) -> Any:
        """Make the very first one here, and look at how that goes."""
        index = self._ahead.take()
        before, start = random_states(), time.perf_counter()
        data = self._here.make(index)
        self._took_s = time.perf_counter() - start
        self._stage = Handover._prove
        after, things = random_states(), (self._loader.dataset, self._loader.collate_fn)
        drew = not undrawn(before, after) or (self._plan.predict and holds_generator(*things))
        shared = unsafe(*things, generators=not self._plan.predict)  # what it has opened for itself by now
        stays = "has batches that lie on a device, or are parts of larger memory" if must_stay(data) else ""
        if drew and self._plan.predict and not (shared or stays or self._took_s < _WORTH_S):
            self._predict(data, "draws random numbers on a device" if drawn_on_device(before, after) else "")
        elif drew or shared or stays or self._took_s < _WORTH_S:
            self._give_up("draws random numbers, and workers would draw others" if drew else shared or stays)
        return data

    def _predict(self, first: Any, against: str) -> None:
        """Have batches made from predicted states of the streams, from the second one on."""
        against = against or undrawable(self._loader)
        if against:
            self._give_up(against)
            return
        share = self._plan.shares.begin(self._loader, self._plan.where())
        kept = self._plan.predicted[self._loader] = PredictedLoader(self._plan, share)
        kept.here_s = self._took_s
        self._stage = PredictedBatches(self._loader, kept, self._here, self._ahead, first=first)

    def _prove(self) -> Any:
        """Make it here and in a worker, and compare."""
        self._start()
        if self._pool is None:
            return self._alone()
        theirs = self._received()
        if not self._stands():
            return self._instead()
        start = time.perf_counter()
        ours = self._alone()
        self._took_s = min(self._took_s, time.perf_counter() - start)  # the first one may have opened files
        self._to_prove -= 1
        equal = theirs is not None and not (theirs.drew or theirs.against) and same(ours, theirs.batch)
        if not equal or self._took_s < _WORTH_S or not self._is_as_before(deep=not self._to_prove):
            changes = "changes while it is read" if self._took_s >= _WORTH_S else ""
            self._give_up(changes if equal else "gives other batches in a worker")
        elif not self._to_prove:
            self._stage = Handover._handed
            self._plan.proven[self._loader] = self._took_s
        return ours

    def _begin(self) -> Any:
        """Begin a later pass."""
        self._start()
        self._stage = Handover._handed if self._pool is not None else Handover._alone
        return self._stage(self)

    def _handed(self) -> Any:
        """Take it from the workers."""
        theirs = self._peeked or self._received()
        self._peeked = None
        if theirs is None:
            self.finished = True
            self._ended()
            return self._alone()  # which raises what the script's sampler raised
        if not self._stands():
            return self._instead()
        if theirs.drew or theirs.against:
            self._give_up("draws random numbers" if theirs.drew else str(theirs.against))
            return self._alone()
        if not are_as_before(dict(theirs.files)):
            return self._alone()
        self._ahead.take()
        self._plan.hit()
        return theirs.batch

    # -- whether what workers made stands -------------------------------------------------------------------------

    def _stands(self) -> bool:
        """Return whether the data set is what the workers are copies of."""
        return self._origin is not None and self._origin.holds() and are_as_before(self._mapped)

    def _is_as_before(self, *, deep: bool) -> bool:
        """Return whether reading the data set has left it as it was; `deep`: look at what is not seen at once, too."""
        if self._origin is None:
            return False
        return self._origin.begin_pass(live=True) if deep else not self._origin.changed_by_reading()

    def _instead(self) -> Any:
        """Make a batch here that workers made of what is no more; where a setting differs, this one alone."""
        if self._origin is None or self._origin.changed or not are_as_before(self._mapped):
            self._plan.origins.changed(self._loader)
            self._dismiss()
        return self._alone()

    def _ended(self) -> None:
        """Look at what is not seen at once.

        Raises:
            ChangedTooLate: it has changed.
        """
        if self._origin is not None and self._pool is not None:
            self._origin.end_pass()

    # -- making a batch -----------------------------------------------------------------------------------------

    def _received(self) -> Flagged | None:
        """Return what the workers give, None at the end; a batch that they cannot give is one to be made here.

        Lost, hanging, or the data set's own error: made here it raises what the script knows.
        """
        try:
            return self._pool.next() if self._pool is not None else None
        except StopIteration:
            return None
        except Exception:
            return Flagged(None, drew=True)

    def _start(self) -> None:
        """Have workers: those of the last pass where they are kept, idle, and their data set is still the script's."""
        if self._pool is not None:
            return
        try:
            if self._looked():
                self._pool = self._kept() or self._hired()
            else:
                self._give_up(self._plan.origins.reasons.get(self._loader, ""))
        except Exception as error:
            self._give_up(f"has workers that could not be started ({type(error).__name__})")

    def _looked(self) -> bool:
        """Look at what the workers will be copies of; return whether there may be any."""
        self._origin = self._plan.origins.begin_pass(self._loader, pass_s=self._took_s * len(self._loader))
        self._mapped = {} if self._origin is None else {name: mark_of(name) for name in self._origin.graph.files}
        return self._origin is not None

    def _kept(self) -> WorkerPool | None:
        """Return the workers of the last pass if they can serve this one."""
        pool: WorkerPool | None = self._plan.pools.get(self._loader)
        if pool is None or pool.busy:
            return None
        if pool.origin is not self._origin or not are_as_before(pool.set_up):
            del self._plan.pools[self._loader]
            pool.end()
            return None
        pool.again(self._ahead)
        pool.user = weakref.ref(self)
        return pool

    def _hired(self) -> WorkerPool:
        """Start workers; those of a second pass at the same time end with it."""
        assert self._origin is not None
        plan, hang_s = self._plan, max(_HANG_S, _HANG_TIMES * self._took_s)
        keep = plan.persistent and self._loader not in plan.pools
        pool = WorkerPool(
            self._loader, self._origin, self._ahead, plan.workers, plan.prefetch, persistent=keep, hang_s=hang_s
        )
        pool.user = weakref.ref(self)
        if keep:
            plan.pools[self._loader] = pool
        return pool

    def _give_up(self, why: str) -> None:
        """From now on, and in later passes, batches are made here, for what the data set does; empty: too quickly."""
        name = type(self._loader.dataset).__name__
        why = why or f"makes a batch in {format_ms(self._took_s * 1e3)}, less than handing it over is worth"
        self._plan.stand_back(why if why.startswith(name) else f"{name} {why}")
        self._plan.left_alone.add(self._loader)
        self._dismiss()
        self._plan.pools.pop(self._loader, None)

    def _dismiss(self) -> None:
        """End the workers; batches of this pass are made here from now on."""
        self._stage = Handover._alone
        if self._plan.pools.get(self._loader) is self._pool:
            self._plan.pools.pop(self._loader, None)
        if self._pool is not None:
            with contextlib.suppress(Exception):  # torch reports a worker that died from here
                self._pool.end()
            self._pool = None


def must_stay(batch: Any) -> bool:
    """Return whether a batch could not be sent as it is: it lies on a device, or is a window into something larger."""
    torch = sys.modules["torch"]
    for part in parts(batch):
        if isinstance(part, torch.Tensor):
            if part.device.type != "cpu" or part.layout != torch.strided or part.requires_grad:
                return True
            if part.untyped_storage().nbytes() > part.nbytes:
                return True
        elif getattr(part, "base", None) is not None and hasattr(part, "nbytes"):  # a view of an array
            return True
    return False
