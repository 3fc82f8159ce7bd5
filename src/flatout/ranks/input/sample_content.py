"""Samples as bytes, and back: tensors and arrays as they lie in memory, all else pickled."""

import io
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["by_columns", "packed", "unpacked"]

_ALIGNED = 64
_FEWEST = 8  # samples that are put together by columns
_MOST_GAPS = 4  # times the values of a tensor: as much memory may lie between its first and its last


def packed(thing: Any) -> list[memoryview]:
    """Return bytes of `thing` in pieces, which are good for as long as it is.

    Raises:
        Exception: it cannot be sent; whatever a class of the script's raises.
    """
    buffers: list[pickle.PickleBuffer] = []
    written = io.BytesIO()
    _Packing(written, 5, buffer_callback=buffers.append).dump(thing)
    raw = [written.getbuffer(), *(buffer.raw() for buffer in buffers)]
    lengths = [piece.nbytes for piece in raw]
    head = struct.pack(f"{len(raw) + 1}Q", len(raw), *lengths)
    pieces = [memoryview(head), *raw]
    padded = [(piece, memoryview(bytes(-piece.nbytes % _ALIGNED))) for piece in pieces]
    return [each for pair in padded for each in pair]


def unpacked(content: memoryview, *, alone: bool) -> Any:
    """Return what `content` was made of; `alone`: each tensor and array in memory of its own."""
    (number,) = struct.unpack_from("Q", content)
    lengths = struct.unpack_from(f"{number}Q", content, 8)
    parts, at = list[Any](), _aligned(8 * (number + 1))
    for length in lengths:
        part = content[at : at + length]
        parts.append(bytearray(part) if alone else part)
        at += _aligned(length)
    return pickle.loads(parts[0], buffers=parts[1:])


def by_columns(samples: list[Any]) -> Any:
    """Return what is packed in place of samples, and comes out as such.

    Tensors of one form that stand at one place of all samples are sent as one, and come out as parts of that.
    """
    kind = type(samples[0]) if len(samples) >= _FEWEST else None
    if kind is None or any(type(one) is not kind for one in samples):
        return samples
    if kind is torch.Tensor:
        return _Columns(kind, [_stacked(samples)])
    if kind in (tuple, list) and len({len(one) for one in samples}) == 1:
        return _Columns(kind, [_stacked(list(column)) for column in zip(*samples, strict=True)])
    return samples


class _Columns:
    """Samples of one form, place by place; what comes out of its pickle is a list of samples."""

    def __init__(self, kind: type, columns: list[Any]) -> None:
        self._kind, self._columns = kind, columns

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how samples are made of them."""
        return _samples, (self._kind, self._columns)


def _stacked(column: list[Any]) -> Any:
    """Return what stands at one place of all samples as one tensor, or as it is."""
    first = column[0]
    for one in column:
        if type(one) is not torch.Tensor or one.dtype != first.dtype or one.shape != first.shape:
            return column
        if not (one.numel() and one.is_contiguous() and _is_plain(one)):
            return column
    return torch.stack(column)


def _samples(kind: type, columns: list[Any]) -> list[Any]:
    parts = [column.unbind() if isinstance(column, torch.Tensor) else column for column in columns]
    return list(parts[0]) if kind is torch.Tensor else [kind(row) for row in zip(*parts, strict=True)]


class _Packing(pickle.Pickler):
    """Puts tensors beside the pickle, as NumPy puts its arrays."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not torch.Tensor or not obj.numel() or not _is_plain(obj):
            return NotImplemented
        span = 1 + sum((size - 1) * stride for size, stride in zip(obj.shape, obj.stride(), strict=True))
        length, offset = span * obj.element_size(), obj.storage_offset() * obj.element_size()
        if length > _MOST_GAPS * obj.nbytes:
            raise pickle.PicklingError("a sample is a part of larger memory")
        flat: Any = torch.empty(0, dtype=torch.uint8, device="cpu").set_(obj.untyped_storage(), offset, (length,), (1,))
        return _tensor, (pickle.PickleBuffer(flat.numpy()), obj.dtype, tuple(obj.shape), obj.stride())


def _tensor(buffer: Any, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    return torch.frombuffer(buffer, dtype=dtype).as_strided(shape, stride)


def _is_plain(tensor: torch.Tensor) -> bool:
    ordinary = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return ordinary and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or vars(tensor))


def _aligned(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED
