"""The operation as its author wrote it: which it is, what it was made with, and its functional form."""

import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["class_of", "functional", "is_v2", "number_of_channels", "only_has", "pillow_filter"]

_V1, _V2 = "torchvision.transforms.", "torchvision.transforms.v2."
_FILTERS = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def class_of(operation: object) -> tuple[str, str]:
    """Return where the class is defined and its name; of a subclass, its own."""
    kind = type(operation)
    return kind.__module__, kind.__qualname__


def is_v2(operation: object) -> bool:
    """Tell whether the operation is one of `torchvision.transforms.v2`."""
    return type(operation).__module__.startswith(_V2)


def functional(operation: object) -> Any:
    """Return torchvision's module of functions for the operation's generation; it was imported with the operation."""
    return sys.modules[(_V2 if is_v2(operation) else _V1) + "functional"]


def only_has(operation: object, names: frozenset[str]) -> bool:
    """Tell whether the operation has these attributes and no others, no hooks and no method of its own."""
    own: Mapping[str, Any] = vars(operation)
    if not isinstance(operation, nn.Module):
        return own.keys() == names
    usual = vars(nn.Module())
    hooks = [value for name, value in own.items() if name in usual and name.startswith("_") and name != "_version"]
    silent = all(not value for value in hooks if isinstance(value, dict | set))
    return silent and own.keys() - usual.keys() == names


def pillow_filter(interpolation: Any) -> int | None:
    """Return Pillow's number of an interpolation given as number, text or torchvision's enumeration."""
    if isinstance(interpolation, int):
        return interpolation if interpolation in _FILTERS.values() else None
    return _FILTERS.get(getattr(interpolation, "value", interpolation))


def number_of_channels(mode: str) -> int:
    """Return how many bytes a pixel of an image of this mode has."""
    return len(mode)
