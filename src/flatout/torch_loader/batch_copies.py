"""Copies of batches to the device: which calls ask for one, and what is noted of the tensors they give."""

import dataclasses
import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Marked", "asked_device", "tensors_at"]


def asked_device(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the device that `tensor.to(...)` or `tensor.cuda(...)` asks for, None where it asks for anything else.

    `name` is "to" or "cuda". A device given without an index is the current one of its kind.
    """
    torch = sys.modules["torch"]
    if set(kwargs) - {"device", "non_blocking"} or len(args) > 1:
        return None
    asked = args[0] if args else kwargs.get("device", "cuda" if name == "cuda" else None)
    if asked is None and name == "cuda":
        asked = "cuda"
    if not isinstance(asked, str | int | torch.device) or isinstance(asked, bool):
        return None
    device = torch.device(asked) if not isinstance(asked, int) else torch.device("cuda", asked)
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def tensors_at(batch: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:
    """Yield each tensor of a nested batch with the keys that lead to it."""
    if hasattr(batch, "is_floating_point") and hasattr(batch, "untyped_storage"):
        yield path, batch
    elif len(path) < 4:
        for key, value in _items(batch):
            yield from tensors_at(value, (*path, key))


def _items(batch: Any) -> list[tuple[object, Any]]:
    if isinstance(batch, Mapping):
        return list(batch.items())
    if isinstance(batch, list | tuple):
        return list(enumerate(batch[:64]))
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return [(field.name, getattr(batch, field.name, None)) for field in dataclasses.fields(batch)]
    if type(batch).__module__ == "builtins":
        return []
    return list(getattr(batch, "__dict__", {}).items())


class Marked:
    """Tensors with a note each; a tensor that dies is forgotten. Nothing is written on the tensors themselves."""

    def __init__(self) -> None:
        """Mark nothing yet."""
        self._notes: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def put(self, tensor: Any, note: Any) -> None:
        """Mark one tensor."""
        key = id(tensor)
        self._notes[key] = (weakref.ref(tensor, lambda _: self._notes.pop(key, None)), note)

    def get(self, tensor: Any) -> Any:
        """Return the note of a tensor, None when it has none."""
        found = self._notes.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def pop(self, tensor: Any) -> Any:
        """Return the note of a tensor and forget it."""
        note = self.get(tensor)
        if note is not None:
            del self._notes[id(tensor)]
        return note

    def clear(self) -> None:
        """Forget all."""
        self._notes.clear()
