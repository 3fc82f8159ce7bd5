"""The machine: its processor, and the cores and memory that a process may take of it.

Containers and job schedulers limit both by Linux control groups, of which neither `os.cpu_count()` nor the free memory
of the machine knows: with `docker run --cpus 2` on 64 cores a process sees 64 and is stopped most of the time.
Files and their meaning: kernel documentation, admin-guide/cgroup-v2 and cgroup-v1.
"""

import contextlib
import functools
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path

__all__ = ["core_wait_ns", "group_memory_left", "is_running", "processor_name", "usable_cores"]

_open, _read, _close = os.open, os.read, os.close  # a script that is watched may have others by then
_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def processor_name() -> str:
    """Return the model of the processor as Linux tells it, elsewhere the family."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return the number of cores that this process may use at once: its affinity, and its groups' share of time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _smallest_quota())))


def is_running(process: int) -> bool:
    """Return whether a process is there and has not ended; it is not waited for, which is its parent's."""
    path = f"/proc/{process}/stat"
    try:
        file = _open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read(file, 1024).rpartition(b")")[2].split()[0] not in (b"Z", b"X")
        finally:
            _close(file)
    except (OSError, IndexError):
        return False


def core_wait_ns(process: int = 0) -> int:
    """Return how long the main thread of a process, or this very thread, was ready to run and had no core.

    The second number of `schedstat` (kernel documentation, scheduler/sched-stats); 0 where the system does not count.
    """
    path = f"/proc/{process}/schedstat" if process else "/proc/thread-self/schedstat"
    try:
        file = _open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(_read(file, 80).split()[1])
        finally:
            _close(file)
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux, or a process that has ended
        return 0


def group_memory_left() -> int | None:
    """Return the bytes that this process's groups may still take, None where nothing limits them.

    What a group holds of files that nobody uses at the moment counts as free: the kernel gives it back first.
    """
    left = [room for folder in _folders("memory") if (room := _room(folder)) is not None]
    return max(0, min(left)) if left else None


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group and those above it, of both generations of control groups."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = _OWN.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        root = _GROUPS if not controllers else _GROUPS / controllers
        if controllers and controller not in controllers.split(","):
            continue
        if controllers and not root.is_dir():
            root = _GROUPS / controller
        own = root / path.strip("/")
        yield from (each for each in (own, *own.parents) if each.is_relative_to(root) and each.is_dir())


@functools.cache
def _smallest_quota() -> float:
    """Return how many cores' time the groups allow; read once, for it is asked before every batch."""
    return min((quota for folder in _folders("cpu") if (quota := _quota(folder)) is not None), default=math.inf)


def _quota(folder: Path) -> float | None:
    """Return how many cores' time a group may use, None for all."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            quota, period = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
            return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    return None


def _room(folder: Path) -> int | None:
    """Return the bytes that a group may still take, None where it has no limit."""
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text(encoding="ascii"))
            used = int((folder / usage).read_text(encoding="ascii"))
            return most - used + _unused_files(folder) if most < 2**60 else None  # "none" is nearly 2 ** 63 in the old
    return None


def _unused_files(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        told = dict(line.split(" ", 1) for line in lines)
        return int(told.get("total_inactive_file", told.get("inactive_file", "0")))
    return 0
