"""Which stage of samples is kept: of what operations make, the latest that is worth the memory it takes."""

import time
from collections.abc import Callable

import torch

from flatout.pipeline.cache.gather import gathering
from flatout.pipeline.cache.row_store import RowStore
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.inspect.determinism import some_indices
from flatout.watch.dataset_state import random_states, restore_random_states

__all__ = ["worth_keeping"]

_MUCH, _TIMES = 1024**3, 2  # fresh memory is dear: 10,000 images of 224x224 as 5.6 GiB of float32 made a first pass 0.4
# times as fast as the plain loader, as bytes 1.3 times; later passes gave 13.0k and 8.4k a second (2 cores, n=2)
_SOME_MEMORY = 256 * 1024**2  # below, fresh memory takes less than 0.15 s
_TIMES_LESS = 4  # an earlier stage takes
_TIMES_AS_LONG = 1.75  # a batch made of it: of images of 32x32 resized to 224, 1.2 to 1.6 times as long (n=8, one core
# and two); their first pass takes half as long, so that the later stage would be ahead after five passes more
_LITTLE_MEMORY = 32 * 1024**2  # below, it stays near the processor, whatever is kept
_TRIED, _BATCH, _TURNS = 16, 64, 7  # samples that are read; rows of a batch at most, and batches
_BATCH_BYTES, _FEWEST = 16 * 1024**2, 16  # of a batch, and rows of it at least: 64 images of 224x224 are 37 MB, and
# trying batches of so many took 62 of the 145 ms before the first batch
_COLD_BYTES = 8 * 1024**2  # of rows that batches are taken from: more than stay in a core's own cache


def worth_keeping(compiler: BatchCompiler, alone: bool) -> int:
    """Return the latest stage worth keeping; `compiler` keeps another one afterwards.

    Of much memory, not what bytes become by work on each of them alone. And nothing of which a part, as it was before,
    makes batches about as fast: that is timed, where no other process has to find the same (`alone`).
    """
    last, before = compiler.num_stages - 1, compiler.stages.before_pointwise
    latest = last
    if 0 < before < last:
        much, less = _num_bytes(compiler, last), _num_bytes(compiler, before)
        latest = before if much > _MUCH and much >= _TIMES * less else last
    if not alone or not latest:
        return latest
    size = _num_bytes(compiler, latest)
    if size >= _SOME_MEMORY:
        most = size // _TIMES_LESS
        small = [stage for stage in reversed(range(latest)) if _num_bytes(compiler, stage) <= most]
        return _as_fast(compiler, small, latest)
    bytes_kept = size >= _LITTLE_MEMORY and before < latest and _TIMES * _num_bytes(compiler, before) <= size
    return _as_fast(compiler, [before], latest) if bytes_kept else latest


def _num_bytes(compiler: BatchCompiler, stage: int) -> int:
    compiler.keep(stage)
    return compiler.num_samples * sum(each.num_bytes for each in compiler.rows())


def _as_fast(compiler: BatchCompiler, stages: list[int], latest: int) -> int:
    """Return the first of `stages` of which batches are made about as fast as of `latest`, which is left otherwise."""
    timed = [stage for stage in stages if _is_timed(compiler, stage)]
    rows = min(_BATCH, max(_FEWEST, _BATCH_BYTES * compiler.num_samples // max(1, _num_bytes(compiler, latest))))
    states = random_states()
    try:
        limit_s = _TIMES_AS_LONG * _batch_s(compiler, latest, rows) if timed else 0.0
        return next((stage for stage in timed if _batch_s(compiler, stage, rows) <= limit_s), latest)
    finally:
        restore_random_states(states)


def _is_timed(compiler: BatchCompiler, stage: int) -> bool:
    compiler.keep(stage)
    return not compiler.ragged


def _batch_s(compiler: BatchCompiler, stage: int, rows: int) -> float:
    """Return the seconds in which a batch of `rows` is made of what is kept at `stage`: a few samples, many places."""
    store, make = _filled(compiler, stage)
    numbers = torch.Generator().manual_seed(stage)
    took_s = []
    for _ in range(_TURNS):
        places = torch.randint(store.num_samples, (rows,), generator=numbers)
        begun = time.perf_counter()
        make(places)
        took_s.append(time.perf_counter() - begun)
    return sorted(took_s)[len(took_s) // 2]


def _filled(compiler: BatchCompiler, stage: int) -> tuple[RowStore, Callable[[torch.Tensor], object]]:
    """Return a store of `stage` with a few samples in all its places, and what makes batches of it."""
    compiler.keep(stage)
    rows, some = compiler.rows(), torch.tensor(some_indices(compiler.num_samples, _TRIED))
    number = min(compiler.num_samples, _COLD_BYTES // max(1, sum(each.num_bytes for each in rows)))
    store = RowStore(rows, max(len(some), number))
    store.fill(slice(0, len(some)), compiler.parts(some))
    store.repeat(torch.arange(len(some)))
    gather = gathering(store, compiler, compiler.layout)
    if gather is not None:
        return store, gather.one
    where = compiler.source.place if compiler.reads_where_they_lie else None
    return store, lambda places: compiler.finish(store.take(places, where))
