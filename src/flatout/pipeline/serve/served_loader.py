"""One loader's data set and collate function, as all that serves them asks for them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from flatout.pipeline.cache.disk.disk_cache import CacheFolder
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.row_cache import RowCache, no_room
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.inspect.determinism import samples_of, weakly
from flatout.pipeline.inspect.row_independence import RowIndependence
from flatout.torch_loader.worker_start import computing_on, threads_of
from flatout.torch_loader.worker_streams import drawn_from
from flatout.watch.state_guard import streams_alone

__all__ = ["CachePolicy", "ServedLoader"]


@dataclass(frozen=True)
class CachePolicy:
    """What holds for all loaders that are served together.

    Attributes:
        budget: the memory that what is kept may take.
        purpose: "run", "verify" or "timing", as in `LoaderCaches`.
        hit: is called for every batch that comes from memory.
        folder: where samples are kept between runs, None for nowhere.
        rows: makes what keeps rows.
        on_change: "stop" or "warn", where a change is seen too late.
    """

    budget: MemoryBudget
    purpose: str = "run"
    hit: Callable[[], None] = lambda: None
    folder: CacheFolder | None = None
    rows: Callable[..., RowCache] = RowCache
    on_change: str = "stop"


class ServedLoader:
    """A data set under one collate function, with what its script's loader does about it.

    Attributes:
        policy: what holds for all loaders.
        collate: the script's function.
        by_row: the same, and whether its rows depend on each other.
        computing_on: on how many threads torch computes a sample.
        live: samples are made in this process, and not in workers, which have a copy of the data set.
        stays: its workers stay from pass to pass, and see what they saw at first.
        leaves_no_trace: looking at the data set leaves nothing that is to be put back.
        num_served: batches that came from memory.
        settling: how often the data set may still set itself up by being read.
    """

    def __init__(self, loader: Any, policy: CachePolicy) -> None:
        """Take what `loader` has; the data set is not kept alive."""
        self.policy, self.collate, self._dataset = policy, loader.collate_fn, weakly(loader)
        self.by_row = RowIndependence(loader.collate_fn)
        self.computing_on = threads_of(loader)
        self.live, self.stays = not loader.num_workers, bool(loader.persistent_workers)
        self.leaves_no_trace, self.num_served, self.settling = False, 0, 2

    @property
    def dataset(self) -> Any:
        """Return the data set; a pass holds it."""
        return self._dataset()

    @property
    def name(self) -> str:
        """Return what the data set is called."""
        return type(self.dataset).__name__

    def row_cache(self, compiler: BatchCompiler | None = None) -> RowCache:
        """Return what keeps rows, and has none yet."""
        folder, budget = self.policy.folder, self.policy.budget
        return self.policy.rows(self.collate, budget, compiler, no_room if folder is None else folder.room)

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Let the data set be asked as the script's own loader would; random streams stand alone where that is all."""
        with computing_on(self.computing_on), streams_alone() if self.leaves_no_trace else contextlib.nullcontext():
            yield

    def as_plain(self, indices: Any, stream: torch.Generator | None = None) -> Any:
        """Return what the script's own loader would make."""
        with computing_on(self.computing_on), drawn_from(stream):
            return self.collate(samples_of(self.dataset, indices.tolist()))

    def given(self, batch: Any) -> Any:
        """Count a batch that came from memory, and return it."""
        self.num_served += 1
        self.policy.hit()
        return batch
