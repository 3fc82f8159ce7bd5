"""Code that runs while no garbage is collected."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["no_collection"]


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage inside: finalizers and `gc.callbacks` that a collection runs are no part of what it meets."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
