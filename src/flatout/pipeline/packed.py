"""Plain values (strings, numbers) as two arrays, so that they can lie in a file and be read without being executed."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["Packed", "pack"]

_SOME = 256  # values between two pauses
_FLOAT = struct.Struct("<d")


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
        self._content, self._ends = content, ends

    def __len__(self) -> int:
        return len(self._ends)

    def values(self, indices: torch.Tensor) -> list[Any]:
        """Return the values at `indices`."""
        ends = self._ends[indices].tolist()
        starts = torch.where(indices > 0, self._ends[(indices - 1).clamp_(min=0)], 0).tolist()
        return [_value(bytes(self._content[start:end].tolist())) for start, end in zip(starts, ends, strict=True)]


def pack(values: Sequence[Any], pause: Callable[[], None] = lambda: None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `values` as `Packed` takes them; `pause` is called now and then."""
    content, ends = bytearray(), torch.empty(len(values), dtype=torch.int64)
    for start in range(0, len(values), _SOME):
        pause()
        for place, value in enumerate(values[start : start + _SOME], start):
            content += _bytes(value)
            ends[place] = len(content)
    packed = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return packed, ends


def _bytes(value: Any) -> bytes:
    if type(value) is str:
        return b"s" + value.encode("utf-8", "surrogatepass")
    if type(value) is bytes:
        return b"b" + value
    if type(value) is float:
        return b"f" + _FLOAT.pack(value)
    if type(value) is int:
        return b"i" + value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return {True: b"T", False: b"F", None: b"N"}[value]


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
    return {b"T": True, b"F": False, b"N": None}[packed]
