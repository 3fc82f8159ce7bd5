"""Why samples of a data set are not divided among ranks: what shows in it, and what a copy of the process finds out."""

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from flatout.ranks.input.sample_maker import SampleMaker
from flatout.ranks.rows import shares
from flatout.torch_loader.predicted.random_streams import StreamSet, at_one_place, unpredictable
from flatout.watch.batch_side_effects import unfollowed
from flatout.watch.dataset_state import draws_elsewhere, parts, same, unsafe
from flatout.watch.files.file_questions import read_by_number
from flatout.watch.files.opened_files import OpenedFiles
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.freshness import Freshness
from flatout.watch.memory.object_graph import available
from flatout.watch.own_generators import generators_in

__all__ = ["followed", "looks_bad", "not_samples", "rehearsed", "shared_memory"]

_LONGEST_S = 60.0

_OTHER = "gives other samples when it is read again"


def looks_bad(dataset: Any) -> str:
    """Return what of a data set speaks at sight against dividing its samples, "" where nothing does."""
    if not available():
        return "is in a Python whose objects cannot be followed"
    if isinstance(dataset, list | tuple | dict):
        return f"is a {type(dataset).__name__}"
    return unsafe(dataset, generators=False) or draws_elsewhere(dataset)


def not_samples(samples: Any, number: int) -> str:
    """Return why what a data set gave cannot be sent to other ranks, "" where it can."""
    if type(samples) is not list or len(samples) != number:
        return f"gives a {type(samples).__name__} in place of a list of samples"
    for part in (part for sample in samples[:4] for part in parts(sample)):
        if not isinstance(part, torch.Tensor):
            continue
        if part.device.type != "cpu" or part.layout is not torch.strided:
            return "has samples that lie on a device, or are sparse"
        if part.requires_grad:
            return "has samples with gradients"
    return ""


def followed(dataset: Any, own: Sequence[Any]) -> tuple[Freshness | None, StreamSet, str]:
    """Return what tells whether a data set changes, its streams, and what of it cannot be followed.

    `own`: random generators of this process that belong to no data set.
    """
    try:
        alone = SimpleNamespace(dataset=dataset, collate_fn=_nothing)
        fresh = Freshness(alone, files="passed", way="divided among ranks")
        generators = [*fresh.graph.met.generators, *generators_in(dataset), *own]
        return fresh, StreamSet(generators), unfollowed(fresh) or unpredictable(generators)
    except Exception as error:  # looking into a data set ran code of the script's
        return None, StreamSet([]), f"cannot be looked into ({type(error).__name__})"


def rehearsed(maker: SampleMaker, index: Sequence[Any], ranks: int, fresh: Freshness, streams: StreamSet) -> str:
    """Make a batch twice in a copy of this process, whole and by shares; return what speaks against the latter."""
    answer = ask_a_copy(functools.partial(_made_twice, maker, index, ranks, fresh, streams), _LONGEST_S)
    if answer.failed:
        return f"cannot be read in a copy of the process: {answer.failed}"
    return f"writes to {answer.wrote} while it is read" if answer.wrote else str(answer.value)


def _made_twice(maker: SampleMaker, index: Sequence[Any], ranks: int, fresh: Freshness, streams: StreamSet) -> str:
    ear, numbers, begin = OpenedFiles(), read_by_number(), streams.read()
    whole = maker.samples(index)
    end = streams.read()
    changed = fresh.left_behind()
    streams.write(begin)
    again, first = list[Any](), 0
    for number in shares(len(index), ranks):
        again += maker.samples(index[first : first + number])
        first += number
    changed = changed or fresh.left_behind()
    if changed:
        return f"changes while it is read: {changed}"
    if numbers:
        return f"reads an open file by its number ({numbers[0]}), which may change unseen"
    if ear.written:
        return f"writes to {ear.written} while it is read"
    return "" if same(whole, again) and at_one_place(end, streams.read()) else _OTHER


def shared_memory(some: Any, others: Any) -> bool:
    """Return whether samples that were made twice have memory in common, so that the data set holds it."""
    return bool(_memory(some) & _memory(others))


def _memory(samples: Any) -> set[int]:
    found = set[int]()
    for part in parts(samples):
        if isinstance(part, torch.Tensor):
            found.add(part.data_ptr() if part.numel() else 0)
        elif hasattr(part, "__array_interface__"):
            found.add(part.__array_interface__["data"][0] if part.size else 0)
        elif not isinstance(part, str | bytes | int | float | complex | type | type(None) | tuple | frozenset):
            found.add(id(part))
    return found - {0}


def _nothing(samples: Any) -> Any:
    return samples
