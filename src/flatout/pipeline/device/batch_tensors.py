"""The tensors of a batch, found and replaced in whatever it is made of."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from torch import Tensor

__all__ = ["replaced", "tensors_of"]


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors of a batch, of nested mappings, sequences and dataclasses."""
    if isinstance(batch, Tensor):
        yield batch
        return
    for value in _inside(batch):
        yield from tensors_of(value)


def _inside(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return list(batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return [getattr(batch, field.name, None) for field in dataclasses.fields(batch)]
    return []


def replaced(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return `batch` of the same classes with `change(leaf)` for all that is in it and holds nothing further."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        made = {key: replaced(value, change) for key, value in batch.items()}
        return _mapping(batch, made)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(replaced(value, change) for value in batch))
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return _sequence(batch, [replaced(value, change) for value in batch])
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        other = copy.copy(batch)
        for field in dataclasses.fields(batch):
            if hasattr(batch, field.name):
                object.__setattr__(other, field.name, replaced(getattr(batch, field.name), change))
        return other
    return change(batch)


def _mapping(batch: Any, made: dict[Any, Any]) -> Any:
    if type(batch) is dict:
        return made
    if isinstance(batch, MutableMapping):  # a default factory, or whatever else it holds, stays
        other = copy.copy(batch)
        other.update(made)
        return other
    try:
        return type(batch)(made)
    except TypeError:
        return made


def _sequence(batch: Any, made: list[Any]) -> Any:
    if type(batch) in (list, tuple):
        return type(batch)(made)
    try:
        return type(batch)(made)
    except TypeError:  # a range, a view
        return made
