"""Make every way in which Python code ends its process wait until files are written.

`os._exit` and `os.abort` end a process without `atexit`; they wait here. So does a signal that the process sends to
itself. While files are pending, and only then, a handler of ours catches signals from outside that nobody handles: it
waits, restores the default and sends the signal once more, so that the process ends by it, as it would have. Whenever
the script asks for the handler, it sees the default.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from flatout.fixes.checkpoint.background_writer import BackgroundWriter

if TYPE_CHECKING:
    from flatout.fixes.core.site import Make, Site

__all__ = ["wait_at_exits", "write_before_end"]

_ENDS = (  # signals that end a process by default and can be caught
    *("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2"),
    *("SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGIO"),
)
_ROOM_BYTES = 512  # more than `struct sigaction` takes on any system; its first word is the handler
_WORD = ctypes.sizeof(ctypes.c_void_p)


def write_before_end(site: "Site", background: BackgroundWriter) -> None:
    """Let every end of the process that Python code can bring about wait for the files of `background`."""

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(status: int) -> None:
            failed = background.failed_at_end()
            original(status or int(failed))

        return leave

    def settled(original: Callable[..., Any]) -> Callable[..., Any]:
        def end(*args: Any, **kwargs: Any) -> Any:
            background.failed_at_end()
            return original(*args, **kwargs)

        return end

    _at_exits(site, leaving, settled)
    if threading.current_thread() is threading.main_thread():  # nobody else may set handlers
        caught = _Caught(background)
        site.wrap("signal:signal", caught.setting)
        site.wrap("signal:getsignal", caught.asking)
        background.on_change.append(caught.act)
        site.switch(caught.begin, caught.leave)


def wait_at_exits(site: "Site", end: Callable[[], None]) -> None:
    """Let `os._exit`, `os.abort` and signals that the process sends to itself wait for `end`."""

    def ending(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            end()
            return original(*args, **kwargs)

        return call

    _at_exits(site, ending, ending)


def _at_exits(site: "Site", leaving: "Make", settled: "Make") -> None:
    for name, make in (("_exit", leaving), ("abort", settled)):
        for place in (*_aliases(getattr(os, name)), f"os:{name}"):
            site.wrap(place, make)
    for name in ("raise_signal", "pidfd_send_signal"):
        site.wrap(f"signal:{name}", settled)


def _aliases(function: Callable[..., Any]) -> list[str]:
    """Return where modules hold `function` under a name of their own: `from os import _exit` before torch."""
    found = []
    for name, module in list(sys.modules.items()):
        if name in ("os", "posix") or module is None:
            continue
        names = list(getattr(module, "__dict__", {}).items())
        found += [f"{name}:{each}" for each, value in names if value is function]
    return found


class _Caught:
    """The signals that would end the process, and what becomes of them while files are pending."""

    def __init__(self, background: BackgroundWriter) -> None:
        """Change nothing yet."""
        self._background = background
        self._sigaction = ctypes.PyDLL(None).sigaction  # with the interpreter's lock held: nobody sets one meanwhile
        self._known, self._set = signal.getsignal, signal.signal
        self._forms: dict[int, tuple[bytes, bytes]] = {}  # signal: the default, and ours, as the system keeps them
        self._numbers = {int(getattr(signal, name)) for name in _ENDS if hasattr(signal, name)}

    def begin(self) -> None:
        """Make a handler known to Python for each signal that has the default, and leave the process to the default."""
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in self._numbers:
                if not self._pointer(self._read(number)):
                    self._take(number)

    def leave(self) -> None:
        """Make the default known to Python again."""
        with contextlib.suppress(ValueError):
            for number in self._forms:
                if self._known(number) == self._end:
                    self._set(number, signal.SIG_DFL)

    def act(self, pending: bool) -> None:
        """Catch signals from now on, or leave them to the default; those that somebody else handles stay."""
        for number, (default, ours) in self._forms.items():
            wanted, there = (ours, default) if pending else (default, ours)
            if self._known(number) == self._end and self._pointer(self._read(number)) == self._pointer(there):
                self._sigaction(number, wanted, None)

    def setting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for `signal.signal`."""

        def set_handler(signalnum: Any, handler: Any) -> Any:
            with self._background.changed:
                before = original(signalnum, handler)
                if handler == signal.SIG_DFL and signalnum in self._numbers:
                    self._take(signalnum)
                    self.act(bool(self._background.pending) and not self._background.forked)
            return signal.SIG_DFL if before == self._end else before

        return set_handler

    def asking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for `signal.getsignal`."""

        def get_handler(signalnum: Any) -> Any:
            found = original(signalnum)
            return signal.SIG_DFL if found == self._end else found

        return get_handler

    def _take(self, number: int) -> None:
        default = self._read(number)
        self._set(number, self._end)
        self._forms[number] = default, self._read(number)
        self._sigaction(number, default, None)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Write what is pending, then end as the signal would have ended the process."""
        self._background.failed_at_end()
        self._sigaction(number, self._forms[number][0], None)
        os.kill(os.getpid(), number)

    def _read(self, number: int) -> bytes:
        room = ctypes.create_string_buffer(_ROOM_BYTES)
        self._sigaction(number, None, room)
        return room.raw

    def _pointer(self, form: bytes) -> int:
        return int.from_bytes(form[:_WORD], sys.byteorder)
