"""Values that are no rows of one array (strings, numbers, tensors of several shapes) as two arrays.

So they can lie in a file, and are read from it without anything being executed.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["Packed", "pack"]

_SOME = 256  # values between two pauses, or
_SOME_BYTES = 1 << 20
_FLOAT = struct.Struct("<d")
_TENSOR = ord("t")
_SINGLE = {True: b"T", False: b"F", None: b"N"}
_DTYPES = (torch.uint8, torch.float32, torch.int64, torch.bool, torch.int32, torch.float64, torch.float16, torch.int16)


class Packed:
    """The values that `pack` laid out: `content`, uint8, and where each value of it ends, int64 of shape (n,)."""

    def __init__(self, content: torch.Tensor, ends: torch.Tensor) -> None:
        """Take the arrays, which may be views of a file.

        Raises:
            ValueError: they do not fit each other.
        """
        whole = content.dtype is torch.uint8 and ends.dtype is torch.int64 and content.dim() == ends.dim() == 1
        if not whole or not content.is_contiguous() or int(ends[-1] if len(ends) else 0) != len(content):
            raise ValueError("these are no packed values")
        self._content, self._ends, self._memory = content, ends, _memory(content)

    def __len__(self) -> int:
        return len(self._ends)

    def values(self, indices: torch.Tensor) -> list[Any]:
        """Return the values at `indices`, in memory of their own."""
        ends = self._ends[indices].tolist()
        starts = torch.where(indices > 0, self._ends[(indices - 1).clamp_(min=0)], 0).tolist()
        return [self._value(start, end) for start, end in zip(starts, ends, strict=True)]

    def _value(self, start: int, end: int) -> Any:
        if self._memory[start] != _TENSOR:
            return _value(bytes(self._memory[start:end]))
        number, dims = self._memory[start + 1], self._memory[start + 2]
        shape = struct.unpack_from(f"<{dims}q", self._memory, start + 3)
        flat = self._content[start + 3 + 8 * dims : end].clone()
        return flat.view(_DTYPES[number]).view(shape)


def pack(
    values: Sequence[Any],
    pause: Callable[[], None] = lambda: None,
    room: Callable[[int], torch.Tensor | None] = lambda num_bytes: torch.empty(num_bytes, dtype=torch.uint8),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `values` as `Packed` takes them; `pause` is called now and then, `room(num_bytes)` gives memory for all.

    Raises:
        ValueError: a value is of a kind that is not packed, or there is no room.
    """
    ends, end, since = torch.empty(len(values), dtype=torch.int64), 0, 0
    for place, value in enumerate(values):
        end += _size(value)
        ends[place] = end
        if not place % _SOME:
            pause()
    content = room(end) if end else torch.empty(0, dtype=torch.uint8)
    if content is None:
        raise ValueError(f"there is no room for {end} bytes")
    memory, start = _memory(content), 0
    for place, value in enumerate(values):
        head = _head(value)
        memory[start : start + len(head)] = head
        if isinstance(value, torch.Tensor):
            content[start + len(head) : int(ends[place])] = value.detach().contiguous().view(-1).view(torch.uint8)
        start = int(ends[place])
        if start - since > _SOME_BYTES or not place % _SOME:
            since = start
            pause()
    return content, ends


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a dense tensor; they live as long as it does."""
    if not tensor.nbytes:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")


def _size(value: Any) -> int:
    return len(_head(value)) + (value.nbytes if isinstance(value, torch.Tensor) else 0)


def _head(value: Any) -> bytes:
    """Return the bytes of a value, of a tensor those before its elements."""
    kind = type(value)
    if kind is str:
        return b"s" + bytes(value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return b"b" + bytes(value)
    if kind is float:
        return b"f" + _FLOAT.pack(value)
    if kind is int:
        return b"i" + int.to_bytes(value, value.bit_length() // 8 + 1, "little", signed=True)
    if kind in (bool, type(None)):
        return _SINGLE[value]
    if kind is torch.Tensor and value.dtype in _DTYPES and value.layout is torch.strided and value.device.type == "cpu":
        return struct.pack(f"<cBB{value.dim()}q", b"t", _DTYPES.index(value.dtype), value.dim(), *value.shape)
    raise ValueError(f"a {kind.__name__} is not packed")


def _value(packed: bytes) -> Any:
    kind, rest = packed[:1], packed[1:]
    if kind == b"s":
        return rest.decode("utf-8", "surrogatepass")
    if kind == b"b":
        return rest
    if kind == b"f":
        return _FLOAT.unpack(rest)[0]
    if kind == b"i":
        return int.from_bytes(rest, "little", signed=True)
    return {each: value for value, each in _SINGLE.items()}[packed]
