"""A terminal of its own for a script's output, so that a panel below it stays whole; its input stays what it was.

Only streams that are a terminal are led through it: a log file gets its bytes from the script, as ever. It is no
controlling terminal, so keys and signals reach the script as they would without it.
"""

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable
from typing import Self

from flatout.engine.process.masked_signals import block_signals

__all__ = ["OwnTerminal"]

_CHUNK = 1 << 16
_LOOK_S = 0.05


class OwnTerminal:
    """A pseudo-terminal, and a thread that hands on what is written to it; a context manager around the script.

    `stdout` and `stderr` are what the script is to be started with, None where it keeps ours.
    """

    def __init__(self, wrote: Callable[[bytes], object]) -> None:
        """Hand every chunk of output to `wrote`, in a thread of ours, as it comes."""
        self._wrote = wrote
        self._ours = self._theirs = -1
        self.stdout: int | None = None
        self.stderr: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hand_on, name="flatout-output", daemon=True)

    def __enter__(self) -> Self:
        streams = [stream.isatty() for stream in (sys.stdout, sys.stderr)]
        if any(streams):
            with contextlib.suppress(OSError, termios.error):  # no pseudo-terminal to be had: output goes where it went
                self._open(*streams)
        return self

    def _open(self, stdout: bool, stderr: bool) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)  # bytes arrive as they were written: line ends stay as they are
        self.resize()
        self.stdout = self._theirs if stdout else None
        self.stderr = self._theirs if stderr else None

    def started(self) -> None:
        """Begin to read, and let go of the script's end: when the script has closed it, too, its output has ended."""
        if self._theirs >= 0:
            self._thread.start()
            self._let_go()

    def _let_go(self) -> None:
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1

    def resize(self) -> None:
        """Be as large as the real terminal is now."""
        if self._ours < 0:
            return
        with contextlib.suppress(OSError, termios.error):
            size = termios.tcgetwinsize(2)
            if size != termios.tcgetwinsize(self._ours):
                termios.tcsetwinsize(self._ours, size)

    def __exit__(self, *_: object) -> None:
        self._let_go()
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _hand_on(self) -> None:
        """Read until every process has closed the other end, or the script is over and nothing more comes."""
        block_signals()
        while True:
            over = self._over.is_set()
            if not select.select([self._ours], [], [], _LOOK_S)[0]:
                if over:
                    return
                continue
            try:
                chunk = os.read(self._ours, _CHUNK)
            except OSError:  # how Linux says that the other end is closed
                return
            if not chunk:
                return
            self._wrote(chunk)
