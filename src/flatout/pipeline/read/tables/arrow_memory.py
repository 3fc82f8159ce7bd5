"""Arrow arrays as tensors: the numbers, ends and masks that they consist of, where they lie."""

import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from flatout.pipeline.read.tables.column_kinds import ColumnKind

__all__ = ["Parts", "parts_of", "plain_array"]

Parts = dict[str, tuple[torch.Tensor, Any]]
"""Tensors by the name of the part, each with what has to live as long."""


def plain_array(array: Any) -> Any:
    """Return an array whose dictionary is looked up, whose runs are written out, and of an extension what it stores."""
    import pyarrow as pa
    import pyarrow.compute as pc

    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def parts_of(array: Any, kind: ColumnKind) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """Yield the parts of a plain array of some kind but `objects`: name, tensor, and what has to live as long.

    `values` are rows, or what all lists and texts consist of; `lengths` say how much of it each has; `valid` tells rows
    from nulls, `inner` numbers of lists from nulls. Masks are left out where nothing is null.
    """
    import pyarrow as pa

    if array.null_count:
        yield "valid", *_mask(array)
    if kind.form == "numbers" and pa.types.is_fixed_size_list(array.type):
        items, size = array.values, array.type.list_size
        items = items.slice(array.offset * size, len(array) * size)
        yield from _numbers(items, kind, "inner")
    elif kind.form == "numbers":
        yield from _numbers(array, kind, "")
    elif kind.form == "lists":
        whole = array if pa.types.is_large_list(array.type) else array.cast(pa.large_list(array.type.value_field))
        start, end, lengths = _ends(whole)
        yield "lengths", lengths, None
        yield from _numbers(whole.values.slice(start, end - start), kind, "inner")
    else:
        whole = _large(array)
        start, end, lengths = _ends(whole)
        yield "lengths", lengths, None
        yield "values", _tensor(whole.buffers()[2], torch.uint8, start, end - start), whole


def _large(array: Any) -> Any:
    """Return text or bytes with ends of 64 bits."""
    import pyarrow as pa

    types = pa.types
    if types.is_large_string(array.type) or types.is_large_binary(array.type):
        return array
    if types.is_string(array.type) or types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return (
        array.cast(pa.binary()).cast(pa.large_binary())
        if not types.is_binary(array.type)
        else array.cast(pa.large_binary())
    )


def _ends(array: Any) -> tuple[int, int, torch.Tensor]:
    """Return where the content of a sliced array begins and ends, and how long each value is."""
    number = len(array)
    if not number:
        return 0, 0, torch.empty(0, dtype=torch.int64, device="cpu")
    ends = _tensor(array.buffers()[1], torch.int64, array.offset, number + 1)
    return int(ends[0]), int(ends[-1]), ends[1:] - ends[:-1]


def _numbers(array: Any, kind: ColumnKind, mask: str) -> Iterator[tuple[str, torch.Tensor, Any]]:
    import pyarrow as pa

    if mask and array.null_count:
        yield mask, *_mask(array)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    yield "values", _tensor(array.buffers()[1], kind.dtype, array.offset, len(array)), array


def _mask(array: Any) -> tuple[torch.Tensor, Any]:
    import pyarrow as pa

    bytes_ = array.is_valid().cast(pa.uint8())
    return _tensor(bytes_.buffers()[1], torch.bool, bytes_.offset, len(bytes_)), bytes_


def _tensor(buffer: Any, dtype: torch.dtype, start: int, number: int) -> torch.Tensor:
    """Return what lies in a buffer; the buffer has to live as long, and nobody may write there."""
    if buffer is None or not number:
        return torch.zeros(number, dtype=dtype, device="cpu")
    memory = (ctypes.c_ubyte * (number * dtype.itemsize)).from_address(buffer.address + start * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype, count=number)
