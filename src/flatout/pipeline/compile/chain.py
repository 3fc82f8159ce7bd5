"""A transform as a list of operations."""

from typing import Any

from torch import nn

__all__ = ["flatten"]

_COMPOSE = (
    ("torchvision.transforms.transforms", "Compose"),
    ("torchvision.transforms.v2._container", "Compose"),
)


def flatten(transform: object) -> list[Any]:
    """Return the operations that the transform applies one after the other.

    Nested `Compose` and `nn.Sequential` are opened; everything else, a subclass of them too, is one operation.
    """
    if transform is None:
        return []
    parts = _parts(transform)
    return [transform] if parts is None else [operation for part in parts for operation in flatten(part)]


def _parts(transform: Any) -> list[Any] | None:
    kind = type(transform)
    if (kind.__module__, kind.__qualname__) in _COMPOSE:
        return list(transform.transforms) if not _hooked(transform) else None
    return list(transform) if kind is nn.Sequential and not _hooked(transform) else None


def _hooked(transform: Any) -> bool:
    """Tell whether something else happens when the transform is called."""
    own = vars(transform)
    return "forward" in own or any(own.get(name) for name in ("_forward_hooks", "_forward_pre_hooks"))
