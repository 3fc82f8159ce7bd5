"""How much of the machine other programs use while a child process of ours runs."""

import os
import time

import psutil

__all__ = ["ForeignLoad"]


class ForeignLoad:
    """Looks at the processors' time at its beginning and at its end, and takes off what we and our children used."""

    def __init__(self) -> None:
        """Begin now."""
        self._begin_s = time.monotonic()
        self._others_s = _others_s()

    def share(self) -> float:
        """Return the share of all cores, 0 to 1, that others have used since; a child counts once it has ended."""
        elapsed_s = max(1e-3, time.monotonic() - self._begin_s)
        used = (_others_s() - self._others_s) / elapsed_s / (psutil.cpu_count() or 1)
        return min(1.0, max(0.0, used))


def _others_s() -> float:
    times = os.times()
    own_s = times.user + times.system + times.children_user + times.children_system
    return float(sum(psutil.cpu_times()[:3])) - own_s
