"""Where things lie that can be written to: objects by identity, numbers by the memory that they are a part of."""

import sys
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["Places", "span_of"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Places:
    """Objects and ranges of memory.

    Attributes:
        objects: identities of what can be written to.
        spans: where numbers begin, and where they end.
    """

    def __init__(self, *nests: Any) -> None:
        """Take nests of lists, tuples and dictionaries with tensors and arrays."""
        self.objects: set[int] = set()
        self.spans: list[tuple[int, int]] = []
        for nest in nests:
            for value in _writable(nest):
                self.add(value)

    def add(self, value: Any) -> None:
        """Take one more object, with the memory that it sees if it is a tensor or an array."""
        self.objects.add(id(value))
        if isinstance(value, torch.Tensor) or _is_array(value):
            self.add_span(span_of(value))

    def add_span(self, span: tuple[int, int]) -> bool:
        """Take a range of memory; return whether some of it was there before."""
        start, end = span
        if start == end:
            return False
        overlaps = any(start < other_end and other < end for other, other_end in self.spans)
        self.spans.append(span)
        return overlaps

    def meets(self, other: "Places") -> bool:
        """Return whether something lies in both, or memory of one is a part of memory of the other."""
        if self.objects & other.objects:
            return True
        return any(start < last and first < end for start, end in self.spans for first, last in other.spans)


def span_of(value: Any) -> tuple[int, int]:
    """Return where the memory begins and ends that a tensor or an array is a part of; the same twice for none."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    while _is_array(value.base):
        value = value.base
    start = end = int(value.__array_interface__["data"][0])
    if not value.size:
        return start, start
    for size, stride in zip(value.shape, value.strides, strict=True):
        start, end = start + min(0, (size - 1) * stride), end + max(0, (size - 1) * stride)
    return start, end + value.itemsize


def _writable(value: Any) -> Iterator[Any]:
    """Yield what can be written to in a nest."""
    kind = type(value)
    if kind is torch.Tensor or _is_array(value):
        yield value
    elif kind in (list, tuple, dict):
        if kind is not tuple:
            yield value
        for each in value.values() if kind is dict else value:
            if type(each) not in _PLAIN:
                yield from _writable(each)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray
