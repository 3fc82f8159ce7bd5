"""Values written to their rows as they are read, before the next one is: all are read into the memory of the first.

Sixty-four decoded photographs held at once lie in 48 MB of fresh memory; one after the other, in the same 750 KB.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from flatout.native.recycled_memory import RecycledMemory
from flatout.pipeline.compile.sample_form import SampleForm, put, unpack

__all__ = ["Read", "room_for", "written"]

Read = tuple[Any, Any]
"""What a transform would be given, and the sample with a token in its place."""


def room_for(form: SampleForm, value: Any, number: int, memory: RecycledMemory) -> Tensor | None:
    """Return rows for `number` images like this one; None for other values."""
    if form.kind != "image" or not hasattr(value, "getbands"):
        return None
    bands = len(value.getbands())
    return memory.empty((number, value.height, value.width, *(bands,) * (bands > 1)), torch.uint8)


def written(form: SampleForm, read: Iterable[Read], rows: Iterable[Tensor]) -> tuple[list[Any], list[Read]]:
    """Write the values to their rows; return the samples they belong to.

    If one is of another form or shape than its row, everything that was read is returned besides; else nothing.
    """
    samples: list[Any] = []
    filled: list[Tensor] = []
    rest, places = iter(read), iter(rows)
    for value, sample in rest:
        row = next(places)
        if not put(form, value, row):
            return [], [*_again(form, filled, samples), (value, sample), *rest]
        samples.append(sample)
        filled.append(row)
    return samples, []


def _again(form: SampleForm, rows: Sequence[Tensor], samples: Sequence[Any]) -> Iterator[Read]:
    return ((unpack(form, row), sample) for row, sample in zip(rows, samples, strict=True))
