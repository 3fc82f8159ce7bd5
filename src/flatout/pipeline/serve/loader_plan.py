"""What can be done for a loader: its data set and its collate function are looked at, and left as they were."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import layout_of
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.row_cache import RowCache, rows_refused
from flatout.pipeline.compile.batch_compiler import BatchCompiler, compiler_of
from flatout.pipeline.inspect.determinism import draws, examine, may_be_left_out, read_alone, refusal, streams_kept
from flatout.pipeline.read.one_core import programs
from flatout.pipeline.read.thread_prefetcher import in_flight, num_reading, reads_quickly, suit_one_core
from flatout.pipeline.read.worker_reader import can_read
from flatout.torch_loader.worker_start import computing_on, threads_of
from flatout.watch.dataset_state import draws_elsewhere, holds_generator
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard

__all__ = ["LoaderPlan", "plan_here", "plan_of"]


@dataclass(frozen=True)
class LoaderPlan:
    """What is done for the batches of one data set and collate function.

    Attributes:
        reason: why samples stand neither for themselves nor before a random transform; empty when they do.
        random: why samples are other ones each time, as far as is known by a transform; empty when they are the same.
        rows: why no rows are kept, as far as it is known by now.
        once: why the collate function may be called once a batch, in order, and not besides; empty when it may.
        compiler: what makes rows.
        makes: there is a maker; in a plan that another process sent, it is still to be made.
        threads: on how many threads values are read for it.
        workers: the loader's workers read values for it.
        in_flight: how many samples are asked for at a time, since making one is mostly waiting; 0 where it is not.
        one_core: the threads that ask for them stay on one core.
        passed_through: those are not kept: no room for them, or no rows.
    """

    reason: str
    random: str = ""
    rows: str = ""
    once: str = ""
    compiler: BatchCompiler | None = None
    makes: bool = False
    threads: int = 0
    workers: bool = False
    in_flight: int = 0
    one_core: bool = False
    passed_through: bool = False

    def sent(self) -> "LoaderPlan":
        """Return what of this plan another process can use."""
        return replace(self, compiler=None)


def plan_of(loader: Any, budget: MemoryBudget) -> LoaderPlan:
    """Look at the data set and at the collate function of `loader`."""
    reason = refusal(loader)
    if reason:
        return LoaderPlan(reason)
    with computing_on(threads_of(loader)), StateGuard(loader.dataset, loader.collate_fn) as untouched:
        plan = _plan(loader, budget)
    return (
        LoaderPlan(f"{type(loader.dataset).__name__} changes while it is read") if _changed(plan, untouched) else plan
    )


def plan_here(loader: Any, budget: MemoryBudget, sent: LoaderPlan | None, *, traces: bool) -> LoaderPlan:
    """Return a plan with its maker: what a copy of this process found and sent, where there is one.

    `traces`: looking leaves some, which can be put back; a maker is then looked for with everything else.
    """
    if sent is None or (sent.makes and traces):
        return plan_of(loader, budget)
    if not sent.makes:
        return sent
    with computing_on(threads_of(loader)):
        compiler = compiler_of(loader, proven_before=True)
    return plan_of(loader, budget) if compiler is None else replace(sent, compiler=compiler)


def _changed(plan: LoaderPlan, untouched: StateGuard) -> bool:
    return untouched.changed and not plan.reason


def _plan(loader: Any, budget: MemoryBudget) -> LoaderPlan:
    dataset = loader.dataset
    times: list[tuple[float, float]] = []
    samples: list[Any] = []
    before = programs()
    reason = examine(dataset, times, samples)
    alone_here = before is not None and before == programs()
    random = reason if may_be_left_out(reason) else ""
    if reason and not random:
        return LoaderPlan(reason)
    compiler, alone = (compiler_of(loader) if not reason or draws(reason) else None), read_alone(dataset)
    reads = compiler is not None and not compiler.in_memory and not alone
    quick = (
        compiler is not None and reads and loader.num_workers and reads_quickly(compiler.reader, compiler.num_samples)
    )
    workers = compiler is not None and reads and not quick and can_read(loader, compiler.source)
    threads = (
        num_reading(compiler.reader, compiler.num_samples) if compiler is not None and reads and not workers else 0
    )
    if compiler is not None and loader.num_workers:
        suits = compiler.in_memory or threads or quick or workers
        compiler = compiler if suits and (loader.worker_init_fn is None or not compiler.random) else None
    one_core = suit_one_core(times) and threads_of(loader) == 1 and alone_here  # torch's threads would stay there, too
    waiting = 0 if compiler is not None or random or alone else in_flight(times, one_core)
    once, rows = ("", random) if random or compiler is not None else _collated(loader, budget)
    passed = waiting > 0 and (bool(once) or not _fits(loader, samples, budget))
    makes = compiler is not None
    return LoaderPlan(
        "", random, "" if makes else rows, once, compiler, makes, threads, workers, waiting, one_core, passed
    )


def _fits(loader: Any, samples: list[Any], budget: MemoryBudget) -> bool:
    """Return whether all samples, of which this is one, make rows that there is room for."""
    try:
        with streams_kept():
            found = layout_of(loader.collate_fn(samples), 1)
    except any_but_signals():  # a stranger's function on a batch of a size it may never have seen
        return False
    return found is not None and budget.fits(found[0].num_bytes * len(loader.dataset))


def _collated(loader: Any, budget: MemoryBudget) -> tuple[str, str]:
    """Return why the collate function may not be tried, and why no rows are kept."""
    if loader.collate_fn is torch.utils.data.dataloader.default_collate:
        return "", ""
    elsewhere = draws_elsewhere(loader.collate_fn)
    if elsewhere or holds_generator(loader.collate_fn):
        once = f"its collate function {elsewhere or 'holds a random generator'}"
        return once, once
    with StateGuard(loader.dataset, loader.collate_fn) as untouched:
        rows = rows_refused(RowCache(loader.collate_fn, budget), loader)
        made = holds_generator(loader.collate_fn)
    once = "its collate function changes when it is called" if untouched.changed or made else ""
    return once, once or rows
