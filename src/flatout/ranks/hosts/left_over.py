"""The end of ranks, and of what a rank that was killed has left running: workers, programs that it had started.

Only processes that a rank of this launcher has started count, and of these only such as have stayed in its session:
what the script has let go on purpose, as a daemon, is its own.
"""

import contextlib
import os
import time
from collections.abc import Sequence

import psutil

from flatout.schema.ranks import LAUNCHER_VARIABLE, SESSION_VARIABLE

__all__ = ["end_left_over", "end_ranks", "wait_for_ranks"]

_TERMINATED_S = 8.0  # for a process that takes SIGTERM: to save something


def wait_for_ranks(patience_s: float) -> bool:
    """Return whether the ranks of this launcher have ended by themselves in time."""
    ranks, until = psutil.Process().children(), time.monotonic() + patience_s
    while any(map(_runs, ranks)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def end_ranks() -> None:
    """End the ranks of this launcher. Nobody but torch's agent asks how they have ended."""
    _end(psutil.Process().children())


def end_left_over() -> None:
    """End what ranks of this launcher have left running."""
    own = str(os.getpid())
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            said = process.environ()
            if said.get(LAUNCHER_VARIABLE) == own and said.get(SESSION_VARIABLE) == str(os.getsid(process.pid)):
                found.append(process)
    _end(found)


def _end(processes: Sequence[psutil.Process]) -> None:
    """Ask processes to end, and after a while kill those that have not."""
    for act in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                act(process)
        until = time.monotonic() + _TERMINATED_S
        while any(map(_runs, processes)) and time.monotonic() < until:
            time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
