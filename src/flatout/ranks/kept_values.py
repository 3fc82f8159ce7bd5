"""What a module keeps of its calls in attributes: tensors, arrays and numbers, before a call and after it.

What a call has changed that does not count is put back.
"""

import math
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

from flatout.ranks.fitness import OF_MODULES, is_of_torch
from flatout.ranks.held_state import HeldState, same_tensors
from flatout.ranks.named_values import NamedValues, is_own
from flatout.ranks.streams import is_generator, put_back, state_of, taken

__all__ = ["Kept", "kept_values", "remembered", "same_kept", "since"]

Kept = Mapping[str, list[Any]]
"""Values by the name of the attribute that holds them; arrays and generators as copies."""

_ITEMS = (list, tuple, set, frozenset, deque)
_NO_HOLDERS = (torch.nn.Module, type, FunctionType, ModuleType)
_MOST_ITEMS = 1000
_MOST_BYTES = 1 << 24  # of an array that is looked at
_MOST_COPIED = 1 << 20  # bytes of tensors and arrays in attributes, which are copied before each call
_CLOSE = 1e-3  # of numbers that are computed from a batch, whatever type it has


@dataclass(slots=True)
class _HeldTensor:
    """A tensor, with the values that it has now."""

    tensor: torch.Tensor
    values: torch.Tensor


def kept_values(module: Any) -> Kept:
    """Return what attributes of a module and its parts hold, by name, to be held against it later.

    Parameters and buffers are left out.
    """
    return {name: list(map(_noted, held)) for name, held in _kept(module).items()}


def _noted(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return _HeldTensor(value, value.detach().clone(memory_format=torch.preserve_format))


def _kept(module: Any) -> dict[str, list[Any]]:
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
    return {name: held for name, held in _kept(module).items() if not _unchanged(held, before.get(name, []))}


def same_kept(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether a part of a batch leaves the same as the whole of it, and nothing that leads to gradients."""
    return len(some) == len(others) and all(map(_alike, some, others))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        if not tensors or one.requires_grad or other.requires_grad:
            return False
        return one.shape == other.shape and one.dtype == other.dtype and same_tensors(one, other)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and (_bytes(one) == _bytes(other))


def _unchanged(after: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(after) == len(before) and all(map(_is_same, after, before))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(other, _HeldTensor):
        return one is other.tensor and one.shape == other.values.shape and same_tensors(one, other.values)
    return type(one) is type(other) and _bytes(one) == _bytes(other)


def _bytes(value: Any) -> Any:
    return (value.shape, value.dtype.str, value.tobytes()) if hasattr(value, "tobytes") else repr(value)


def _values(value: Any, depth: int = 3) -> Iterator[Any]:
    array = getattr(sys.modules.get("numpy"), "ndarray", ())
    if isinstance(value, (torch.Tensor, bool, int, float)):
        yield value
    elif isinstance(value, array):
        if value.dtype.kind in "biufc" and value.nbytes <= _MOST_BYTES:
            yield value.copy()
    elif is_generator(value):
        state = state_of(value)
        yield state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)
    elif depth:
        for each in list(_inside(value))[:_MOST_ITEMS]:
            yield from _values(each, depth - 1)


def _inside(value: Any) -> Iterable[Any]:
    """Return the items of a container, and the fields of an object that may be the script's."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, _ITEMS):
        return value
    fields = getattr(value, "__dict__", None)
    return fields.values() if isinstance(fields, dict) and not isinstance(value, _NO_HOLDERS) else ()


def remembered(modules: Sequence[Any], objects: Sequence[Any], named: NamedValues) -> Callable[[], None]:
    """Return what puts streams, and all that a call may change, back to what they are.

    `modules`: a module and its parts; `objects`: arguments that are no tensors; `named`: what the code names.
    """
    own = [vars(one) for one in modules if not is_of_torch(one)]
    held = [value for table in own for name, value in table.items() if name not in OF_MODULES]
    tables = [(table, dict(table)) for table in (*own, *(one._buffers for one in modules if one._buffers))]
    inner, plain = HeldState([*held, *objects, *named.mutable()], is_own, _MOST_COPIED), named.plain_kept()
    states = taken(inner.generators)
    buffers = [(each, each.detach().clone()) for one in modules for each in one._buffers.values() if each is not None]

    def back() -> None:
        inner.put_back()
        plain()
        for table, before in tables:
            table.clear()
            table.update(before)
        put_back(states, inner.generators)
        with torch.no_grad():
            for each, before in buffers:
                each.copy_(before)

    return back
