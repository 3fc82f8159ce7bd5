"""A failure inside a probe must never reach the training: it is handed to whoever can take the probes away."""

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["guarded", "in_one_line", "raise_it"]

_TRACEBACK = "Traceback (most recent call last)"


def guarded(event: Callable[..., None]) -> Callable[..., None]:
    """Return a method that passes an error of its own to `self.trouble`; costs about 0.1 us a call.

    `StopRecording` is no `Exception` and passes.
    """

    @functools.wraps(event)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            event(self, *args, **kwargs)
        except Exception as error:
            self.trouble(error)

    return call


def raise_it(error: Exception) -> None:
    """Raise `error`: what tests want in place of going on without probes."""
    raise error


def in_one_line(error: BaseException) -> str:
    """Return what an error of the script says; of one that carries a worker's traceback, what that ends with."""
    said = str(error).strip()
    told = said.splitlines()[-1] if _TRACEBACK in said else f"{type(error).__name__}: {said}"
    return told.strip().replace("\n", " ")[:400]
