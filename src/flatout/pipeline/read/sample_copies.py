"""Samples copied, so that what a training does to its own leaves what is kept as it was."""

import sys
from collections import OrderedDict
from typing import Any

import torch

__all__ = ["Mark", "copied", "loaded", "size_of"]

_LEAVES = frozenset((str, bytes, int, float, complex, bool, type(None)))
_EACH = 64  # bytes of a small object, about


class Mark:
    """What stands in a sample for something that is put there later."""


def copied(value: Any) -> Any:
    """Return `value`, sharing no memory with it, with the same bits and strides.

    Raises:
        ValueError: a part of it is of a kind that is not copied.
    """
    kind = type(value)
    if kind in _LEAVES or isinstance(value, Mark):
        return value
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if kind is dict or kind is OrderedDict:
        return kind((key, copied(item)) for key, item in value.items())
    if kind is list and _LEAVES.issuperset(map(type, value)):
        return value.copy()
    if kind is list or kind is tuple:
        return kind([copied(item) for item in value])
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*[copied(item) for item in value])
    return _of_others(value)


def _tensor(value: torch.Tensor) -> torch.Tensor:
    if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad or value.is_quantized:
        raise ValueError("a tensor that is not plain")
    known = type(value) is torch.Tensor
    if not known and not type(value).__module__.startswith("torchvision.tv_tensors"):
        raise ValueError(f"a {type(value).__name__}")
    if known and value.__dict__:
        raise ValueError("a tensor with attributes")
    made: torch.Tensor = value.as_subclass(torch.Tensor).clone()
    if made.stride() != value.stride():
        raise ValueError("a tensor with gaps")
    return made if known else sys.modules["torchvision.tv_tensors"].wrap(made, like=value)


def _of_others(value: Any) -> Any:
    numpy, image = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufcUS":
        return value
    if numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in "biufcUS":
        made = value.copy(order="K")
        if made.strides != value.strides:
            raise ValueError("an array with gaps")
        made.flags.writeable = value.flags.writeable
        return made
    if image is not None and isinstance(value, image.Image):
        return value.copy()
    raise ValueError(f"a {type(value).__name__}")


def size_of(value: Any) -> int:
    """Return the bytes that `value` takes, about."""
    if isinstance(value, str | bytes):
        return _EACH + len(value)
    if isinstance(value, dict):
        return _EACH + sum(map(size_of, value.values()))
    if isinstance(value, list | tuple):
        return _EACH + sum(map(size_of, value))
    if callable(getattr(value, "getbands", None)):
        return _EACH + 4 * int(value.width) * int(value.height)
    return _EACH + int(getattr(value, "nbytes", 0))


def loaded(value: Any) -> None:
    """Let images in `value` be read from their files, which are closed by that."""
    image = sys.modules.get("PIL.Image")
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            loaded(item)
    elif image is not None and isinstance(value, image.Image):
        value.load()
