"""DataLoaders as the script builds and walks them: passes, waits, and what each loader is."""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch.utils import data as torch_data

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.spans import LEAD
from flatout.probe.core.step_pattern import Event
from flatout.probe.core.user_places import caller
from flatout.schema.run import Frame, LoaderFacts
from flatout.torch_loader.pass_start import drawn_from

__all__ = ["LoaderWatch", "WatchedLoader", "batch_size", "tensors_in"]

_SIZED_BATCHES = 50  # batches whose number of samples is looked at


def tensors_in(batch: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Yield the tensors of a nested batch: sequences, mappings and plain objects with attributes."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth and isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_in(value, depth - 1)
    elif depth and isinstance(batch, list | tuple):
        for value in batch[:64]:
            yield from tensors_in(value, depth - 1)
    elif depth and hasattr(batch, "data") and hasattr(batch, "keys"):  # transformers.BatchEncoding
        yield from tensors_in(dict(batch), depth - 1)


def batch_size(batch: Any) -> int:
    """Return the first dimension of the first tensor that has one, 0 when there is none."""
    return next((int(tensor.shape[0]) for tensor in tensors_in(batch) if tensor.dim()), 0)


def _gone() -> None:
    """Stand for what cannot be held weakly."""


class BatchForm(NamedTuple):
    """What a loader's batches consist of."""

    dtypes: tuple[str, ...] = ()
    num_bytes: int = 0


class WatchedLoader:
    """What is known of one DataLoader object."""

    def __init__(self, loader: Any, created_at: Frame | None) -> None:
        """Hold the loader weakly: it must die when the script lets it go."""
        self.ref = weakref.ref(loader)
        self.created_at = created_at
        self.iterated_at: Frame | None = None
        self.passes: set[int] = set()
        self.iterator: weakref.ref[Any] | None = None  # of the latest pass
        self.dataset: Callable[[], Any] = _gone  # a loader made for one pass alone is gone before its batches are
        self.start_ns = 0
        self.waits = 0
        self.wait_ns = 0
        self.batch = BatchForm()
        self.facts = LoaderFacts()
        self.extra: dict[str, Any] = {}

    def describe(self, training: set[int]) -> LoaderFacts:
        """Return the facts, read now if the loader is still alive, else as they were when it was last walked."""
        loader = self.ref()
        if loader is not None:
            self.facts = _facts(loader)
        fields = {name: getattr(self.facts, name) for name in LoaderFacts.__slots__}
        fields |= {
            "is_training": bool(self.passes & training),
            "epochs_started": len(self.passes),
            "start_s": self.start_ns / 1e9,
            "created_at": self.created_at,
            "iterated_at": self.iterated_at,
            "batch_dtypes": self.batch.dtypes,
            "batch_bytes": self.batch.num_bytes,
            "wait_s": self.wait_ns / 1e9 / self.waits if self.waits else 0.0,
        }
        return LoaderFacts(**fields | self.extra)


def _facts(loader: Any) -> LoaderFacts:
    dataset = loader.dataset
    context = loader.multiprocessing_context
    iterable = isinstance(dataset, torch_data.IterableDataset)
    default = torch_data.dataloader.default_collate
    return LoaderFacts(
        name=type(dataset).__name__,
        num_workers=loader.num_workers,
        batch_size=loader.batch_size or 0,
        pin_memory=bool(loader.pin_memory),
        persistent_workers=bool(loader.persistent_workers),
        prefetch_factor=loader.prefetch_factor or 0,
        num_samples=0 if iterable else _length(dataset),
        num_batches=_length(loader),
        iterable_style=iterable,
        has_getitems=(loader.batch_sampler is None and not iterable) or _takes_batches(dataset),
        in_memory_bytes=0 if iterable else _in_memory_bytes(dataset),
        default_collate=loader.collate_fn is default,
        default_sampler=all(
            type(sampler).__module__.startswith("torch.utils.data")
            for sampler in (loader.sampler, loader.batch_sampler)
            if sampler is not None
        ),
        start_method=context.get_start_method() if context is not None else "",
    )


def _takes_batches(dataset: Any) -> bool:
    """Return whether `dataset` hands out a batch at once; torch's own `Subset` only passes on what it is made of."""
    while getattr(type(dataset), "__getitems__", None) is torch_data.Subset.__getitems__:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))


def _length(thing: Any) -> int:
    try:
        return len(thing)
    except Exception:  # a user's __len__ may raise anything; unknown is 0
        return 0


def _in_memory_bytes(dataset: Any) -> int:
    """Bytes of the arrays and tensors that the dataset (or the one it wraps) holds with one row a sample."""
    for _ in range(4):
        inner = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
        if inner is None:
            break
        dataset = inner
    rows, total = _length(dataset), 0
    if not rows or not hasattr(dataset, "__dict__"):
        return 0
    held: list[Any] = []
    for value in list(vars(dataset).values()):
        held.extend(value if isinstance(value, tuple) and len(value) <= 16 else [value])
    for value in held:
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) and shape[0] == rows and type(value).__name__ != "memmap":
            total += int(getattr(value, "nbytes", 0))
    return total


