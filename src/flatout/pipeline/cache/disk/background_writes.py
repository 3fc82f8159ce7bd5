"""Work done behind the training's back: on one thread, with pauses, ended at the latest when the process ends."""

import atexit
import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["BackgroundWrites"]

_SHARE = 0.2  # of the time, for pieces that hold the interpreter's lock
_AT_EXIT_S = 10.0  # work that is under way when the script has ended may take so long
_GIVEN_UP_S = 2.0  # a piece that is under way when work is given up

_busy: "set[BackgroundWrites]" = set()
_known = threading.Event()  # set once the interpreter ends them


class BackgroundWrites:
    """One thread that lives as long as there is work. What is not done when the process ends is given up."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._given_up = False
        self._resumed = time.monotonic()

    def do(self, work: Callable[[], None]) -> None:
        """Do `work` later; what it raises is lost. It calls `pause` or `stop` often."""
        if self._pid != os.getpid():  # a forked child has other things to do, and no such thread
            return
        with self._lock:
            if self._given_up:
                return
            self._work.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flatout-saving", daemon=True)
                _busy.add(self)
                self._thread.start()
        if not _known.is_set():
            _known.set()
            atexit.register(_end_all)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all work is done; return whether it is."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return self._thread is None

    def pause(self) -> None:
        """Let the training go on, after some work with the interpreter's lock held.

        Raises:
            OSError: the work is to be given up.
        """
        self.stop()
        time.sleep(min(0.1, (time.monotonic() - self._resumed) * (1 / _SHARE - 1)))
        self._resumed = time.monotonic()

    def stop(self) -> None:
        """Look whether the work is to be given up.

        Raises:
            OSError: it is.
        """
        if self._given_up:
            raise OSError(errno.ECANCELED, "given up: the process ends")

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work or self._given_up:
                    self._thread = None
                    _busy.discard(self)
                    return
                work = self._work.popleft()
            self._resumed = time.monotonic()
            with contextlib.suppress(Exception):
                work()
            del work

    def end(self) -> None:
        """Wait a while for what is under way, then give it up: the process ends."""
        thread = self._thread
        if thread is None or self._pid != os.getpid():
            return
        try:
            thread.join(_AT_EXIT_S)
        finally:
            self._given_up = True
            thread.join(_GIVEN_UP_S)


def _end_all() -> None:
    for one in list(_busy):
        one.end()
