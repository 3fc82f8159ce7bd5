"""Where each pass over a compiled loader begins, under a name that whoever watches loaders can wrap.

Torch's own `DataLoader.__iter__` is not called where batches come from what is kept, so a seam there sees nothing.
"""

from typing import Any

__all__ = ["begin_pass", "drawn_from"]


def begin_pass(loader: Any) -> Any:
    """Return the iterator of a new pass over a compiled `loader`."""
    return loader.begin_pass()


def drawn_from(iterator: Any) -> Any:
    """Return the iterator of torch's kind behind `iterator`: itself, unless it brings batches to a device."""
    return getattr(iterator, "_inner", iterator)
