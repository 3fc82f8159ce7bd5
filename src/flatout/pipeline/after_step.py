"""Work that waits until an optimizer has stepped: by then a device has its step queued, and the host is free."""

import functools
import threading
import weakref
from collections.abc import Callable

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["AfterStep"]

_IN_A_ROW = 2  # times that an optimizer must have stepped before it is waited for: gradients may be accumulated

_waiting: "weakref.WeakSet[AfterStep]" = weakref.WeakSet()


class AfterStep:
    """One piece of work at a time, done in its own thread as soon as an optimizer has stepped there.

    Scripts read the loss right after the step, and the device then stands still until the next one is queued: whatever
    the host does in between costs the device that time, and what it does before costs nothing while the device works.
    Work is put off only where an optimizer has stepped between the last three requests: else it would be late.
    """

    def __init__(self) -> None:
        """Put nothing off yet."""
        self._stepped, self._row = False, 0  # since `puts_off` was last asked; how often in a row before
        self._work: Callable[[], None] | None = None
        self._thread = 0
        _listen()
        _waiting.add(self)

    def puts_off(self, work: Callable[[], None]) -> bool:
        """Return whether `work` will be done after the next step; else it is still to do.

        It replaces what was put off before and is not done yet.
        """
        self._row = self._row + 1 if self._stepped else 0
        self._stepped, self._thread = False, threading.get_ident()
        self._work = work if self._row >= _IN_A_ROW else None
        return self._work is not None

    def stepped(self, thread: int) -> None:
        """Do what was put off, if it was in this thread."""
        if thread == self._thread:
            self._stepped, work, self._work = True, self._work, None
            if work is not None:
                work()


@functools.cache
def _listen() -> None:
    """Hear of every step from now on; for good, since a hook that goes while hooks are called would end the script."""
    register_optimizer_step_post_hook(lambda *_: _stepped())


def _stepped() -> None:
    """Let all that wait know that an optimizer has stepped; not while its step is traced or captured."""
    if not _waiting or is_dynamo_compiling():
        return
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return
    for each in list(_waiting):
        each.stepped(threading.get_ident())
