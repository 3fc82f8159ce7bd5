"""Who reads the samples of a pass before their batches are due: threads, workers, or nobody."""

from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.cache.row_view import RowView
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.inspect.determinism import detached
from flatout.pipeline.inspect.repeated_proof import asked_again
from flatout.pipeline.read.thread_prefetcher import ThreadPrefetcher
from flatout.pipeline.read.worker_reader import WorkerReader, can_read
from flatout.pipeline.serve.decision import Reading
from flatout.watch.dataset_state import unsafe

__all__ = ["Prefetch", "asking", "prefetch_for"]

Prefetch = ThreadPrefetcher | WorkerReader


def prefetch_for(
    loader: Any, dataset: Any, reading: Reading, kept_rows: RowCache, computing_on: int, timing: bool
) -> Prefetch | None:
    """Return what reads the samples of a pass on threads or in workers, None where that does not pay.

    Args:
        loader: the one that is walked.
        dataset: its data set.
        reading: who reads ahead, as was decided.
        kept_rows: what is kept of it.
        computing_on: on how many threads torch computes a sample.
        timing: the pass is one of a trial that times what is kept already.
    """
    compiler = kept_rows.compiler
    if (kept_rows.full and not kept_rows.direct) or unsafe(dataset):  # has opened a file
        return None
    if reading.in_flight and not kept_rows.full:
        return ThreadPrefetcher(
            lambda: detached(dataset).__getitem__, reading.in_flight, computing_on, reading.one_core
        )
    if reading.workers and compiler is not None and not timing and can_read(loader, compiler.source):
        return WorkerReader(loader, compiler.source, _rows(kept_rows, compiler))
    if reading.threads and compiler is not None:
        return ThreadPrefetcher(compiler.reader, reading.threads, computing_on)
    return None


def asking(reading: Reading, computing_on: int) -> Callable[[Any, list[int]], Any]:
    """Return what asks copies of a data set for some samples: for those that wait at once, for others in turn."""

    def at_once(dataset: Any, indices: list[int]) -> list[Any]:
        threads = ThreadPrefetcher(lambda: detached(dataset).__getitem__, len(indices), computing_on)
        try:
            return threads.take(indices)
        finally:
            threads.end()

    return at_once if reading.in_flight else asked_again


def _rows(kept_rows: RowCache, compiler: BatchCompiler) -> torch.Tensor | None:
    """Return where workers write what they read, None where this process does."""
    if kept_rows.store is None or compiler.stage or not kept_rows.in_common:
        return None
    chosen = kept_rows.store.take(torch.empty(0, dtype=torch.int64), compiler.source.place)[compiler.source.place]
    return chosen.rows if isinstance(chosen, RowView) else None
