"""What a call of a user's function is given and returns, in forms that can be compared with those of other calls."""

import contextlib
import hashlib
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

__all__ = ["CallContents", "given_to", "of_object"]

_SHORT = 16  # items of a list or a dictionary that is followed
_MOST_NUMBERS, _MOST_BYTES = 300_000, 2**26
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice)


def of_object(tensor: torch.Tensor) -> object:
    """Return what tells a tensor from all others, and from itself once it was written to."""
    return id(tensor), tensor._version


def given_to(frame: FrameType, known_by: Callable[[torch.Tensor], object]) -> tuple[object, list[Any]]:
    """Return what a function is given, as a key, and the tensors among it; None where these may be others each time.

    `known_by` gives what a tensor stands for in the key.
    """
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    tensors: list[Any] = []
    with contextlib.suppress(Exception):
        given = frame.f_locals
        return tuple(
            _simple(given[name], tensors, known_by) for name in code.co_varnames[:count] if name in given
        ), tensors
    return None, tensors


def _simple(value: Any, tensors: list[Any], known_by: Callable[[torch.Tensor], object]) -> object:
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise ValueError("a tensor that learns, or is made of one")
        tensors.append(value)
        return known_by(value)
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) in (list, tuple) and len(value) <= _SHORT:
        return tuple(_simple(each, tensors, known_by) for each in value)
    if type(value) is dict and len(value) <= _SHORT:
        return tuple((repr(key), _simple(each, tensors, known_by)) for key, each in value.items())
    return id(value)


class CallContents:
    """Looks at what a function returns."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self.numbers = 0
        self.values: list[Any] = []

    def at(self, value: Any) -> object:
        """Return what equal values have in common; raises where that cannot be told."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
            self.values.append(value)
            return self._contents(value, value.size, (str(value.dtype), value.shape))
        if isinstance(value, (bool, int, float, complex)):
            self._count(1)
            return repr(value)
        if value is None or isinstance(value, (str, torch.dtype, torch.device)):
            return repr(value)
        if isinstance(value, dict):
            return tuple((self.at(key), self.at(each)) for key, each in value.items())
        if isinstance(value, (list, tuple)):
            return tuple(self.at(each) for each in value)
        raise TypeError(type(value))

    def _tensor(self, tensor: torch.Tensor) -> object:
        if tensor.is_sparse:
            whole = tensor.detach().coalesce()
            return tuple(whole.shape), self._tensor(whole.indices()), self._tensor(whole.values())
        self.values.append(tensor)
        if tensor.device.type != "cpu" or tensor.nbytes > _MOST_BYTES:
            raise ValueError(tensor.device)
        flat = tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy()
        return self._contents(flat, tensor.numel(), (str(tensor.dtype), tuple(tensor.shape)))

    def _contents(self, array: Any, numbers: int, form: object) -> object:
        if array.dtype.hasobject or array.nbytes > _MOST_BYTES:
            raise ValueError(form)
        self.numbers += numbers
        return form, hashlib.blake2b(array.tobytes(), digest_size=16).digest()

    def _count(self, numbers: int) -> None:
        self.numbers += numbers
        if self.numbers > _MOST_NUMBERS:
            raise ValueError("too many numbers")
