"""Facts about a loader's input, found by looking at its data set and its collate function, which stay as they were."""

from dataclasses import replace
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import layout_of
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.row_cache import RowCache, rows_refused
from flatout.pipeline.compile.batch_compiler import BatchCompiler, compiler_of
from flatout.pipeline.inspect.determinism import check_determinism, read_alone, streams_kept
from flatout.pipeline.read.one_core import programs
from flatout.pipeline.read.thread_prefetcher import in_flight, num_reading, reads_quickly, suit_one_core
from flatout.pipeline.read.worker_reader import can_read
from flatout.pipeline.serve.decision import CompilerFacts, InputFacts, Strategy, choose, suited
from flatout.torch_loader.worker_start import computing_on, threads_of
from flatout.watch.dataset_state import draws_elsewhere, holds_generator
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard

__all__ = ["inspect", "inspect_here"]

Found = tuple[InputFacts, BatchCompiler | None]
"""Facts, and what makes batches by kernels where that serves."""


def inspect(loader: Any, budget: MemoryBudget) -> Found:
    """Look at the data set and at the collate function of `loader`."""
    with computing_on(threads_of(loader)), StateGuard(loader.dataset, loader.collate_fn) as untouched:
        facts, compiler = _inspect(loader, budget)
    if untouched.changed and not facts.refused:
        return InputFacts(f"{type(loader.dataset).__name__} changes while it is read"), None
    return facts, compiler


def inspect_here(loader: Any, budget: MemoryBudget, found: InputFacts | None, *, traces: bool) -> Found:
    """Return what a copy of this process found, with what makes batches; what is found here, where nothing came.

    `traces`: looking leaves some, which can be put back; a compiler is then looked for with everything else.
    """
    compiles = found is not None and choose(found).strategy is Strategy.BATCH_COMPILED
    if found is None or (compiles and traces):
        return inspect(loader, budget)
    if not compiles:
        return found, None
    with computing_on(threads_of(loader)):
        compiler = compiler_of(loader, proven_before=True)
    return inspect(loader, budget) if compiler is None else (found, compiler)


def _inspect(loader: Any, budget: MemoryBudget) -> Found:
    times: list[tuple[float, float]] = []
    samples: list[Any] = []
    before = programs()
    steady = check_determinism(loader.dataset, times, samples)
    after = programs()
    alone_here = before is not None and after is not None and after <= before  # nothing was started that stays
    if steady.why is not None and not steady.may_be_a_transform:
        return InputFacts(steady.reason), None
    one_by_one = read_alone(loader.dataset)
    compiler = compiler_of(loader) if steady.why is None or steady.by_global_streams else None
    facts = InputFacts(
        random=steady.reason,
        num_workers=loader.num_workers,
        workers_begin=loader.worker_init_fn is not None,
        compiler=None if compiler is None else _of_compiler(loader, compiler, one_by_one),
        one_core=suit_one_core(times) and threads_of(loader) == 1 and alone_here,  # torch's threads would stay there
    )
    if suited(facts) is not None:
        return facts, compiler
    if steady.why is not None:
        return replace(facts, rows_refused=steady.reason), None
    waiting = 0 if one_by_one else in_flight(times, facts.one_core)
    once, rows = _collated(loader, budget)
    fit = not waiting or bool(once) or _fits(loader, samples, budget)
    return replace(facts, num_waiting=waiting, collate_once=once, rows_refused=rows, rows_fit=fit), None


def _of_compiler(loader: Any, compiler: BatchCompiler, one_by_one: bool) -> CompilerFacts:
    """Ask about reading what is needed: the quickest way that there is decides."""
    facts = CompilerFacts(compiler.in_memory, compiler.random, one_by_one)
    if compiler.in_memory or one_by_one:
        return facts
    if loader.num_workers and reads_quickly(compiler.reader, compiler.num_samples):
        facts = replace(facts, reads_quickly=True)
    elif can_read(loader, compiler.source):
        return replace(facts, workers_read=True)
    return replace(facts, reading_threads=num_reading(compiler.reader, compiler.num_samples))


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
