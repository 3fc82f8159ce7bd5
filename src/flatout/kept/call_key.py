"""What a call is given, and under which settings, as a key: plain values by value, everything else by identity."""

import sys
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

__all__ = ["CallGiven", "given", "settings_now", "unusual_moment"]

_PLAIN = (bool, int, str, bytes, type(None), type(...))
_NUMBERS = (float, complex)
_MOST = 64  # values of a call
_NEW, _OPEN = -1, -2  # in place of a container's number
_top_of_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)
_LEAST, _HALF = sys.float_info.min, 0.5


class CallGiven(NamedTuple):
    """The arguments of a call.

    Attributes:
        key: what they are told by.
        objects: those that stand in it by identity.
        containers: the identities of lists, tuples and dictionaries, which stand in it by what they hold.
    """

    key: tuple[object, ...]
    objects: list[Any]
    containers: Collection[int]


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallGiven | None:
    """Return what a call is given; None where these cannot be told apart quickly."""
    taken = _Taken()
    try:
        key = (
            *(taken.part(value) for value in args),
            *((name, taken.part(value)) for name, value in kwargs.items()),
        )
    except ValueError:
        return None
    return CallGiven(key, taken.objects, taken.containers.keys())


class _Taken:
    """Takes the values of one call.

    Attributes:
        objects: those that stand in the key by identity.
        containers: the identities of the others that hold something, and the order in which they were met.
    """

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._left = _MOST
        self.containers: dict[int, int] = {}

    def part(self, value: Any) -> object:
        """Return what stands for a value in the key.

        Raises:
            ValueError: there are too many values, or one that nothing is equal to.
        """
        kind = type(value)
        self._left -= 1
        if self._left < 0 or (kind in _NUMBERS and value != value):
            raise ValueError("too many values, or one that is no number")
        if kind in _PLAIN:
            return kind, value
        if kind in _NUMBERS:  # a zero has a sign
            return kind, repr(value)
        if kind in (list, tuple, dict):
            return self._container(kind, value)
        if kind in (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format):
            return kind, value
        self.objects.append(value)
        return "object", id(value)

    def _container(self, kind: type, value: Any) -> object:
        """Return what stands for a container: its items, or which one it is of those that were met before."""
        number = self.containers.get(id(value), _NEW)
        if number == _OPEN:
            raise ValueError("it holds itself")
        if number != _NEW:  # code may ask whether it is given one thing twice
            return "again", number
        self.containers[id(value)] = _OPEN
        if kind is dict:
            found = (kind, *((self.part(name), self.part(each)) for name, each in value.items()))
        else:
            found = (kind, *map(self.part, value))
        self.containers[id(value)] = len(self.containers)
        return found


def settings_now() -> tuple[object, ...]:
    """Return settings that results may come out otherwise under, besides those that `Ambient` sees."""
    has_denormals = _LEAST * _HALF > 0.0  # not where the processor is told to flush them
    of_torch = torch.is_grad_enabled(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    return *of_torch, has_denormals, sys.getrecursionlimit(), sys.get_int_max_str_digits()


def unusual_moment() -> bool:
    """Return whether somebody watches or transforms each operation just now: nothing is kept or handed out then."""
    return (
        sys.gettrace() is not None
        or sys.getprofile() is not None
        or _top_of_hooks(False) is not None
        or torch.is_inference_mode_enabled()
        or torch._C._len_torch_function_stack() > 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )
