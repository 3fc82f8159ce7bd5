"""What a module keeps of its calls in attributes: tensors, arrays and numbers, before a call and after it."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

__all__ = ["Kept", "kept_values", "same_kept", "since"]

Kept = Mapping[str, list[Any]]
"""Values by the name of the attribute that holds them; arrays as copies."""

_ITEMS = (list, tuple, set, frozenset)
_NO_HOLDERS = (torch.nn.Module, type, FunctionType, ModuleType)
_MOST_ITEMS = 1000
_MOST_BYTES = 1 << 24  # of an array that is looked at
_CLOSE = 1e-3  # of numbers that are computed from a batch, whatever type it has


def kept_values(module: Any) -> Kept:
    """Return what attributes of a module and its parts hold, by name; parameters and buffers aside."""
    found: dict[str, list[Any]] = {}
    for path, one in module.named_modules():
        for name, value in vars(one).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            held = list(_values(value))
            if held:
                found[f"{path}.{name}".lstrip(".")] = held
    return found


def since(before: Kept, module: Any) -> Kept:
    """Return what attributes hold that hold something else than `before`."""
    return {name: held for name, held in kept_values(module).items() if not _unchanged(held, before.get(name, []))}


def same_kept(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether a part of a batch leaves the same as the whole of it, and nothing that leads to gradients."""
    return len(some) == len(others) and all(map(_alike, some, others))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        if not tensors or one.requires_grad or other.requires_grad:
            return False
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and (_bytes(one) == _bytes(other))


def _unchanged(after: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(after) == len(before) and all(map(_is_same, after, before))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    return type(one) is type(other) and _bytes(one) == _bytes(other)


def _bytes(value: Any) -> Any:
    return (value.shape, value.dtype.str, value.tobytes()) if hasattr(value, "tobytes") else repr(value)


def _values(value: Any, depth: int = 2) -> Iterator[Any]:
    array = getattr(sys.modules.get("numpy"), "ndarray", ())
    if isinstance(value, (torch.Tensor, bool, int, float)):
        yield value
    elif isinstance(value, array):
        if value.dtype.kind in "biufc" and value.nbytes <= _MOST_BYTES:
            yield value.copy()
    elif depth and isinstance(value, dict):
        for each in list(value.values())[:_MOST_ITEMS]:
            yield from _values(each, depth - 1)
    elif depth and isinstance(value, _ITEMS):
        for each in list(value)[:_MOST_ITEMS]:
            yield from _values(each, depth - 1)
    elif depth and not isinstance(value, _NO_HOLDERS) and isinstance(getattr(value, "__dict__", None), dict):
        for each in list(vars(value).values())[:_MOST_ITEMS]:
            yield from _values(each, depth - 1)
