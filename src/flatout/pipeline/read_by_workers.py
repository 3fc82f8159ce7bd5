"""Values read by worker processes, as many as the script's loader has, before compiled code transforms them here.

Decoding holds the interpreter's lock for much of its time: two processes decode 1.9 times as fast as one, two threads
1.2 to 1.7 times. So where the loader has workers, they do the reading of the first pass, and nothing else.
"""

import copy
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from flatout.pipeline.chosen import Written
from flatout.pipeline.one_by_one import written
from flatout.pipeline.order import DrawnAhead
from flatout.pipeline.recycled import SharedMemory
from flatout.pipeline.sources import Source

__all__ = ["Given", "ReadByWorkers", "ReadValues", "can_read"]


@dataclass(frozen=True)
class ReadValues:
    """What was read of some samples: what their transform is given, and the other parts of their batch."""

    value: torch.Tensor | list[torch.Tensor] | Written
    others: list[Any]

    def some(self, places: Sequence[int]) -> "ReadValues":
        """Return that of some of the samples."""
        value = self.value if isinstance(self.value, Written) else _picked(self.value, places)
        return ReadValues(value, [_picked(other, places) for other in self.others])


Given = list[Any] | ReadValues
"""What was read of some samples: of each, or of all."""


def can_read(loader: Any, source: Source) -> bool:
    """Tell whether workers of `loader` could read for it: they are forked, and do nothing else before."""
    context = loader.multiprocessing_context or multiprocessing
    plain = source.reader is not None and source.assemble is not None and loader.worker_init_fn is None
    return bool(loader.num_workers and plain and context.get_start_method() == "fork")


class ReadByWorkers:
    """The samples of one pass, read ahead of their batches."""

    def __init__(self, loader: Any, source: Source, rows: torch.Tensor | None = None) -> None:
        """Start nothing yet. `rows`: where values of all samples have their places, in memory that workers write to."""
        self._loader, self._source, self._rows = loader, source, rows
        self._here: Callable[[int], Any] | None = None  # reads in this process
        self._asked: list[int] = []  # of the batch that is due
        self._read: ReadValues | Exception | None = None

    def follow(
        self, batches: Iterator[torch.Tensor], early: bool, *, wanted: Callable[[torch.Tensor], torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """Yield the indices of `batches`; the workers end with them.

        They are asked for as many batches ahead as are drawn, of each for the samples that `wanted(indices)` names.
        """
        assert isinstance(batches, DrawnAhead)
        due, feed = deque[list[int]](), deque[list[int]]()

        def ask(indices: torch.Tensor) -> None:
            asked: list[int] = wanted(indices).tolist()
            due.append(asked)
            feed.extend([asked] if asked else [])

        for indices in batches.upcoming:
            ask(indices)
        workers = _MultiProcessingDataLoaderIter(_twin(self._loader, _Reading(self._source, self._rows), feed))
        try:
            for indices in batches:
                if len(batches.upcoming) > len(due) - 1:
                    ask(batches.upcoming[-1])
                self._asked = due.popleft()
                if self._asked:
                    self._read = _next_of(workers)
                yield indices
        finally:
            self._asked, self._read = [], None
            workers._shutdown_workers()

    def take(self, indices: Sequence[int]) -> ReadValues:
        """Return what was read of `indices`; raise what was raised."""
        read, places = self._read, {index: place for place, index in enumerate(self._asked)}
        if isinstance(read, Exception):
            raise read
        if read is None or not set(indices) <= set(places):
            return self._read_here(indices)
        return read if list(indices) == self._asked else read.some([places[index] for index in indices])

    def _read_here(self, indices: Sequence[int]) -> ReadValues:
        assert self._source.reader is not None
        assert self._source.assemble is not None
        self._here = self._here or self._source.reader()
        value, others = self._source.assemble(list(map(self._here, indices)), None)
        assert isinstance(value, torch.Tensor | list)
        return ReadValues(value, others)


class _Feed:
    """What the workers are asked for: whatever there is by now."""

    def __init__(self, feed: deque[list[int]]) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        if not self._feed:
            raise StopIteration  # for now
        return self._feed.popleft()


class _Reading:
    """Reads batches of values, in a worker."""

    def __init__(self, source: Source, rows: torch.Tensor | None) -> None:
        self._source, self._rows = source, rows
        self._one: Callable[[int], Any] | None = None

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor | None, list[Any], list[Any]]:
        """Return all bytes of the values in one piece, the shapes of those that differ, and the other parts.

        No bytes where the values were written to their places.
        """
        assert self._source.reader is not None
        assert self._source.assemble is not None
        assert self._source.others is not None
        self._one = self._one or self._source.reader()
        given: Iterable[Any] = map(self._one, indices)
        if self._rows is not None:
            samples, given = written(self._source.form, given, (self._rows[index] for index in indices))
            if samples:
                return None, [], self._source.others(samples)
        value, others = self._source.assemble(list(given), SharedMemory())
        if isinstance(value, torch.Tensor):
            return value, [], others
        assert isinstance(value, list)
        return torch.cat([each.flatten() for each in value]), [tuple(each.shape) for each in value], others


def _twin(loader: Any, reading: _Reading, feed: deque[list[int]]) -> Any:
    """Return a loader with the workers of `loader` for what `feed` asks for; it draws from a stream of its own."""
    twin = copy.copy(loader)
    vars(twin).update(  # past DataLoader.__setattr__, which locks some of these
        dataset=reading,
        batch_sampler=_Feed(feed),
        collate_fn=_as_it_is,
        generator=torch.Generator(),
        pin_memory=False,
        persistent_workers=False,
        _iterator=None,
    )
    return twin


def _as_it_is(values: Any) -> Any:
    return values


def _next_of(workers: Any) -> ReadValues | Exception:
    if not workers._tasks_outstanding:
        workers._try_put_index()
    try:
        value, shapes, others = workers._next_data()
    except Exception as error:  # of the data set, or of a worker that has ended: raised where somebody asks
        return error
    if shapes:
        counts = [torch.Size(shape).numel() for shape in shapes]
        value = [each.view(shape) for each, shape in zip(value.split(counts), shapes, strict=True)]
    return ReadValues(Written() if value is None else value, others)


def _picked(part: Any, places: Sequence[int]) -> Any:
    return part[torch.tensor(places)] if isinstance(part, torch.Tensor) else [part[place] for place in places]
