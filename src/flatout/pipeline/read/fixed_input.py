"""Samples of one batch, held at a place on their way: what is done to them behind it is done again each time.

Made for measuring what the work before that place costs. What the script does to them is done to copies where it
changes them, or hands them on to the training, so that each time it finds them as they were.
"""

import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.pipeline.device.batch_tensors import replaced
from flatout.pipeline.inspect.determinism import samples_of
from flatout.pipeline.read.batch_reader import AroundBatches
from flatout.pipeline.read.sample_copies import copied
from flatout.pipeline.read.sample_reader import AroundTransform, at_once, behind, reader_of
from flatout.watch.dataset_state import holds_generator, random_states, restore_random_states, same, undrawn

__all__ = ["PLACES", "FixedInput", "hold"]

PLACES = ("raw", "fixed", "sample")
"""Before the transforms, before the first random one of them, behind them."""

Finish = Callable[[list[Any]], list[Any]]
"""From what is held the samples."""

_TRANSFORM = ("transform", "augment", "preprocess", "tfm")
_TRIED = 4


class FixedInput:
    """What is held of the samples of one batch."""

    def __init__(self, entries: list[Any], finish: Finish, use: Callable[[list[Any]], Any]) -> None:
        """Take what is held and what makes samples of it; `use`: what the script does with samples."""
        self._entries, self._finish = entries, finish
        self._given_away = _given_away(entries, lambda given: use(finish(given)))

    def samples(self, number: int) -> list[Any]:
        """Return so many samples; where more are asked for than are held, some come again."""
        entries = list(itertools.islice(itertools.cycle(self._entries), number))
        return self._finish([copied(entry) for entry in entries] if self._given_away else entries)


def hold(dataset: Any, indices: Sequence[int], place: str, use: Callable[[list[Any]], Any]) -> FixedInput | None:
    """Return samples of `dataset` held at `place`, None where it has no such place.

    `use` is the script's collate function. What the script's own code raises comes through.
    """
    if place == "sample":
        return FixedInput(list(samples_of(dataset, list(indices))), list, use)
    read = _read(dataset, indices)
    if read is None:
        return None
    entries, finish = read
    if place == "fixed":
        return _behind_the_fixed(dataset, indices, entries, use)
    return FixedInput(entries, finish, use)


def _given_away(entries: list[Any], use: Callable[[list[Any]], Any]) -> bool:
    """Return whether `entries` are changed by their use, or handed on in what is made of them.

    The training may then change them, and a worker would put them where both of them see them. What cannot be copied is
    handed out as it is.
    """
    try:
        before = copied(entries)
    except ValueError:
        return False
    made = [use(entries) for _ in range(2)]  # at random, it may not change them at first
    changed = not same(before, entries)
    if changed:
        entries[:] = before
    return changed or not _memory(entries).isdisjoint(_memory(made))


def _memory(value: Any) -> set[int]:
    """Return where in memory the numbers of the tensors and arrays in `value` begin."""
    found: set[int] = set()

    def note(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if leaf.layout is torch.strided:  # a sparse one has several memories, and is collated into new ones
                found.add(leaf.untyped_storage().data_ptr())
        elif hasattr(leaf, "__array_interface__"):  # numpy's
            found.add(leaf.__array_interface__["data"][0])
        return leaf

    replaced(value, note)
    return found - {0}


def _read(dataset: Any, indices: Sequence[int]) -> tuple[list[Any], Finish] | None:
    """Return what a transform that the data set holds would be given, and what does it; None where it holds none."""
    entries, readers, known = [], [], {}
    for index in indices:
        inner, place = behind(dataset, index)
        if id(inner) not in known:
            known[id(inner)] = reader_of(inner, place, True)
        reader = known[id(inner)]
        if not _leaves_out(reader) or (at_once(dataset) and not isinstance(reader, AroundBatches)):
            return None
        entries.append(reader.read(inner, place))
        readers.append((reader, inner))
    reader, inner = readers[0]
    if isinstance(reader, AroundBatches):
        return entries, lambda given: reader.finish_many(inner, given)

    def finish(given: list[Any]) -> list[Any]:
        return [reader.finish(inner, entry) for entry, (reader, inner) in zip(given, itertools.cycle(readers))]

    return entries, finish


def _leaves_out(reader: Any) -> bool:
    """Return whether what `reader` leaves out is a transform by its name, and not what opens a file."""
    if isinstance(reader, AroundTransform):
        return any(word in reader.name.lower() for word in _TRANSFORM)
    return isinstance(reader, AroundBatches)


# -- the part before the first random operation ---------------------------------------------------------------------


def _behind_the_fixed(
    dataset: Any, indices: Sequence[int], entries: list[Any], use: Callable[[list[Any]], Any]
) -> FixedInput | None:
    """Return samples held before the first random operation of a list; None where nothing or all stands before it."""
    inner, place = behind(dataset, indices[0])
    reader = reader_of(inner, place, True)
    if not isinstance(reader, AroundTransform) or any(behind(dataset, index)[0] is not inner for index in indices):
        return None
    transform = getattr(inner, reader.name)
    operations = list(getattr(transform, "transforms", ())) if type(transform).__name__ == "Compose" else []
    if not all(len(values) == 1 and not named for calls, _ in entries for values, named in calls):
        return None
    number = min((_fixed(operations, values[0]) for calls, _ in entries[:_TRIED] for values, _ in calls), default=0)
    if not 0 < number < len(operations):
        return None
    done: list[Any] = [
        ([((_applied(operations[:number], values[0]),), {}) for values, _ in calls], sample)
        for calls, sample in entries
    ]
    rest = types.SimpleNamespace(**{reader.name: lambda value: _applied(operations[number:], value)})
    return FixedInput(done, lambda given: [reader.finish(rest, entry) for entry in given], use)


def _fixed(operations: Sequence[Any], value: Any) -> int:
    """Return how many operations come before the first that draws random numbers."""
    value, states = copied(value), random_states()
    try:
        for number, operation in enumerate(operations):
            value = operation(value)
            if holds_generator(operation) or not undrawn(states, random_states()):
                return number
        return len(operations)
    finally:
        restore_random_states(states)


def _applied(operations: Sequence[Any], value: Any) -> Any:
    for operation in operations:
        value = operation(value)
    return value
