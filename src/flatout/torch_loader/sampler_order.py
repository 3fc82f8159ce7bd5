"""Which samples make which batch: what the loader's own sampler says, drawn when the loader would draw it."""

import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = [
    "DrawnAhead",
    "InOneDraw",
    "Indices",
    "OddIndices",
    "as_tensor",
    "batches_of",
    "indices_of",
    "may_draw_ahead",
    "random_order_is_known",
]

_checked: dict[type, bool] = {}


def batches_of(index_sampler: Any, iterator: Iterator[Any], ahead: int, length: int) -> Iterator[torch.Tensor]:
    """Return the indices of each batch as a tensor of int64.

    `iterator` is what `iter(index_sampler)` gave. `ahead`: batches that the loader draws before it delivers the first,
    0 for a loader without workers; they are drawn now. `length`: of the data set. Indices of torch's own samplers come
    in one draw.
    """
    whole = _whole(index_sampler)
    source: Any = (indices_of(each, length) for each in iterator) if whole is None else whole
    return DrawnAhead(source, ahead) if ahead else source


def may_draw_ahead(index_sampler: Any) -> bool:
    """Return whether indices may be drawn long before their batch: the sampler draws at most at its first."""
    return _whole(index_sampler) is not None


class DrawnAhead:
    """The indices of batches, so many of them drawn before the first as a loader with workers draws."""

    def __init__(self, source: Iterator[torch.Tensor], ahead: int) -> None:
        """Draw `ahead` of them; with each that is given out another one is drawn."""
        self._source = source
        self.upcoming = deque(itertools.islice(source, ahead))

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        if not self.upcoming:
            raise StopIteration
        indices = self.upcoming.popleft()
        self.upcoming.extend(itertools.islice(self._source, 1))
        return indices

    def several(self, number: int) -> torch.Tensor:
        """Return the indices of up to `number` batches in a row; of a source that draws at its first alone."""
        found = list(itertools.islice(self, number))
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


class InOneDraw:
    """The indices of batches that are drawn at the first of them, all at once."""

    def __init__(self, draw: Callable[[], torch.Tensor], sampler: Any) -> None:
        """Cut what `draw` gives into batches as large as `sampler` says at each; the last one smaller or left out."""
        self._draw, self._sampler, self._drop_last = draw, sampler, sampler.drop_last
        self._all: torch.Tensor | None = None
        self._given = 0  # indices
        self._rest: Iterator[torch.Tensor] | None = None  # from there on, cut
        self._cut_to = 0

    @property
    def size(self) -> int:
        """Return how many samples a batch has by now."""
        return int(self._sampler.batch_size)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        if self._rest is None or self._cut_to != self._sampler.batch_size:
            self._cut_to = self._sampler.batch_size
            rest = self._drawn()[self._given :]
            self._rest = iter(rest.split(self._cut_to) if len(rest) else ())
        indices = next(self._rest)
        if self._drop_last and len(indices) < self._cut_to:
            raise StopIteration
        self._given += len(indices)
        return indices

    def several(self, number: int) -> torch.Tensor:
        """Return the indices of up to `number` batches in a row, none at the end."""
        size = self.size
        found = self._drawn()[self._given : self._given + number * size]
        if self._drop_last:
            found = found[: len(found) // size * size]
        self._given += len(found)
        self._rest = None
        return found

    def give_back(self, number: int) -> None:
        """Take the latest `number` indices back, to be given once more."""
        self._given -= number
        self._rest = None

    def _drawn(self) -> torch.Tensor:
        if self._all is None:
            self._all = self._draw()
        return self._all


class OddIndices:
    """Indices of a batch that are not places of samples: tuples, names, negative numbers."""

    def __init__(self, indices: Any) -> None:
        """Take what the sampler gave."""
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices) if hasattr(self._indices, "__len__") else 0

    def tolist(self) -> Any:
        """Return what the sampler gave."""
        return self._indices


Indices = torch.Tensor | OddIndices


def indices_of(indices: Any, length: int | None = None) -> "torch.Tensor | OddIndices":
    """Return indices as a tensor where they are whole numbers from 0 on, below `length`."""
    try:
        found = as_tensor(indices)
    except (TypeError, OverflowError, ValueError):
        return OddIndices(indices)
    odd = type(indices) not in (list, tuple) or bool in set(map(type, indices))
    outside = len(found) and (int(found.min()) < 0 or (length is not None and int(found.max()) >= length))
    return OddIndices(indices) if odd or outside else found


def as_tensor(indices: Iterable[int]) -> torch.Tensor:
    """Return indices as a tensor of int64, faster than torch makes one of a list (17 us in place of 55 for 1,024)."""
    some = array("q", indices)
    return torch.frombuffer(some, dtype=torch.int64) if some else torch.empty(0, dtype=torch.int64)


def _whole(index_sampler: Any) -> InOneDraw | None:
    """Return the batches of torch's own samplers without a generator from outside, None for any other."""
    if type(index_sampler) is not BatchSampler:
        return None
    sampler = index_sampler.sampler
    if type(sampler) is SequentialSampler:
        return InOneDraw(lambda: torch.arange(len(sampler)), index_sampler)
    if type(sampler) is RandomSampler and _plain(sampler) and random_order_is_known():
        return InOneDraw(lambda: _shuffled(len(sampler.data_source)), index_sampler)
    return None


def _plain(sampler: Any) -> bool:
    length = len(sampler.data_source)
    return sampler.generator is None and not sampler.replacement and sampler.num_samples == length > 0


def _shuffled(length: int) -> torch.Tensor:
    """Return what RandomSampler gives: one draw from the global generator seeds one of its own."""
    seed = int(torch.empty((), dtype=torch.int64).random_().item())
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


def random_order_is_known() -> bool:
    """Return whether this torch's RandomSampler draws as `_shuffled` does; tried once, and undone."""
    if RandomSampler not in _checked:
        state = torch.random.get_rng_state()
        theirs = list(RandomSampler(range(11)))
        after = torch.random.get_rng_state()
        torch.random.set_rng_state(state)
        ours = _shuffled(11).tolist()
        _checked[RandomSampler] = theirs == ours and torch.equal(after, torch.random.get_rng_state())
        torch.random.set_rng_state(state)
    return _checked[RandomSampler]
