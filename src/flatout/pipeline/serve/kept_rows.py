"""Rows of batches: kept as the script's own iterator delivers them, or asked for one by one, and gathered."""

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.cache.disk.disk_cache import DiskCache
from flatout.pipeline.cache.gather import Gather
from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.inspect.determinism import ask, samples_of, some_indices
from flatout.pipeline.inspect.repeated_proof import agrees_here, plain_of
from flatout.pipeline.inspect.row_independence import DRAWS
from flatout.pipeline.read.prefetch import Prefetch, asking, prefetch_for
from flatout.pipeline.read.worker_reader import WorkerReader
from flatout.pipeline.serve.batch_buffer import BatchBuffer
from flatout.pipeline.serve.decision import Reading
from flatout.pipeline.serve.loader_strategy import PROOFS, LoaderStrategy
from flatout.pipeline.serve.pass_state import PassState
from flatout.pipeline.serve.served_loader import ServedLoader
from flatout.pipeline.serve.staleness import Staleness
from flatout.torch_loader.sampler_order import Indices, OddIndices
from flatout.torch_loader.worker_start import computing_on
from flatout.watch.dataset_state import random_states, restore_random_states, undrawn
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.main_thread import off_main_thread
from flatout.watch.script_signals import any_but_signals

__all__ = ["KeptRows"]

_REHEARSED = 256  # samples that a trial's memory is filled with
_OF_OTHERS = 8  # samples of another rank that are held against the data set before others are taken
_MOST_MISSING = 0.1  # of the samples: where fewer are missing, they are made in the training process


