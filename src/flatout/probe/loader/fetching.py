"""How long a batch takes to fetch and to collate, wherever that happens: in the training process or in a worker."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from flatout.machine import core_wait_ns
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.loader.remote_reads import RemoteWatch
from flatout.probe.system.line_sampler import Doing

__all__ = ["FETCHERS", "FetchStats", "FetchWatch"]

FETCHERS = tuple(
    f"torch.utils.data._utils.fetch:{name}.fetch" for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher")
)

_MOST_SPANS = 500  # of a process


@dataclass(slots=True)
class FetchStats:
    """Totals over the batches of one dataset in one process: nanoseconds, and bytes of files read over the network."""

    fetches: int = 0
    total_ns: int = 0
    collate_ns: int = 0
    sample_cpu_ns: int = 0
    sample_queued_ns: int = 0
    sampler_ns: int = 0
    sampled: int = 0
    remote_requests: int = 0
    remote_fetched: int = 0
    remote_used: int = 0
    remote_ns: int = 0


class FetchWatch:
    """Times torch's fetchers, and says which stage a batch is at."""

    def __init__(self, doing: Doing) -> None:
        """Watch nothing yet; `doing` is told the stage."""
        self.stats: dict[str, FetchStats] = {}
        self.doing = doing
        self.busy_ns = 0
        self.busy_cpu_ns = 0
        self.collated_ns = 0
        self.aside_ns = 0
        self.aside = False  # the batch is made otherwise than the script asks: it counts for nothing
        self._remote = RemoteWatch()
        self.spans: list[tuple[int, int, int]] = []  # of the first batches: begun, samples there, ended

    def install(self, seams: Seams) -> None:
        """Wrap the fetchers of map-style and iterable-style datasets, and the drawing of indices."""
        for name in FETCHERS:
            seams.wrap(name, partial(self._fetch, seams))
        seams.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter._next_index", self._next_index)

    def of(self, dataset: Any) -> FetchStats:
        """Return the totals of one dataset."""
        return self.stats.setdefault(dataset_key(dataset), FetchStats())

    def _fetch(self, seams: Seams, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def fetch(fetcher: Any, index: Any) -> Any:
            stats = self.of(fetcher.dataset)
            if not isinstance(fetcher.collate_fn, _TimedCollate):
                fetcher.collate_fn = _TimedCollate(fetcher.collate_fn, self)
            hits.count += 1
            collated = self.collated_ns
            self._remote.install(seams)
            remote = self._remote.now()
            queued = core_wait_ns()
            start, cpu, process_cpu = perf_counter_ns(), thread_time_ns(), process_time_ns()
            self.doing.stage = "sample"
            try:
                return original(fetcher, index)
            finally:
                self.doing.stage = ""
                elapsed = perf_counter_ns() - start
                collate = self.collated_ns - collated
                self._draw(start, elapsed, collate)
                if self.aside:
                    self.aside_ns += elapsed
                else:
                    stats.sample_cpu_ns += max(0, thread_time_ns() - cpu - collate)
                    stats.sample_queued_ns += max(0, core_wait_ns() - queued)
                    self.busy_cpu_ns += process_time_ns() - process_cpu
                    self._count(stats, elapsed, collate)
                    _count_remote(stats, remote, self._remote.now(), elapsed - collate)

        return fetch

    def _draw(self, start: int, elapsed: int, collate: int) -> None:
        if len(self.spans) < _MOST_SPANS:
            self.spans.append((start, start + elapsed - collate, start + elapsed))

    def _count(self, stats: FetchStats, elapsed: int, collate: int) -> None:
        stats.fetches += 1
        stats.total_ns += elapsed
        stats.collate_ns += collate
        self.busy_ns += elapsed

    def _next_index(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def next_index(iterator: Any) -> Any:
            start = perf_counter_ns()
            try:
                return original(iterator)
            finally:
                stats = self.of(iterator._dataset)
                stats.sampler_ns += perf_counter_ns() - start
                stats.sampled += 1

        return next_index


class _TimedCollate:
    """The script's collate function, timed."""

    def __init__(self, collate: Callable[..., Any], watch: FetchWatch) -> None:
        self._collate = collate
        self._watch = watch

    def __call__(self, batch: Any) -> Any:
        start, stage = perf_counter_ns(), self._watch.doing.stage
        self._watch.doing.stage = "collate"
        try:
            return self._collate(batch)
        finally:
            self._watch.doing.stage = stage
            self._watch.collated_ns += perf_counter_ns() - start


def _count_remote(
    stats: FetchStats, before: tuple[int, int, int, int], after: tuple[int, int, int, int], most_ns: int
) -> None:
    """Add what was read over the network meanwhile; several threads wait no longer than `most_ns` together."""
    requests, fetched, used, waited_ns = (late - early for early, late in zip(before, after, strict=True))
    stats.remote_requests += requests
    stats.remote_fetched += fetched
    stats.remote_used += used
    stats.remote_ns += min(waited_ns, most_ns)


def dataset_key(dataset: Any) -> str:
    """Return a name for a dataset that is the same in the training process and in its workers."""
    try:
        length = len(dataset)
    except Exception:  # a user's __len__ may raise anything
        length = -1
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}:{length}"
