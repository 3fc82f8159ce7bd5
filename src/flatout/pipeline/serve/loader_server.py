"""What is kept of one loader's batches, and from when on it serves them.

Where the operations of the data set's transform are known, batches are made by kernels from the first pass on.
Elsewhere the first pass is the script's own: its iterator, its workers. What it delivers is kept, row by row; from the
pass on in which everything is there, batches are gathered. What is kept is held against the data set at the start of
each pass and now and then in it; where they differ, the script's own loader goes on by itself.
"""

import contextlib
import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.cache.disk.disk_cache import CacheFolder, DiskCache
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.numpy_collate import quicker
from flatout.pipeline.cache.rank_sharing import name_for_ranks
from flatout.pipeline.cache.row_cache import RowCache, no_room
from flatout.pipeline.cache.sample_cache import SampleCache, kept_samples, samples_instead
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.compile.intra_op_threads import IntraOpThreads
from flatout.pipeline.inspect.determinism import ask, refusal, samples_of, some_indices, weakly
from flatout.pipeline.inspect.repeated_proof import ProofPace, agrees_here, plain_of
from flatout.pipeline.inspect.row_independence import DRAWS, RowIndependence
from flatout.pipeline.read.prefetch import Prefetch, asking, prefetch_for
from flatout.pipeline.read.worker_reader import WorkerReader
from flatout.pipeline.serve.batch_buffer import BatchBuffer
from flatout.pipeline.serve.loader_plan import LoaderPlan, plan_here
from flatout.pipeline.serve.passes import KeptPass, fill, noted, weakly_called
from flatout.torch_loader.persistent_seed import WorkerSeeds
from flatout.torch_loader.sampler_order import Indices, OddIndices
from flatout.torch_loader.worker_start import computing_on, threads_of
from flatout.torch_loader.worker_streams import drawn_from
from flatout.watch.dataset_state import random_states, restore_random_states, undrawn
from flatout.watch.files.file_questions import Asked
from flatout.watch.forked_copy import ask_a_copy, in_a_copy
from flatout.watch.freshness import Freshness
from flatout.watch.rehearsal import Rehearsal, Tried, rehearse
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import streams_alone

__all__ = ["LoaderServer"]

_PROOFS = 2  # samples that are asked for again
_CHANGES, _SETTLING = 2, 2  # of the data set, after which nothing more is kept; times that it may set itself up
_ROOMY = 2**50  # bytes
_REHEARSED = 256  # samples that a trial's memory is filled with