class KeptRows(LoaderStrategy):
    """Keeps rows; from the pass on in which all are there, batches are gathered from them.

    Attributes:
        gather: the short way to a batch, None where there is none.
    """

    def __init__(
        self,
        served: ServedLoader,
        passes: PassState,
        staleness: Staleness,
        reading: Reading,
        kept_rows: RowCache | None = None,
        on_disk: DiskCache | None = None,
    ) -> None:
        """Keep rows in `kept_rows`, and between runs in `on_disk`; `reading` says who asks for samples ahead."""
        super().__init__(served, passes, staleness)
        self.kept_rows = self.kept_rows if kept_rows is None else kept_rows
        self.on_disk, self._reading = on_disk, reading
        self.gather: Gather | None = None
        self._just_read = self._rehearsed = False

    # -- passes -------------------------------------------------------------------------------------------------

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return a pass that serves, or the script's own iterator while rows are missing."""
        policy = self._served.policy
        if policy.purpose == "run" and not (self._ready or self._reading.in_flight):
            return self._passes.filling(loader, iterate, self.stands)
        self.gather, computing, timing = self.kept_rows.gather, self._served.computing_on, policy.purpose == "timing"
        prefetch = prefetch_for(loader, self._served.dataset, self._reading, self.kept_rows, computing, timing)
        follow = ready = None
        if prefetch is not None:
            follow = functools.partial(prefetch.follow, wanted=self._wanted)
        elif self.gather is not None and self.gather.parts:
            several = (self._stands_to_gather, self._is_due, self._served.given, self._passes.of_several)
            ready = functools.partial(BatchBuffer, *several)
        make = functools.partial(self.make, prefetch=prefetch)
        return self._passes.served(loader, make, follow=follow, ready=ready, ended=self._ended)

    @property
    def _ready(self) -> bool:
        """Whether batches can be served without a pass of the script's own."""
        store = self.kept_rows.store
        return store is not None and store.num_filled >= (1 - _MOST_MISSING) * store.num_samples

    def _ended(self) -> None:
        if self.successor is None or not self.successor.reason:
            self.staleness.end_pass()

    def _stands_to_gather(self) -> Gather | None:
        return self.gather if self.stands() else None

    def _is_due(self) -> bool:
        return self.staleness.due

    def _wanted(self, indices: Indices) -> torch.Tensor:
        """Return those of a batch's samples that are to be read ahead."""
        places = torch.empty(0, dtype=torch.int64) if isinstance(indices, OddIndices) else indices
        return places if self.kept_rows.direct else self.kept_rows.missing(places)

    # -- batches ------------------------------------------------------------------------------------------------

    def make(self, indices: Indices, stream: torch.Generator | None, *, prefetch: Prefetch | None = None) -> Any:
        """Return the batch of `indices`; `prefetch`: what reads samples ahead."""
        if self.successor is not None:
            return self.successor.make(indices, stream)
        if isinstance(indices, OddIndices) or not len(indices) or off_main_thread() or not self.stands():
            return self._served.as_plain(indices, stream)
        if self.gather is not None and not self.staleness.due:
            try:
                return self._served.given(self.gather.one(indices))
            except any_but_signals():  # an odd index: what follows knows what is to be done
                self.gather = None
        if self.staleness.due:
            self._prove(indices)
        return self._made(indices, stream, prefetch)

    def _made(self, indices: torch.Tensor, stream: torch.Generator | None, prefetch: Prefetch | None = None) -> Any:
        completed, batch = (False, None) if self.successor is not None else self._completed(indices, prefetch)
        if not completed:
            return self._instead(indices, stream)
        made = self._served.given(self._taken(indices, stream, prefetch) if batch is None else batch)
        if self._just_read:
            self._just_read, changed = False, self.staleness.changed_by_reading()
            if changed and not self._settles():
                self._refuse(changed)
        return made

    def _instead(self, indices: torch.Tensor, stream: torch.Generator | None) -> Any:
        """Return what follows makes of a batch that cannot be served from here."""
        if isinstance(self.successor, KeptRows):
            return self.successor._made(indices, stream)
        return self._served.as_plain(indices, stream)

    def _taken(self, indices: torch.Tensor, stream: torch.Generator | None, prefetch: Prefetch | None) -> Any:
        """Return a batch of what is kept; where that fails, the script's own."""
        try:
            return self.kept_rows.take(indices, stream)
        except any_but_signals() as error:  # the script's own call will say it, if it is the script's
            self._refuse(f"making whole batches raised {type(error).__name__}")
        return self._served.as_plain(indices, stream)

    # -- missing rows -------------------------------------------------------------------------------------------

    def _completed(self, indices: torch.Tensor, prefetch: Prefetch | None) -> tuple[bool, Any]:
        """Return whether all of `indices` can be taken, after making what was missing; their batch, if that was all.

        Where that cannot be, the random streams stand as if nothing had been tried.
        """
        missing: Any = () if self.kept_rows.full else self.kept_rows.missing(indices)
        if not len(missing):
            return True, None
        fresh = self.staleness.fresh
        if not (self._served.live or isinstance(prefetch, WorkerReader) or fresh is None or fresh.holds_here()):
            return False, None
        self._just_read = True
        before, batch = random_states(), None
        try:
            reason, batch = self._added(missing, prefetch)
        except any_but_signals() as error:  # the script's own call will say it, if it is the script's
            if self._lowered():
                restore_random_states(before)
                return False, None
            reason = f"making samples one by one raised {type(error).__name__}"
        if not reason and not undrawn(before, random_states()):
            reason = DRAWS
        if reason:
            restore_random_states(before)
            self._refuse(reason)
        self._save()
        return not reason, batch if missing is indices and self._served.by_row.stacks else None

    def _lowered(self) -> bool:
        """Return whether something else makes samples that could not be made here."""
        return False

    def _added(self, missing: torch.Tensor, prefetch: Prefetch | None) -> tuple[str, Any]:
        """Make rows; in a trial, keep something to serve from: a training has filled its memory by now."""
        if self._rehearsed or self._served.policy.purpose != "timing":
            return self._add(missing, prefetch)
        self._rehearsed = True
        some = torch.tensor(some_indices(len(self._served.dataset), _REHEARSED))
        reason, _ = self._add(some, None)
        if self.kept_rows.store is not None:
            self.kept_rows.store.repeat(some)
        return reason, None

    def _add(self, missing: torch.Tensor, prefetch: Prefetch | None) -> tuple[str, Any]:
        """Keep the rows of `missing`; return what speaks against that, and their batch."""
        wanted, served = missing.tolist(), self._served
        with computing_on(served.computing_on):
            if prefetch is not None and self._reading.in_flight:
                samples: Any = prefetch.take(wanted)
            else:
                samples = (ask if served.policy.purpose != "run" else samples_of)(served.dataset, wanted)
            made = served.by_row(samples)
            return served.by_row.against or self.kept_rows.add(served.dataset, missing, made), made

    def keep(self, indices: torch.Tensor, batch: Any, against: str) -> str:
        """Keep the rows of a batch that the script's own iterator made."""
        if self.staleness.changed:
            return ""
        try:
            with self._served.looking():
                changed = self.staleness.changed_by_reading()
                if changed and self._settles():
                    return ""
                against = against or changed or self.kept_rows.add(self._served.dataset, indices, batch)
        except any_but_signals() as error:  # the script has its batch, whatever becomes of ours
            against = f"keeping a batch raised {type(error).__name__}: {error}".splitlines()[0][:200]
        if not against:
            self._save()
        return against

    def _save(self) -> None:
        if self.on_disk is not None and self.kept_rows.full and not (self.kept_rows.direct or self.on_disk.state):
            self.on_disk.save(self._served.dataset, self.kept_rows)

    # -- what changes -------------------------------------------------------------------------------------------

    def take(self, loader: Any) -> None:
        """Take the data set as it is now."""
        compiler = self.kept_rows.compiler if self.kept_rows.direct else None
        columns = () if compiler is None else compiler.source.columns or ()
        self.staleness.take(loader, read_anew=frozenset(column.data_ptr() for column in columns))

    def give_way(self, successor: LoaderStrategy | None = None) -> None:
        """Keep nothing any more; `successor` serves from now on."""
        super().give_way(successor)
        self.gather = None

    def _settles(self) -> bool:
        """Return whether a data set that changed by being read may be taken as it is now: it may set itself up."""
        loader = self._passes.loader if self._served.settling else None
        self._served.settling = max(0, self._served.settling - 1)
        if loader is None:
            return False
        self.kept_rows, self.gather = self._served.row_cache(self.kept_rows.compiler), None
        self.kept_rows.open()
        self.take(loader)
        return True

    def begin_pass(self) -> str:
        """Look at everything, and hold some of what is kept against the data set; return what has changed."""
        stale = self.staleness.begin_pass()
        if stale and self._served.stays and self.kept_rows.full and not self.kept_rows.direct:
            return ""  # its workers, which stay, would not see it either
        if not stale and self.on_disk is not None and self.on_disk.changed(self._served.dataset):
            stale = "a file"
        if not stale and (self._has_others or self.staleness.due):
            with self.staleness.pace.proving(self.staleness.sees_all):
                known = self._some_known()
                if known and self._agrees(known) and self.kept_rows.store is not None:
                    self.kept_rows.store.filled.trust()
        return stale

    # -- proof --------------------------------------------------------------------------------------------------

    @property
    def _has_others(self) -> bool:  # samples that another rank kept, none of which was served yet
        return self.kept_rows.store is not None and self.kept_rows.store.filled.doubted

    def _some_known(self) -> list[int]:
        """Return some samples that can be taken, others each time."""
        if self.kept_rows.direct:
            return some_indices(len(self._served.dataset), PROOFS)
        store = self.kept_rows.store
        return [] if store is None else store.some_filled(_OF_OTHERS if self._has_others else PROOFS)

    def _prove(self, indices: torch.Tensor) -> None:
        """Hold a sample of a batch against the data set."""
        some = indices[int(time.monotonic() * 1e3) % len(indices)].reshape(1)
        with self.staleness.pace.proving(self.staleness.sees_all):
            if self.on_disk is not None and self.on_disk.changed(self._served.dataset):
                self._refuse(f"what {self._served.name} reads has changed")
            elif not len(self.kept_rows.missing(some)):  # all are where nothing is kept yet
                self._agrees(some.tolist())

    def _agrees(self, indices: list[int]) -> bool:
        """Return whether samples that are kept are those of the data set; where not, the script's loader goes on."""
        served, computing = self._served, self._served.computing_on
        again = asking(self._reading, computing)
        asked = functools.partial(plain_of, served.dataset, served.collate, indices, again)
        answer = ask_a_copy(asked)
        if answer.failed:
            if self._has_others or not self.staleness.sees_all:
                self._refuse(f"{served.name} could not be read again: {answer.failed}")
        elif served.policy.purpose != "timing" and not agrees_here(
            answer.value, asked, self.kept_rows.shown, indices, computing
        ):
            if self.staleness.fresh is not None and served.num_served and not self._has_others:
                self.staleness.fresh.too_late(f"sample {indices[0]}", in_this_pass=False)
            self._refuse(f"sample {indices[0]} differs from what it was")
        return self.successor is None
