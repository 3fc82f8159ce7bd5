"""Values read by worker processes, as many as the script's loader has, before compiled code transforms them here.

Decoding holds the interpreter's lock for much of its time: two processes decode 1.9 times as fast as one, two threads
1.2 to 1.7 times. So where the loader has workers, they do the reading of the first pass, and nothing else.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from flatout.native.recycled_memory import SharedMemory
from flatout.pipeline.cache.row_view import WrittenRows
from flatout.pipeline.read.in_place import written
from flatout.pipeline.read.sources import SampleSource
from flatout.torch_loader.sampler_order import DrawnAhead
from flatout.torch_loader.worker_start import starts_anew

__all__ = ["Given", "ReadValues", "WorkerReader", "can_read"]

_LATE = 1  # answers, to an earlier batch that a signal's handler ended the wait for, which are passed over


@dataclass(frozen=True)
class ReadValues:
    """What was read of some samples, those `asked` for: what their transform is given, and the batch's other parts."""

    value: torch.Tensor | list[torch.Tensor] | WrittenRows
    others: list[Any]
    asked: Sequence[int] = ()

    def some(self, places: Sequence[int]) -> "ReadValues":
        """Return that of some of the samples."""
        value = self.value if isinstance(self.value, WrittenRows) else _picked(self.value, places)
        return ReadValues(value, [_picked(other, places) for other in self.others])


Given = list[Any] | ReadValues
"""What was read of some samples: of each, or of all."""


def can_read(loader: Any, source: SampleSource) -> bool:
    """Tell whether workers of `loader` could read for it: they are forked, and do nothing else before."""
    plain = source.reader is not None and source.assemble is not None and loader.worker_init_fn is None
    return bool(loader.num_workers and plain and not starts_anew(loader))


class WorkerReader:
    """The samples of one pass, read ahead of their batches."""

    def __init__(self, loader: Any, source: SampleSource, rows: torch.Tensor | None = None) -> None:
        """Start nothing yet. `rows`: where values of all samples have their places, in memory that workers write to."""
        self._loader, self._source, self._rows = loader, source, rows
        self._here: Callable[[int], Any] | None = None  # reads in this process
        self._asked: list[int] = []  # of the batch that is due
        self._read: ReadValues | Exception | None = None

    def follow(
        self, batches: Iterator[torch.Tensor], prefetch: bool, *, wanted: Callable[[torch.Tensor], torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """Yield the indices of `batches`; the workers end with them.

        They are asked for as many batches ahead as are drawn, of each for the samples that `wanted(indices)` names.
        """
        assert isinstance(batches, DrawnAhead)
        return _Following(self, batches, wanted)

    def begin(self, feed: deque[list[int]]) -> Any:
        """Return workers that read what `feed` asks for."""
        return _MultiProcessingDataLoaderIter(_twin(self._loader, _Reading(self._source, self._rows), feed))

    def due(self, asked: list[int], read: "ReadValues | Exception | None") -> None:
        """Take what was read of the batch that is due; `asked`: the samples that were wanted of it."""
        self._asked, self._read = asked, read

    def take(self, indices: Sequence[int]) -> ReadValues:
        """Return what was read of `indices`; raise what was raised."""
        read, places = self._read, {index: place for place, index in enumerate(self._asked)}
        if isinstance(read, Exception):
            raise read
        if read is None or list(read.asked) != self._asked or not set(indices) <= set(places):
            return self._read_here(indices)
        return read if list(indices) == self._asked else read.some([places[index] for index in indices])

    def _read_here(self, indices: Sequence[int]) -> ReadValues:
        assert self._source.reader is not None
        assert self._source.assemble is not None
        self._here = self._here or self._source.reader()
        value, others = self._source.assemble(list(map(self._here, indices)), None)
        assert isinstance(value, torch.Tensor | list)
        return ReadValues(value, others, indices)


class _Following:
    """The indices of batches whose samples workers read meanwhile.

    No generator: what a handler of a signal raises would end it, and the script may go on. What was read says of what,
    so that nothing is taken for another batch's when an answer was not waited for.
    """

    def __init__(
        self, reader: WorkerReader, batches: DrawnAhead, wanted: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self._reader, self._batches, self._wanted = reader, batches, wanted
        self._due, self._feed = deque[list[int]](), deque[list[int]]()
        self._workers: Any = None

    def __iter__(self) -> "_Following":
        return self

    def __next__(self) -> torch.Tensor:
        if self._workers is None:
            for upcoming in self._batches.upcoming:
                self._ask(upcoming)
            self._workers = self._reader.begin(self._feed)
        try:
            indices = next(self._batches)
        except StopIteration:
            self._reader.due([], None)
            self._workers._shutdown_workers()
            raise
        if len(self._batches.upcoming) > len(self._due) - 1:
            self._ask(self._batches.upcoming[-1])
        asked = self._due.popleft()
        self._reader.due(asked, None)
        if asked:
            self._reader.due(asked, _next_of(self._workers, asked))
        return indices

    def _ask(self, indices: torch.Tensor) -> None:
        asked: list[int] = self._wanted(indices).tolist()
        self._due.append(asked)
        self._feed.extend([asked] if asked else [])


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

    def __init__(self, source: SampleSource, rows: torch.Tensor | None) -> None:
        self._source, self._rows = source, rows
        self._one: Callable[[int], Any] | None = None

    def __getitems__(self, indices: list[int]) -> tuple[list[int], torch.Tensor | None, list[Any], list[Any]]:
        """Return what was asked for, all bytes of the values in one piece, shapes of those that differ, other parts.

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
                return indices, None, [], self._source.others(samples)
        value, others = self._source.assemble(list(given), SharedMemory())
        if isinstance(value, torch.Tensor):
            return indices, value, [], others
        assert isinstance(value, list)
        return indices, torch.cat([each.flatten() for each in value]), [tuple(each.shape) for each in value], others


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


def _next_of(workers: Any, asked: list[int]) -> ReadValues | Exception | None:
    """Return what was read of `asked`; None where what comes next was read of others."""
    try:
        for _ in range(_LATE + 1):
            if not workers._tasks_outstanding:
                workers._try_put_index()
            read, value, shapes, others = workers._next_data()
            if read == asked:
                break
        else:
            return None
    except Exception as error:  # of the data set, or of a worker that has ended: raised where somebody asks
        return error
    if shapes:
        counts = [torch.Size(shape).numel() for shape in shapes]
        value = [each.view(shape) for each, shape in zip(value.split(counts), shapes, strict=True)]
    return ReadValues(WrittenRows() if value is None else value, others, asked)


def _picked(part: Any, places: Sequence[int]) -> Any:
    return part[torch.tensor(places)] if isinstance(part, torch.Tensor) else [part[place] for place in places]
