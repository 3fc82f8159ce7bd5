"""What the disk or network gives of the files that samples come from, measured by reading them again.

Files are those that were opened while batches were made; where none was, and something was read, those that the process
has open. They are read one after another, first after the system was asked to forget what it holds of them, then once
more.
"""

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator

from flatout.schema.loader_figures import Figure, FileRate
from flatout.watch.files.file_questions import may_be_data

__all__ = ["SampleFiles", "file_rate"]

_MOST_BYTES, _MOST_FILES, _MOST_S = 64 << 20, 512, 2.0
_CHUNK = 1 << 20
_BLOCKS = 8
_LEAST_READ = 64 << 10  # of all batches: the clock of waiting reads some bytes for each of them
_CODE = (".py", ".pyc", ".so")

_listening: list["SampleFiles"] = []  # who is told; the ear of the interpreter cannot be taken off again
_hears = [False]


class SampleFiles:
    """Notes, as a context manager, which files are opened and how much is read meanwhile."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.names: dict[str, None] = {}
        self.read_bytes = 0

    def __enter__(self) -> "SampleFiles":
        self.read_bytes = -_bytes_read()
        _listening.append(self)
        if not _hears[0]:
            _hears[0] = True
            sys.addaudithook(_hear)
        return self

    def __exit__(self, *_: object) -> None:
        _listening.remove(self)
        self.read_bytes += _bytes_read()

    def found(self) -> list[str]:
        """Return the regular files with data in them that were opened, else those that are held open and were read."""
        opened = [name for name in self.names if _is_data(name)]
        if opened or self.read_bytes < _LEAST_READ:
            return opened
        return [name for name in dict.fromkeys(_held()) if _is_data(name)][:_MOST_FILES]


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _listening:
        return
    name = arguments[0]
    if isinstance(name, str | bytes | os.PathLike):
        for one in _listening:
            if len(one.names) < _MOST_FILES:
                one.names[os.path.abspath(os.fsdecode(name))] = None


def _held() -> Iterator[str]:
    with contextlib.suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/self/fd/{number}")


def _is_data(name: str) -> bool:
    if not name.startswith("/") or not may_be_data(name) or name.endswith(_CODE) or ".so." in name:
        return False
    with contextlib.suppress(OSError):
        found = os.stat(name)
        return stat.S_ISREG(found.st_mode) and found.st_size > 0
    return False


def file_rate(names: list[str], read_per_batch: float) -> FileRate | None:
    """Read `names` again and return how fast that goes; None where there are none, or none can be read."""
    cold, files, num_bytes = _rates(names, forget=True)
    if not num_bytes:
        return None
    warm, _, _ = _rates(names[:files], forget=False)
    return FileRate(
        files=files,
        num_bytes=num_bytes,
        disk_mb_s=Figure.of(cold),
        memory_mb_s=Figure.of(warm),
        read_per_batch=read_per_batch,
    )


def _rates(names: list[str], *, forget: bool) -> tuple[list[float], int, int]:
    """Return megabytes a second of blocks of what was read, the number of files and the bytes of all."""
    taken: list[tuple[int, float]] = []
    files = total = 0
    until = time.perf_counter() + _MOST_S
    for name in names:
        if total >= _MOST_BYTES or time.perf_counter() >= until:
            break
        with contextlib.suppress(OSError):
            for size, seconds in _reads(name, until, _MOST_BYTES - total, forget):
                taken.append((size, seconds))
                total += size
            files += 1
    return _in_blocks(taken, total), files, total


def _reads(name: str, until: float, most: int, forget: bool) -> Iterator[tuple[int, float]]:
    """Yield bytes and seconds of each read of a file; opening it counts to the first, as samples open theirs, too."""
    began = time.perf_counter()
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if forget and hasattr(os, "posix_fadvise"):
            spent = time.perf_counter() - began
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter() - spent
        while most > 0 and began < until:
            size = len(os.read(file, min(_CHUNK, most)))
            now = time.perf_counter()
            if not size:
                return
            yield size, now - began
            most, began = most - size, now
    finally:
        os.close(file)


def _in_blocks(taken: list[tuple[int, float]], total: int) -> list[float]:
    """Return the rates of up to 8 blocks of about as many bytes each."""
    rates, size, seconds = [], 0, 0.0
    for each_size, each_seconds in taken:
        size, seconds = size + each_size, seconds + each_seconds
        if size >= total / _BLOCKS and seconds > 0:
            rates.append(size / 1e6 / seconds)
            size, seconds = 0, 0.0
    return rates or ([size / 1e6 / seconds] if seconds > 0 else [])


def _bytes_read() -> int:
    """Return the bytes that this process has read of files and pipes; 0 where the system does not count them."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])
    return 0
