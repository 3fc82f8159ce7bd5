"""Samples read one by one from a data set, a transform that it holds left out, to be done later."""

import bisect
from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import ConcatDataset, Subset

from flatout.pipeline.inspect.determinism import detached, samples_of
from flatout.pipeline.read.batch_reader import AroundBatches, transforms_batches
from flatout.pipeline.read.sample_copies import Mark, loaded
from flatout.pipeline.read.sources import slots
from flatout.watch.components import attributes_of
from flatout.watch.dataset_state import fingerprint, random_states, restore_random_states, undrawn
from flatout.watch.script_signals import any_but_signals

__all__ = ["AroundTransform", "Entry", "Reader", "at_once", "behind", "reader_of"]

Entry = tuple[Any, Any]
"""What the transform is given, call by call, and the sample with marks where the results come."""


class Reader(Protocol):
    """Reads samples one by one; from what it read, which may be kept and copied, it makes the sample.

    It does not keep the data set alive.
    """

    def read(self, dataset: Any, index: int) -> Entry:
        """Return what is to be kept of a sample."""

    def steady(self, dataset: Any, index: int) -> bool:
        """Return whether reading a sample again finds everything as it was."""

    def finish(self, dataset: Any, entry: Entry) -> Any:
        """Return the sample."""

    def left_out(self, dataset: Any) -> Any:
        """Return the transform that `finish` calls, None for none."""


class _Call(Mark):
    """Stands for what one call of a transform gives; as many parts as arguments may be taken from it, or one by key."""

    def __init__(self, number: int, num_parts: int) -> None:
        self.number, self.num_parts = number, num_parts

    def __iter__(self) -> Iterator["_Part"]:
        if self.num_parts < 2:
            raise TypeError("one value that is taken apart")
        return iter([_Part(self.number, part) for part in range(self.num_parts)])

    def __getitem__(self, key: str) -> "_Part":
        if not isinstance(key, str):
            raise TypeError("one value that is looked into")
        return _Part(self.number, key)


class _Part(Mark):
    """Stands for one value of several that a call gives."""

    def __init__(self, number: int, part: int | str) -> None:
        self.number, self.part = number, part


class _Transform:
    """Stands in for a transform: keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *values: Any, **named: Any) -> Any:
        loaded([*values, named])
        self.calls.append((values, named))
        return _Call(len(self.calls) - 1, len(values))


class AroundTransform:
    """Asks a copy of a data set for samples, the transform that it holds as `name` left out."""

    def __init__(self, dataset: Any, name: str) -> None:
        """Take a data set, and under which name it holds its transform."""
        self.name = name
        self._transform, self._asked = _Transform(), detached(dataset)
        vars(self._asked)[name] = self._transform

    def read(self, _dataset: Any, index: int) -> Entry:
        """Return what the transform would be given, and the sample around it."""
        self._transform.calls = []
        sample, calls = self._asked[index], self._transform.calls
        marks = {(mark.number, getattr(mark, "part", None)) for mark in _marks(sample)}
        if not calls or {number for number, _ in marks} != set(range(len(calls))):
            raise ValueError("what the transform gives does not come out untouched")
        return calls, sample

    def steady(self, dataset: Any, index: int) -> bool:
        """Return whether reading changes nothing, but for what is opened at first."""
        self.read(dataset, index)
        before = fingerprint(self._asked, transforms=False)
        self.read(dataset, index)
        return fingerprint(self._asked, transforms=False) == before

    def finish(self, dataset: Any, entry: Entry) -> Any:
        """Return the sample, its transform done by the data set's own."""
        transform, (calls, sample) = getattr(dataset, self.name), entry
        return _filled(sample, [transform(*values, **named) for values, named in calls])

    def left_out(self, dataset: Any) -> Any:
        """Return the transform that the data set holds."""
        return (attributes_of(dataset) or {}).get(self.name)


class _Whole:
    """Asks a data set for whole samples."""

    def read(self, dataset: Any, index: int) -> Entry:
        """Return no calls, and the sample."""
        (sample,) = samples_of(dataset, [index])
        return [], sample

    def steady(self, _dataset: Any, _index: int) -> bool:
        """Return that it does: this was found out before."""
        return True

    def finish(self, _dataset: Any, entry: Entry) -> Any:
        """Return the sample."""
        return entry[1]

    def left_out(self, _dataset: Any) -> Any:
        """Return none."""
        return None


def reader_of(dataset: Any, place: int, random: bool) -> Reader:
    """Return what reads the samples of `dataset`; `random`: leaves out a transform that it holds, if there is one."""
    if random and transforms_batches(dataset):
        return AroundBatches(dataset)
    for name in slots(dataset) if random else ():
        reader, before = AroundTransform(dataset, name), random_states()
        try:
            reader.read(dataset, place)
            if undrawn(before, random_states()):  # else what is random is another one, or outside of it
                return reader
        except any_but_signals():  # not this one
            continue
        finally:
            restore_random_states(before)
    return _Whole()


def _marks(sample: Any) -> list[Any]:
    if isinstance(sample, Mark):
        return [sample]
    inner = sample.values() if isinstance(sample, dict) else sample if isinstance(sample, list | tuple) else ()
    return [mark for value in inner for mark in _marks(value)]


def _filled(sample: Any, results: list[Any]) -> Any:
    if isinstance(sample, _Call):
        return results[sample.number]
    if isinstance(sample, _Part):
        return results[sample.number][sample.part]
    if isinstance(sample, dict):
        return type(sample)((key, _filled(value, results)) for key, value in sample.items())
    if isinstance(sample, list | tuple):
        values = [_filled(value, results) for value in sample]
        return type(sample)(*values) if hasattr(sample, "_fields") else type(sample)(values)
    return sample


def at_once(dataset: Any) -> bool:
    """Return whether a loader asks `dataset` for all samples of a batch in one call."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))


def behind(dataset: Any, index: int) -> tuple[Any, int]:
    """Return the data set behind torch's own wrappers, and the place of a sample there."""
    while True:
        if type(dataset) is Subset:
            dataset, index = dataset.dataset, int(dataset.indices[index])
        elif type(dataset) is ConcatDataset and index >= 0:
            which = bisect.bisect_right(dataset.cumulative_sizes, index)
            index -= dataset.cumulative_sizes[which - 1] if which else 0
            dataset = dataset.datasets[which]
        else:
            return dataset, index