class LoaderServer:
    """The rows of one data set under one collate function; `reason` says why there is none."""

    def __init__(
        self,
        loader: Any,
        budget: MemoryBudget,
        purpose: str = "run",
        hit: Callable[[], None] = lambda: None,
        folder: CacheFolder | None = None,
        keep: Callable[..., RowCache] = RowCache,
        on_change: str = "stop",
    ) -> None:
        """Look at the data set of `loader`, and for what `folder` has of it; the rest as in `LoaderCaches`."""
        self.collate, self._by_row, self.served = loader.collate_fn, RowIndependence(loader.collate_fn), 0
        self._purpose, self._hit, self._budget, self._folder, self._keep = purpose, hit, budget, folder, keep
        self.on_disk: DiskCache | None = None
        self.samples: SampleCache | None = None  # in place of rows
        self._filled: Callable[[], Any] = weakref.ref(loader)  # the one that fills
        self._twins: Any = weakref.WeakKeyDictionary()  # loader -> the one that is walked in its place, with workers
        self._seeds, self._ref = WorkerSeeds(), weakly(loader)
        self._streams: Any = weakref.WeakKeyDictionary()  # loader -> streams of workers that stay
        self._changes, self._pace, self.reason, self._on_change = 0, ProofPace(), "", on_change
        self._fresh: Freshness | None = None
        self._stays, self._live = bool(loader.persistent_workers), not loader.num_workers
        self._just_read, self._leaves_no_trace, self._settling, self._asked = False, False, _SETTLING, Asked()
        self._computing, self._intra_op, self._of_several = threads_of(loader), IntraOpThreads(), IntraOpThreads()
        self.kept_rows, self._plan = self._nothing_kept(), LoaderPlan("")
        self._begin(loader)

    @property
    def dataset(self) -> Any:
        """Return the data set; a pass holds it."""
        return self._ref()

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return an iterator over `loader`; `iterate` is what its class does by itself."""
        self._computing = threads_of(loader)
        if not self.reason:
            self._look_again(loader)
        if self.reason and loader.persistent_workers and loader in self._twins:  # workers that stay keep their seeds
            return self._filling(loader, iterate)
        if self.reason or self.samples is not None:
            walked = self._seeds.iterate(loader, loader, iterate)
            return walked if loader.num_workers or self.samples is None else self.samples.walked(walked)
        if self._purpose != "run" or self.kept_rows.ready or self._plan.in_flight:
            self._filled = weakref.ref(loader)
            self._gather, timing = self.kept_rows.gather, self._purpose == "timing"
            several = (lambda: self._gather if self.stands() else None, self._is_due, self._given, self._of_several)
            at_once = self._gather is not None and bool(self._gather.parts)
            prefetch = prefetch_for(loader, self.dataset, self._plan, self.kept_rows, self._computing, timing)
            walked = KeptPass(
                loader,
                functools.partial(self._make, prefetch=prefetch),
                seeded_before=self._seeds.begin(loader),
                intra_op=self._intra_op,
                earlier=self._streams.get(loader) if loader.persistent_workers else None,
                follow=functools.partial(prefetch.follow, wanted=self._wanted) if prefetch is not None else None,
                ready=functools.partial(BatchBuffer, *several) if prefetch is None and at_once else None,
                ended=self._ended,
            )
            self._streams[loader] = walked.streams
            return walked
        return self._filling(loader, iterate)

    def _ended(self) -> None:
        if self._fresh is not None and not self.reason:
            self._fresh.end_pass()

    def _begin(self, loader: Any) -> None:
        """Look at everything: first in a copy of the process, then here, if that leaves no trace."""
        self._rehearsed, self.on_disk, self.samples, self._gather, self._fresh = False, None, None, None, None
        self.kept_rows, refused, budget = self._nothing_kept(), refusal(loader), self._budget.left
        found = Rehearsal(refused) if refused else rehearse(loader, functools.partial(self._tried, loader, budget))
        if found.reason:
            self._plan, self.reason = LoaderPlan(found.reason), found.reason
            return
        self._leaves_no_trace, self._asked = not found.changes, found.asked
        with computing_on(self._computing), streams_alone() if self._leaves_no_trace else contextlib.nullcontext():
            self._begin_here(loader, found.found)
        if not (self.reason or in_a_copy()):
            self._take_as_it_is(loader)

    def _take_as_it_is(self, loader: Any) -> None:
        left_out = None if self.samples is None else self.samples.weakly_left_out()
        live = self.kept_rows.read_anew if self._live else frozenset[int]()
        self._fresh = Freshness(loader, left_out, on_change=self._on_change, asked=self._asked, live=live)
        if self.samples is not None:
            self.samples.fresh = self._fresh

    def _tried(self, loader: Any, left: int) -> Tried:
        budget = MemoryBudget(left if self._folder is None else _ROOMY)  # of files, which are not made there
        tried = LoaderServer(loader, budget, "verify", keep=RowCache)
        return tried.reason, tried._plan.sent()

    def _begin_here(self, loader: Any, plan: LoaderPlan | None) -> None:
        self._plan = plan_here(loader, self._budget, plan, traces=not self._leaves_no_trace)
        self._random, compiler, waits = self._plan.random, self._plan.compiler, self._plan.in_flight > 0
        self.reason, self.kept_rows = self._plan.reason, self._nothing_kept(compiler)
        if self.reason:
            return
        self.samples, why = kept_samples(loader, self._budget, self._random, self._hit, self._plan.rows, self._purpose)
        if (self._random and compiler is None) or (self._plan.once and (loader.num_workers or not waits)):
            self.reason = why
        in_memory = compiler is not None and compiler.in_memory
        if self._folder is not None and not (self.reason or self.samples or in_memory):
            self.on_disk = DiskCache(self._folder, loader.dataset, self.collate)
            if not self.on_disk.load(loader.dataset, self.kept_rows):
                self.kept_rows = self._nothing_kept(compiler)
        self.kept_rows.name = name_for_ranks(loader, self._plan, self._budget) if self._purpose == "run" else ""
        self.kept_rows.by_workers = self._plan.workers
        if not in_a_copy():  # which keeps nothing
            self.kept_rows.open()
        if loader.num_workers and (self._plan.threads or self._plan.workers) and self.kept_rows.direct:
            self.reason = "the inputs of its transform take more memory than the budget allows"

    def _wanted(self, indices: Indices) -> torch.Tensor:
        places = torch.empty(0, dtype=torch.int64) if isinstance(indices, OddIndices) else indices
        return places if self._plan.passed_through or self.kept_rows.direct else self.kept_rows.missing(places)

    def _nothing_kept(self, compiler: BatchCompiler | None = None) -> RowCache:
        return self._keep(self.collate, self._budget, compiler, no_room if self._folder is None else self._folder.room)

    def _save(self) -> None:
        if self.on_disk is not None and self.kept_rows.full and not (self.kept_rows.direct or self.on_disk.state):
            self.on_disk.save(self.dataset, self.kept_rows)

    def _filling(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        deliver = weakly_called(weakref.WeakMethod(self._delivered))  # an iterator must not keep its workers alive
        self._filled = weakref.ref(loader)
        if not loader.num_workers:
            return fill(iterate(loader), None, deliver, self.stands)
        if loader not in self._twins or not loader.persistent_workers:
            self._twins[loader] = noted(loader)
        twin = self._twins[loader]
        return fill(self._seeds.iterate(loader, twin, iterate), twin, deliver)

    def _delivered(self, indices: torch.Tensor, batch: Any, reason: str) -> None:
        if self.reason or self.samples is not None or (self._fresh is not None and self._fresh.changed):
            return
        try:
            with computing_on(self._computing), streams_alone() if self._leaves_no_trace else contextlib.nullcontext():
                changed = self._changed_by_reading()
                if changed and self._settles():
                    return
                reason = reason or changed or self.kept_rows.add(self.dataset, indices, batch)
        except any_but_signals() as error:  # the script has its batch, whatever becomes of ours
            reason = f"keeping a batch raised {type(error).__name__}: {error}".splitlines()[0][:200]
        if reason:
            self._refuse(reason)
            loader = None if self._fresh is None or self._fresh.changed else self._filled()
            self.samples, self.reason = samples_instead(loader, self._budget, self._hit, reason)
            if self.samples is not None:
                self._take_as_it_is(loader)
        self._save()

    @property
    def _sees_all(self) -> bool:
        return self._fresh is not None and self._fresh.sees_all

    def _is_due(self) -> bool:
        return self._pace.due and self._fresh is not None and self._fresh.holds(0)

    def stands(self) -> bool:
        """Return whether what is kept is what the data set would give for the next batch.

        Workers have a copy of the data set, of the moment that the pass began: what is kept goes on to stand for that,
        whatever becomes of the script's own, but for the files, which they read as they are.
        """
        if self._fresh is None or self.reason:
            return not self.reason
        if self._live:
            return self._fresh.holds()
        return self._fresh.files_hold() and (not self.kept_rows.direct or self._fresh.holds_here())

    def _changed_by_reading(self) -> str:
        return self._fresh.changed_by_reading() if self._fresh is not None and self._live else ""

    def _settles(self) -> bool:
        """Return whether a data set that changed by being read may be taken as it is now: it may set itself up."""
        if not self._settling or self.samples is not None:
            return False
        loader, self._settling = self._filled(), self._settling - 1
        if loader is None:
            return False
        self.kept_rows, self._gather = self._nothing_kept(self._plan.compiler), None
        self.kept_rows.open()
        self._take_as_it_is(loader)
        return True

    def as_plain(self, indices: Any, stream: torch.Generator | None = None) -> Any:
        """Return what the script's own loader would make."""
        with computing_on(self._computing), drawn_from(stream):
            return self.collate(samples_of(self.dataset, indices.tolist()))

    def _make(self, indices: Indices, stream: torch.Generator | None, *, prefetch: Prefetch | None = None) -> Any:
        if isinstance(indices, OddIndices) or not self.stands():
            return self.as_plain(indices, stream)
        if self._gather is not None and not self._is_due():
            try:
                return self._given(self._gather.one(indices))
            except any_but_signals():  # an odd index: what follows knows what is to be done
                self._gather = None
        if self._plan.passed_through and prefetch is not None:
            self._hit()
            with computing_on(self._computing):
                return quicker(self.collate)(prefetch.take(indices.tolist()))
        if self._is_due():
            self._prove(indices)
        completed, batch = (False, None) if self.reason else self._completed(indices, prefetch)
        if not completed:
            return self.as_plain(indices, stream)
        made = self._given(self._taken(indices, stream, prefetch) if batch is None else batch)
        if self._just_read:
            self._just_read, changed = False, self._changed_by_reading()
            if changed and not self._settles():
                self._refuse(changed)
        return made

    def _given(self, batch: Any) -> Any:
        self.served += 1
        self._hit()
        return batch

    def _taken(self, indices: torch.Tensor, stream: torch.Generator | None, prefetch: Prefetch | None) -> Any:
        """Return a batch of what is kept; where a kernel fails, the script's own, from the same random state."""
        before = random_states() if self._random and stream is None else None
        began = stream.get_state() if stream is not None else None
        try:
            given = prefetch.take(indices.tolist()) if prefetch is not None and self.kept_rows.direct else None
            return self.kept_rows.take(indices, stream, given)
        except any_but_signals() as error:  # the script's own call will say it, if it is the script's
            self._refuse(f"making whole batches raised {type(error).__name__}")
        if stream is not None and began is not None:
            stream.set_state(began)
        if before is not None:
            restore_random_states(before)
        return self.as_plain(indices, stream)

    def _completed(self, indices: torch.Tensor, prefetch: Prefetch | None = None) -> tuple[bool, Any]:
        """Return whether all of `indices` can be taken, after making what was missing; their batch, if that was all.

        Where that cannot be, the random streams stand as if nothing had been tried.
        """
        missing: Any = () if self.kept_rows.full else self.kept_rows.missing(indices)
        if not len(missing):
            return True, None
        if not (self._live or isinstance(prefetch, WorkerReader) or self._fresh is None or self._fresh.holds_here()):
            return False, None
        self._just_read = True
        before, batch = random_states(), None
        try:
            reason, batch = self._rehearse(missing, prefetch)
        except any_but_signals() as error:  # the script's own call will say it, if it is the script's
            if self.kept_rows.makes and not self._random:  # a sample that the kernels do not suit
                restore_random_states(before)
                self.kept_rows = self._nothing_kept()
                return self._completed(indices)
            reason = f"making samples one by one raised {type(error).__name__}"
        if not reason and not undrawn(before, random_states()):
            reason = DRAWS
        if reason:
            restore_random_states(before)
            self._refuse(reason)
        self._save()
        return not self.reason, batch if missing is indices and self._by_row.stacks else None

    def _add(self, missing: torch.Tensor, prefetch: Prefetch | None = None) -> tuple[str, Any]:
        wanted = missing.tolist()
        if self.kept_rows.makes:
            self.kept_rows.make(missing, prefetch.take(wanted) if prefetch is not None else None)
            return "", None
        with computing_on(self._computing):
            asked = ask if self._purpose != "run" else samples_of
            samples: Any = prefetch.take(wanted) if prefetch and self._plan.in_flight else asked(self.dataset, wanted)
            made = self._by_row(samples)
            return self._by_row.against or self.kept_rows.add(self.dataset, missing, made), made

    def _rehearse(self, missing: torch.Tensor, prefetch: Prefetch | None) -> tuple[str, Any]:
        """In a trial, keep something to serve from; a training has filled its memory by now."""
        if self._rehearsed or self._purpose != "timing":
            return self._add(missing, prefetch)
        self._rehearsed = True
        some = torch.tensor(some_indices(len(self.dataset), _REHEARSED))
        reason, _ = self._add(some)
        if self.kept_rows.store is not None:
            self.kept_rows.store.repeat(some)
        return reason, None

    def _prove(self, indices: torch.Tensor) -> None:
        some = indices[int(time.monotonic() * 1e3) % len(indices)].reshape(1)
        with self._pace.proving(self._sees_all):
            if self.on_disk is not None and self.on_disk.changed(self.dataset):
                self._refuse(f"what {type(self.dataset).__name__} reads has changed")
            elif not self.kept_rows.empty and not len(self.kept_rows.missing(some)):
                self._agrees(some.tolist())

    def _look_again(self, loader: Any) -> None:
        """Begin a pass: see whether everything is as it was, and hold some of what is kept against the data set."""
        stale = "" if self._fresh is None or self._fresh.begin_pass(self._live) else self._fresh.changed
        if stale and self._stays and self.kept_rows.full and not self.kept_rows.direct:
            return  # its workers, which stay, would not see it either
        if not stale and self.on_disk is not None and self.on_disk.changed(self.dataset):
            stale = "a file"
        if stale:
            self._changes += 1
            if self._changes > _CHANGES or self._stays:
                self._refuse(f"{type(self.dataset).__name__} changes from pass to pass: {stale}")
            else:
                self._begin(loader)
            return
        if self._has_others or self._is_due():
            with self._pace.proving(self._sees_all):
                self._hold_against()

    @property
    def _has_others(self) -> bool:  # samples that another rank kept, none of which was served yet
        return self.kept_rows.store is not None and self.kept_rows.store.filled.doubted

    def _hold_against(self) -> None:
        against = self.samples.prove(_PROOFS) if self.samples is not None else ""
        if against:
            self._refuse(against)
        known = self.kept_rows.some_known(len(self.dataset), _PROOFS)
        if known and self._agrees(known) and self.kept_rows.store is not None:
            self.kept_rows.store.filled.trust()

    def _agrees(self, indices: list[int]) -> bool:
        asked = functools.partial(plain_of, self.dataset, self.collate, indices, asking(self._plan, self._computing))
        answer = ask_a_copy(asked)
        here = functools.partial(agrees_here, answer.value, asked, self.kept_rows.shown, indices, self._computing)
        if answer.failed and (self._has_others or not self._sees_all):
            self._refuse(f"{type(self.dataset).__name__} could not be read again: {answer.failed}")
        elif not (answer.failed or self._purpose == "timing" or here()):
            if self._fresh is not None and self.served and not self._has_others:
                self._fresh.too_late(f"sample {indices[0]}", in_this_pass=False)
            self._refuse(f"sample {indices[0]} differs from what it was")
        return not self.reason

    @property
    def changed(self) -> str:
        """Return what has changed since it was kept, an empty string for nothing."""
        return "" if self._fresh is None or self.reason else self._fresh.changed

    def _refuse(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.kept_rows, self.samples, self._gather = self._nothing_kept(), None, None
