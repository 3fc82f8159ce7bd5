"""The workers that serve one pass over a loader, and the indices that are drawn ahead for them."""

import copy
import mmap
import sys
import time
import weakref
from collections import deque
from typing import Any

from flatout.torch_loader.lookahead import arrived
from flatout.torch_loader.noted_batches import Flagged, StrictCollate
from flatout.torch_loader.worker_origins import WorkerOrigin
from flatout.watch.files.opened_files import FileMark

__all__ = ["IndicesAhead", "WorkerPool", "draws_at_start", "generator_of"]

_LOOK_EVERY_S = 5.0  # whether the workers are alive, while a batch is waited for


class IndicesAhead:
    """The indices of one pass, drawn ahead of their batches; a generator given by the script does not show it."""

    def __init__(self, sampler_iterator: Any, generator: Any) -> None:
        """Draw from `sampler_iterator`; `generator` is the sampler's own, None when it has none."""
        self._iterator = sampler_iterator
        self._generator = generator
        self._reached: Any = None  # state of the generator at the last index drawn
        self._states: deque[Any] = deque()
        self._indices: deque[Any] = deque()
        self.exhausted = False

    def __iter__(self) -> "IndicesAhead":
        return self

    def __next__(self) -> Any:
        if self.exhausted:
            raise StopIteration
        seen = None if self._generator is None else self._generator.get_state()
        if self._reached is not None:
            self._generator.set_state(self._reached)
        try:
            index = next(self._iterator)
        except StopIteration:
            self.exhausted = True
            raise
        finally:
            if self._generator is not None:
                began = seen if self._reached is None else self._reached
                self._reached = self._generator.get_state()
                moved = not self._reached.equal(began)
                self._states.append(self._reached if moved else None)
                self._generator.set_state(seen)
        self._indices.append(index)
        return index

    def __len__(self) -> int:
        return len(self._indices)

    def fill(self) -> None:
        """Draw one index now."""
        next(self, None)

    def put_back(self, index: Any) -> None:
        """Take back the index that was taken last."""
        self._indices.appendleft(index)

    def take(self) -> Any:
        """Return the index of the batch to be delivered now and let its draws be seen; StopIteration ends the pass."""
        if not self._indices and not self.exhausted:
            next(self, None)
        if self._states and (drawn := self._states.popleft()) is not None:  # else the script may have drawn from it
            self._generator.set_state(drawn)
        if not self._indices:
            raise StopIteration
        return self._indices.popleft()


class WorkerPool:
    """The workers of one loader, as torch runs them."""

    def __init__(
        self,
        loader: Any,
        origin: WorkerOrigin,
        ahead: IndicesAhead,
        workers: int,
        prefetch: int,
        *,
        persistent: bool,
        hang_s: float,
    ) -> None:
        """Start them on the indices of `ahead`, as copies of `origin`; the main random stream does not notice."""
        import torch
        from torch.utils.data._utils import signal_handling
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        self._loader = copy.copy(loader)
        init = loader.worker_init_fn if loader.num_workers else None
        collate = StrictCollate(loader.collate_fn, init, sets_up=origin.sets_up)
        vars(self._loader).update(  # past DataLoader.__setattr__, which locks some of these
            num_workers=workers,
            prefetch_factor=prefetch,
            persistent_workers=persistent,
            generator=torch.Generator(),
            collate_fn=collate,
            worker_init_fn=collate.begin,
            timeout=_LOOK_EVERY_S,
            _iterator=None,
            _DataLoader__multiprocessing_context=_forking(),
        )
        self._feed = "sampler" if loader.batch_sampler is None else "batch_sampler"
        vars(self._loader)[self._feed] = ahead
        self._hang_s = hang_s
        self.origin, self._firsts = origin, workers
        self.set_up: dict[str, FileMark] = {}  # files that were read while copies of the data set set themselves up
        self.user: weakref.ref[Any] | None = None  # the pass that they work for
        self._iterator = _MultiProcessingDataLoaderIter(self._loader)
        # Torch raises from a signal handler, wherever the script is, when a worker that it knows of dies.
        vars(signal_handling)["_remove_worker_pids"](id(self._iterator))
        self._iterator._worker_pids_set = False

    def next(self) -> Flagged:
        """Return the next batch; StopIteration: all indices are served, RuntimeError: a worker is lost or hangs."""
        start = time.monotonic()
        while True:
            try:
                flagged: Flagged = self._iterator._next_data()
            except RuntimeError as error:
                if "timed out" in str(error) and time.monotonic() - start < self._hang_s:
                    continue  # alive, and slow
                raise
            if self._firsts:
                self._firsts -= 1
                self.set_up.update(flagged.files)
            return flagged

    def again(self, ahead: IndicesAhead) -> None:
        """Begin the next pass with the same workers."""
        vars(self._loader)[self._feed] = ahead
        self._iterator._index_sampler = ahead
        self._iterator._reset(self._loader)

    @property
    def arrived(self) -> bool:
        """Return whether the next batch is there."""
        return arrived(self._iterator)

    @property
    def busy(self) -> bool:
        """Return whether a pass that has not ended uses these workers."""
        user = self.user() if self.user is not None else None
        return user is not None and not user.finished

    def end(self) -> None:
        """End the workers."""
        self._iterator._shutdown_workers()
        self._iterator._workers.clear()  # torch asks after them once more, and complains if that is in another process


class _Flag:
    """An event of several processes in one shared byte: a process that is killed while it looks leaves no lock behind.

    `multiprocessing.Event` takes a lock for each look. Torch's workers look at it all the time, and once one was killed
    in such a moment torch, which asks the event which workers are lost, waited for that lock for ever.
    """

    def __init__(self) -> None:
        """Make it, not set; processes forked from now on share it."""
        self._byte = mmap.mmap(-1, 1)

    def is_set(self) -> bool:
        return self._byte[0] == 1

    def set(self) -> None:
        self._byte[0] = 1


def _forking() -> Any:
    """Return the context that forks processes, whose events are flags."""
    import multiprocessing.context

    class Forking(multiprocessing.context.ForkContext):
        Event = staticmethod(_Flag)  # type: ignore[assignment]

    return Forking()


def generator_of(loader: Any) -> Any:
    """Return the generator that the loader's sampler was given, None when it has none."""
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    return getattr(sampler, "generator", None)


def draws_at_start(index_sampler: Any) -> bool:
    """Return whether drawing indices early draws the same ones: the sampler uses shared streams at most for the first.

    So do torch's own samplers; of others it is not known. `index_sampler`: the loader's batch sampler, or its sampler.
    """
    from torch.utils.data import distributed, sampler

    if type(index_sampler) is sampler.BatchSampler:
        index_sampler = index_sampler.sampler
    own = getattr(index_sampler, "generator", None)
    if own is not None and own is sys.modules["torch"].default_generator:
        return False
    once = (sampler.SequentialSampler, sampler.RandomSampler, sampler.SubsetRandomSampler)
    known = (*once, sampler.WeightedRandomSampler, distributed.DistributedSampler, list, tuple, range)
    return type(index_sampler) in known
