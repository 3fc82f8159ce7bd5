"""Tensors inside what a module takes and returns: lists, tuples, named tuples, dictionaries and data classes."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

__all__ = ["map_tensors"]


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return `value` with `change(tensor)` in place of every tensor; the very same object where nothing changes.

    A container that changes is copied first, keeping its class: the original may be kept by the module that made it.
    """
    import torch

    return _map(value, change, torch.Tensor)


def _map(value: Any, change: Callable[[Any], Any], tensor: type) -> Any:
    if isinstance(value, tensor):
        return change(value)
    if isinstance(value, dict):
        return _map_keys(value, change, tensor)
    if isinstance(value, list | tuple):
        changed = [_map(item, change, tensor) for item in value]
        if all(new is old for new, old in zip(changed, value, strict=True)):
            return value
        if hasattr(value, "_fields"):  # a named tuple takes its items one by one
            return type(value)(*changed)
        return type(value)(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _map_fields(value, change, tensor)
    return value


def _map_keys(value: dict[Any, Any], change: Callable[[Any], Any], tensor: type) -> Any:
    changed = {key: _map(item, change, tensor) for key, item in value.items()}
    if all(changed[key] is item for key, item in value.items()):
        return value
    result = copy.copy(value)  # keeps the class, and with it attributes that mirror the keys
    for key, item in changed.items():
        result[key] = item
    return result


def _map_fields(value: Any, change: Callable[[Any], Any], tensor: type) -> Any:
    fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    changed = {name: _map(item, change, tensor) for name, item in fields.items()}
    if all(changed[name] is item for name, item in fields.items()):
        return value
    result = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(result, name, item)  # a frozen one too
    return result