class LoaderWatch:
    """Installs the seams of loaders and tells the step tracker what they do."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self.event_log = event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self.loaders: list[WatchedLoader] = []
        self.batch_sizes: list[int] = []
        self._passes = 0
        self._begins = False  # a pass: what is walked in its place is no pass of its own
        self._asked = lru_cache(maxsize=16)(event_log.events.asked)  # for iterators that cannot hold theirs

    def install(self, seams: Seams) -> None:
        """Wrap construction, `iter()` and `next()` of torch's DataLoader, and `iter()` of a compiled one."""
        place = "torch.utils.data.dataloader:"
        seams.wrap(place + "DataLoader.__init__", self._init)
        seams.wrap(place + "DataLoader.__iter__", self._iter)
        seams.wrap(place + "_BaseDataLoaderIter.__next__", self._next)
        seams.wrap("flatout.torch_loader.pass_start:begin_pass", self._iter)

    def describe(self, training: set[int]) -> tuple[LoaderFacts, ...]:
        """Return the facts of every loader that was walked."""
        return tuple(loader.describe(training) for loader in self.loaders if loader.passes)

    def _of(self, loader: Any) -> WatchedLoader:
        if hasattr(type(loader), "begin_pass"):  # a compiled one was made where the one that it stands for was
            loader = vars(loader).get("_plain", loader)
        for watched in self.loaders:
            if watched.ref() is loader:
                return watched
        watched = WatchedLoader(loader, None)
        self.loaders.append(watched)
        return watched

    def _init(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            hits.count += 1
            if len(self.loaders) > 200:
                self.loaders[:] = [watched for watched in self.loaders if watched.passes][-100:]
            self.loaders.append(WatchedLoader(loader, caller(2)))

        return init

    def _iter(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log = self.event_log

        def iterate(loader: Any) -> Any:
            if get_ident() != event_log.thread or self._begins:
                return original(loader)
            hits.count += 1
            start = event_log.now()
            event_log.record((event_log.events.loader_begins, start))
            self._begins = True
            try:
                iterator = original(loader)
            finally:
                self._begins = False
                end = event_log.now()
                event_log.record((event_log.events.leave, end))
            self._passes += 1
            watched = self._of(loader)
            watched.passes.add(self._passes)
            watched.start_ns += end - start
            watched.iterated_at = watched.iterated_at or caller(2)
            with contextlib.suppress(TypeError):  # a list, for instance
                watched.dataset = weakref.ref(loader.dataset)
            watched.facts = watched.facts if len(watched.passes) > 1 else _facts(loader)
            with contextlib.suppress(AttributeError, TypeError):
                walked = drawn_from(iterator)
                walked._flatout = (self._passes, watched, event_log.events.asked(self._passes))
                watched.iterator = weakref.ref(walked)
            return iterator

        return iterate

    def _next(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log = self.event_log
        record, now, to_host = event_log.record, event_log.now, event_log.events.leave_to[LEAD]

        def following(iterator: Any) -> Any:
            if get_ident() != event_log.thread or event_log.fetching:  # a loader inside a loader's dataset
                return original(iterator)
            hits.count += 1
            source, watched, asked = getattr(iterator, "_flatout", None) or self._unknown(iterator)
            start = now()
            record((asked, start))
            if start >= event_log.due:
                event_log.replay()
            waits, waited_ns = (watched.waits, watched.wait_ns) if watched is not None else (0, 0)
            for listener in event_log.events.fetch_listeners:
                listener.before_fetch(waits)
            event_log.fetching = True
            try:
                batch = original(iterator)
            except StopIteration:
                event_log.record((event_log.events.leave, event_log.now()))
                event_log.record((event_log.events.exhausted(source), event_log.now()))
                raise
            except BaseException:
                event_log.record((event_log.events.leave, event_log.now()))
                raise
            finally:
                event_log.fetching = False
                end = now()
                for listener in event_log.events.fetch_listeners:
                    listener.after_fetch(waits, waited_ns, end - start)
            record((to_host, end))
            if watched is not None:
                watched.waits += 1
                watched.wait_ns += end - start
                if len(self.batch_sizes) < _SIZED_BATCHES:
                    self._look_at(batch, watched)
            return batch

        return following

    def _unknown(self, iterator: Any) -> tuple[int, None, Event]:
        """Return what stands for an iterator that was made before the probes came, or takes no attributes."""
        return id(iterator), None, self._asked(id(iterator))

    @guarded
    def _look_at(self, batch: Any, watched: WatchedLoader) -> None:
        self.batch_sizes.append(batch_size(batch))
        if not watched.batch.dtypes:
            tensors = list(tensors_in(batch))
            dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
            watched.batch = BatchForm(dtypes, sum(tensor.nbytes for tensor in tensors))
