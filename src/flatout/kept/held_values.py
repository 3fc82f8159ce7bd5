"""What something was when it was read: held without keeping it alive, and compared without a call of the user's."""

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ABSENT", "LEAVES", "alike", "dict_of", "form_of", "hold", "is_whole", "ndarray"]

LEAVES = (bool, int, float, complex, str, bytes, type(None))
ABSENT, _GONE = object(), object()


def hold(value: Any) -> Callable[[], Any]:
    """Return what gives `value` again, without keeping it alive where that is possible."""
    if type(value) in LEAVES or value is ABSENT:
        return lambda: value
    try:
        ref = weakref.ref(value)
    except TypeError:
        return lambda: value
    return lambda: _GONE if (alive := ref()) is None else alive


def alike(now: Any, before: Any) -> bool:
    """Return whether a value is the same object as before, or a plain one that nobody can tell from it."""
    if now is before:
        return True
    kind = type(now)
    if kind not in LEAVES or kind is not type(before):
        return False
    return repr(now) == repr(before) if kind in (float, complex) else bool(now == before)  # a zero has a sign


def form_of(value: Any) -> object:
    """Return everything of a tensor or an array but its numbers."""
    if value is None:
        return None
    if type(value) is ndarray():
        return value.shape, value.strides, value.dtype, value.__array_interface__["data"]
    flags = value.requires_grad, value.retains_grad, value.is_conj(), value.is_neg(), value.dtype
    return value.shape, value.stride(), value.storage_offset(), value.data_ptr(), value._version, flags


def is_whole(value: Any) -> bool:
    """Return whether a tensor or an array sees all of the memory that it is a part of."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().nbytes() == value.numel() * value.element_size()
    return value.base is None


def dict_of(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object, read where they stand; none where it is gone."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def ndarray() -> Any:
    """Return the class of NumPy's arrays, None where it is not loaded."""
    numpy = sys.modules.get("numpy")
    return numpy.ndarray if numpy is not None else None
