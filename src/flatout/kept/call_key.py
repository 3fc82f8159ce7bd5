"""What a call is given, and under which settings, as a key: plain values by value, everything else by identity."""

import sys
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

__all__ = ["CallGiven", "given", "settings_now", "unusual_moment"]

_PLAIN = (bool, int, str, bytes, type(None), type(...))
_NUMBERS = (float, complex)
_MOST = 64  # values of a call
_LEAST, _HALF = sys.float_info.min, 0.5


class CallGiven(NamedTuple):
    """The arguments of a call: their key, and the objects among them that stand in it by identity."""

    key: tuple[object, ...]
    objects: list[Any]


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallGiven | None:
    """Return what a call is given; None where these are too many values to tell apart quickly."""
    objects: list[Any] = []
    left = [_MOST]
    try:
        key = (
            *(_part(value, objects, left) for value in args),
            *((name, _part(value, objects, left)) for name, value in kwargs.items()),
        )
    except ValueError:
        return None
    return CallGiven(key, objects)


def _part(value: Any, objects: list[Any], left: list[int]) -> object:
    kind = type(value)
    left[0] -= 1
    if left[0] < 0:
        raise ValueError("too many values")
    if kind in _PLAIN:
        return kind, value
    if kind in _NUMBERS:  # a zero has a sign
        return kind, repr(value)
    if kind in (list, tuple):
        return (kind, *(_part(each, objects, left) for each in value))
    if kind is dict:
        return (
            kind,
            *((_part(name, objects, left), _part(each, objects, left)) for name, each in value.items()),
        )
    if kind in (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format):
        return kind, value
    objects.append(value)
    return "object", id(value)


def settings_now() -> tuple[object, ...]:
    """Return torch's settings that results may come out otherwise under, besides those that `Ambient` sees."""
    has_denormals = _LEAST * _HALF > 0.0  # not where the processor is told to flush them
    return torch.is_grad_enabled(), torch.get_num_threads(), torch.get_float32_matmul_precision(), has_denormals


def unusual_moment() -> bool:
    """Return whether somebody watches or transforms each operation just now: nothing is kept or handed out then."""
    return (
        sys.gettrace() is not None
        or torch.is_inference_mode_enabled()
        or torch._C._len_torch_function_stack() > 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )
