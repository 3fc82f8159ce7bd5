"""What serves the loaders of one data set: facts are found out, a strategy is chosen, and changes lead to another.

facts = inspect(loader)              # input_facts.py, in a copy of the process first
decision = choose(facts)             # decision.py, pure
strategy.walk(loader, iterate)       # batch_compiled.py, kept_rows.py, prefetched.py, loader_strategy.py
"""

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

from flatout.loader_account import changing
from flatout.pipeline.cache.call_cache import CallCache
from flatout.pipeline.cache.disk.disk_cache import DiskCache
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.rank_sharing import name_for_ranks
from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.cache.sample_cache import SampleCache, kept_samples, samples_instead
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.inspect.determinism import refusal
from flatout.pipeline.inspect.repeated_proof import ProofPace
from flatout.pipeline.inspect.row_independence import DRAWS
from flatout.pipeline.serve.batch_compiled import BatchCompiled
from flatout.pipeline.serve.decision import Decision, InputFacts, Strategy, choose
from flatout.pipeline.serve.input_facts import inspect_here
from flatout.pipeline.serve.kept_rows import KeptRows
from flatout.pipeline.serve.loader_strategy import KeptSamples, LoaderStrategy, Passthrough
from flatout.pipeline.serve.pass_state import PassState
from flatout.pipeline.serve.prefetched import Prefetched
from flatout.pipeline.serve.served_loader import CachePolicy, ServedLoader
from flatout.pipeline.serve.staleness import Staleness
from flatout.torch_loader.told_batches import weakly_called
from flatout.torch_loader.worker_start import threads_of
from flatout.watch.forked_copy import in_a_copy
from flatout.watch.main_thread import off_main_thread
from flatout.watch.rehearsal import Rehearsal, Tried, rehearse

__all__ = ["LoaderServer"]

_CHANGES = 2  # of the data set, after which nothing more is kept
_LOOK_SHARE = 0.05  # of a pass, that looking at a data set anew may take
_ROOMY = 2**50  # bytes
_TOO_LARGE = "the inputs of its transform take more memory than the budget allows"
_BY_ROWS = {
    Strategy.BATCH_COMPILED: BatchCompiled,
    Strategy.KEPT_ROWS: KeptRows,
    Strategy.PREFETCHED: Prefetched,
}


class LoaderServer:
    """Serves one data set under one collate function.

    Attributes:
        num_passes: how often its loaders were walked.
        name: what the data set is called.
        changes: what had changed at the beginning of a pass, each time that something had.
    """

    def __init__(self, loader: Any, policy: CachePolicy) -> None:
        """Look at the data set of `loader`, and for what the folder of `policy` has of it."""
        self._served = ServedLoader(loader, policy)
        self._passes = PassState(loader, weakly_called(weakref.WeakMethod(self._delivered)))
        self._pace, self._facts = ProofPace(), InputFacts()
        self.num_passes, self.name, self.changes = 0, self._served.name, list[str]()
        self._walked_at, self._looked_s = time.monotonic(), 0.0
        self._strategy: LoaderStrategy = self._passthrough("")
        self._begin(loader)

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return an iterator over `loader`; `iterate` is what its class does by itself."""
        self.num_passes += 1
        last_pass_s, self._walked_at = time.monotonic() - self._walked_at, time.monotonic()
        self._served.computing_on = threads_of(loader)
        stale = self.strategy.begin_pass()
        if stale:
            self.changes.append(stale)
            if self._served.stays or (len(self.changes) > _CHANGES and not self._is_worth_a_look(last_pass_s)):
                self.strategy.give_way(self._passthrough(changing(self.name, stale)))
            else:
                self._begin(loader)
        return self.strategy.walk(loader, iterate)

    def _is_worth_a_look(self, pass_s: float) -> bool:
        """Return whether to look at a data set that is another one in each pass, before a pass of some `pass_s`.

        Batches that kernels make of what lies in memory need nothing of an earlier pass.
        """
        in_a_trial = self._served.policy.purpose != "run"
        return self.strategy.kept_rows.direct and (in_a_trial or self._looked_s < _LOOK_SHARE * pass_s)

    @property
    def strategy(self) -> LoaderStrategy:
        """Return what serves now."""
        while self._strategy.successor is not None:
            self._strategy = self._strategy.successor
        return self._strategy

    @property
    def reason(self) -> str:
        """Return why the script's own loader goes on by itself, an empty string where it does not."""
        return self.strategy.reason

    @property
    def kept_rows(self) -> RowCache:
        """Return the rows that are kept."""
        return self.strategy.kept_rows

    @property
    def changed(self) -> str:
        """Return what has changed since it was kept, an empty string for nothing."""
        return "" if self.reason else self.strategy.staleness.changed

    @property
    def served(self) -> int:
        """Return the number of batches that came from memory."""
        return self._served.num_served

    def stands(self) -> bool:
        """Return whether what is kept is what the data set would give for the next batch."""
        return self.strategy.stands()

    def as_plain(self, indices: Any) -> Any:
        """Return what the script's own loader would make."""
        return self._served.as_plain(indices)

    # -- the decision -------------------------------------------------------------------------------------------

    def _begin(self, loader: Any) -> None:
        """Look at everything: first in a copy of the process, then here, if that leaves no trace."""
        before, budget, refused, began = self.strategy, self._served.policy.budget, refusal(loader), time.monotonic()
        before.give_way()  # whose memory is free from now on
        tried = functools.partial(self._tried, loader, budget.left)
        found = Rehearsal(refused) if refused else rehearse(loader, tried)
        self._served.leaves_no_trace = not (found.reason or found.changes)
        if found.reason:
            before.give_way(self._passthrough(found.reason))
            return
        with self._served.looking():
            facts, compiler = inspect_here(loader, budget, found.found, traces=found.changes)
            self._facts, staleness = facts, Staleness(self._served, self._pace, found.asked)
            chosen = self._of(loader, choose(facts), compiler, staleness)
        if not (chosen.reason or in_a_copy()):
            chosen.take(loader)
        before.give_way(chosen)
        self._looked_s = time.monotonic() - began

    def _tried(self, loader: Any, left: int) -> Tried:
        """Do in a copy of the process what is to be done here; files are not made there."""
        policy = self._served.policy
        tried = LoaderServer(loader, CachePolicy(MemoryBudget(left if policy.folder is None else _ROOMY), "verify"))
        return tried.reason, tried._facts

    def _of(
        self, loader: Any, decision: Decision, compiler: BatchCompiler | None, staleness: Staleness
    ) -> LoaderStrategy:
        """Return what does as was decided."""
        if decision.strategy is Strategy.PASSTHROUGH:
            return self._passthrough(decision.reason)
        if decision.strategy is Strategy.KEPT_SAMPLES:
            policy, facts = self._served.policy, self._facts
            samples, why = kept_samples(
                loader, policy.budget, facts.random, policy.hit, facts.rows_refused, policy.purpose
            )
            if samples is not None:
                return KeptSamples(self._served, self._passes, staleness, samples)
            otherwise = decision.otherwise
            assert otherwise is not None
            if otherwise.strategy is Strategy.PASSTHROUGH:
                return self._passthrough(why)
            return self._of(loader, otherwise, compiler, staleness)
        return self._by_rows(loader, decision, compiler, staleness)

    def _by_rows(
        self, loader: Any, decision: Decision, compiler: BatchCompiler | None, staleness: Staleness
    ) -> LoaderStrategy:
        """Return what keeps rows, with room for them and what was kept of them before."""
        policy, reading = self._served.policy, decision.reading
        kept_rows, on_disk = self._served.row_cache(compiler), None
        if policy.folder is not None and not (compiler is not None and compiler.in_memory):
            on_disk = DiskCache(policy.folder, loader.dataset, self._served.collate)
            if not on_disk.load(loader.dataset, kept_rows):
                kept_rows = self._served.row_cache(compiler)
        if policy.purpose == "run" and not (self._facts.collate_once or self._facts.random):
            kept_rows.name = name_for_ranks(loader, compiler, policy.budget)
        kept_rows.by_workers = reading.workers
        if not in_a_copy():  # which keeps nothing
            kept_rows.open()
        if loader.num_workers and (reading.threads or reading.workers) and kept_rows.direct:
            return self._passthrough(_TOO_LARGE)
        kind = _BY_ROWS[decision.strategy]
        return kind(self._served, self._passes, staleness, reading, kept_rows, on_disk)

    def _passthrough(self, reason: str) -> Passthrough:
        return Passthrough(self._served, self._passes, Staleness(self._served, self._pace), reason)

    # -- batches of the script's own iterators ------------------------------------------------------------------

    def _delivered(self, indices: Any, batch: Any, drew: bool, against: str) -> None:
        if off_main_thread():
            return
        strategy, policy = self.strategy, self._served.policy
        against = strategy.keep(indices, batch, DRAWS if drew else against)
        if not against:
            return
        loader = None if strategy.staleness.fresh is None or strategy.staleness.changed else self._passes.loader
        strategy.give_way()
        samples, why = samples_instead(loader, policy.budget, policy.hit, against)
        if samples is None:
            strategy.give_way(self._passthrough(why))
        else:
            strategy.give_way(self._with_samples(loader, samples, strategy.staleness))

    def _with_samples(self, loader: Any, samples: SampleCache | CallCache, staleness: Staleness) -> KeptSamples:
        chosen = KeptSamples(self._served, self._passes, staleness, samples)
        chosen.take(loader)
        return chosen
