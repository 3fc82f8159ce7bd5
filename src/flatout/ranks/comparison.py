"""A few bytes that differ where ranks do not follow the same control flow, or have other data or random numbers.

Of the results of a call by rows they say, too, whether they can be joined, and whether what has no row in it is the
same in each rank.
"""

import ctypes
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["ResultTrace", "fingerprint", "trace_of"]

_SAMPLED = 2048  # values of a tensor


def fingerprint(name: str, leaves: Iterable[Any]) -> int:
    """Return a number for a call of the module `name` with these arguments, in the state that random streams have."""
    found = zlib.crc32(name.encode())
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            found = zlib.crc32(f"{tuple(leaf.shape)}{leaf.dtype}".encode(), found)
            if not leaf.is_cuda:  # a copy from a device waits for it
                found = zlib.crc32(_sample(leaf), found)
        elif isinstance(leaf, (bool, int, float, str)):
            found = zlib.crc32(repr(leaf).encode(), found)
    found = zlib.crc32(_bytes(torch.get_rng_state()), found)
    return found ^ (hash(random.getstate()[1]) & 0xFFFFFFFF) << 31


@dataclass(frozen=True, slots=True)
class ResultTrace:
    """What a rank tells of the results of its rows, in two numbers of 32 bits."""

    fits: bool  # as far as this rank can see
    kind: int  # other ones cannot be joined
    values: int  # of results without rows
    numbers: tuple[Any, ...]  # whole numbers among these


def trace_of(result: Any, form: Any) -> ResultTrace:
    """Return the trace of a `CutResult`, which is to be joined as the `CutForm` says."""
    own, depths = result.tie.rows.number, form.depths
    fits = not result.wrote and result.structure == form.structure and len(result.parts) == len(depths)
    told: list[Any] = []
    values, numbers = 0, []
    for part, dim, depth in zip(result.parts, form.results, depths, strict=True) if fits else ():
        is_tensor = isinstance(part, torch.Tensor)
        if (part.dim() if is_tensor else None) != depth:
            fits = False
        elif dim is None:
            told.append((part.dtype, part.shape) if is_tensor else None)
            content = _content(part)
            values = zlib.crc32(content, values)
            numbers += [content] if _is_whole(part) else []
        else:
            each, more = divmod(part.shape[dim], own)
            last = part.dim() == 4 and part.is_contiguous(memory_format=torch.channels_last)
            told.append((part.dtype, part.shape[:dim], each, part.shape[dim + 1 :], last and not part.is_contiguous()))
            fits = fits and not more
    kind = zlib.crc32(repr(told).encode()) & ~3 if fits else 1 + result.wrote
    return ResultTrace(fits, kind, values, tuple(numbers))


def _content(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return _sample(value.detach().to("cpu"))
    return repr(value).encode()


def _is_whole(value: Any) -> bool:
    """Return whether a result without rows counts something, or says what is the case."""
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, float) or value.is_integer()
    if value.numel() != 1 or value.is_complex():
        return False
    return not value.is_floating_point() or float(value.detach()).is_integer()


def _sample(tensor: torch.Tensor) -> bytes:
    try:
        flat = tensor.detach().reshape(-1)
        return _bytes(flat[:: max(1, flat.numel() // _SAMPLED)].contiguous())
    except RuntimeError:  # sparse, or of another layout: its shape has to do
        return b""


def _bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""
