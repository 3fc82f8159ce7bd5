"""Settings of the process that samples may come out otherwise under: they are no part of a data set."""

import os
import sys
import time
from typing import Any

__all__ = ["Ambient"]


class Ambient:
    """torch's and NumPy's settings and modes, the time zone, and the current folder, as they were when this was made.

    While they are others, the script's own code makes the batches. Asked before every batch, so each is asked for in
    the quickest way: 0.8 us in all, where NumPy's own way to tell how it treats errors takes 1.3 by itself.
    """

    def __init__(self, folder: bool) -> None:
        """Take them as they are; the current folder where `folder`."""
        torch = sys.modules["torch"]
        self._folder = folder
        self._asked = (
            torch.get_default_dtype,
            torch._C._len_torch_function_stack,
            torch._C._len_torch_dispatch_stack,
            torch.are_deterministic_algorithms_enabled,
            getattr(torch._C, "_is_any_autocast_enabled", lambda: True),
            torch.is_autocast_enabled,
            getattr(torch, "get_autocast_dtype", lambda kind: torch.get_autocast_cpu_dtype()),
            sys.modules,
        )
        self._kept_by_numpy: Any = None
        self._told_by_numpy: tuple[str, ...] | None = None
        self._before = self._now()

    def as_before(self) -> bool:
        """Return whether all of them are as they were."""
        return self._now() == self._before

    def _now(self) -> tuple[object, ...]:
        dtype, functions, dispatches, deterministic, any_autocast, autocast, autocast_to, modules = self._asked
        decimal = modules.get("decimal")
        context = decimal.getcontext() if decimal is not None else None
        return (
            dtype(),
            functions(),
            dispatches(),
            deterministic(),
            any_autocast() and autocast("cpu") and autocast_to("cpu"),
            self._of_numpy(modules.get("numpy")),
            time.tzname,
            (context.prec, context.rounding) if context is not None else None,
            os.getcwd() if self._folder else None,
        )

    def _of_numpy(self, numpy: Any) -> tuple[str, ...] | None:
        """Return how NumPy treats errors; NumPy 2 keeps that in one object, which is another once it was set anew."""
        if numpy is None:
            return None
        try:
            kept = numpy._core.umath._extobj_contextvar.get()
        except (AttributeError, LookupError):
            return tuple(numpy.geterr().values())
        if kept is not self._kept_by_numpy:
            self._kept_by_numpy, self._told_by_numpy = kept, tuple(numpy.geterr().values())
        return self._told_by_numpy
