"""The files that a process opens, each as it was then; for workers and copies, which do nothing else."""

import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from flatout.watch.files.file_questions import IMPORTING, may_be_data

__all__ = ["FileMark", "OpenedFiles", "are_as_before", "files_held", "mark_of"]

FileMark = tuple[int, int, int, int] | None
"""Size, times of content and of number, and number of a file; None where there is none."""

_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_LISTS = {"os.listdir", "os.scandir"}
_ACTS = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_HEARD = {"open", *_LISTS, *_ACTS}
_CACHED_CODE = f"{os.sep}__pycache__{os.sep}"
_SENDS = "QueueFeederThread"  # of multiprocessing, which makes a folder of its own to send tensors


class OpenedFiles:
    """Hears of every file that this process opens from Python; it stays as long as the process does.

    Attributes:
        written: a file that was written, made or removed, an empty string for none.
    """

    def __init__(self) -> None:
        """Begin to listen."""
        self.written = ""
        self._found: dict[str, FileMark] = {}
        sys.addaudithook(self._hear)

    def taken(self) -> dict[str, FileMark]:
        """Return the files that were opened to be read since the last call, each as it was before."""
        found, self._found = self._found, {}
        return found

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _HEARD or threading.current_thread().name == _SENDS or _imports(sys._getframe(1)):
            return
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            name = os.path.abspath(os.fsdecode(arguments[0]))
            if not may_be_data(name) or _CACHED_CODE in name:
                return
            if arguments[2] & _TO_WRITE:
                self.written = name
            elif name not in self._found:
                self._found[name] = mark_of(name)
        elif event in _LISTS and isinstance(arguments[0], str | bytes | os.PathLike):
            name = os.path.abspath(os.fsdecode(arguments[0]))
            self._found.setdefault(name, mark_of(name))
        elif event in _ACTS and may_be_data(str(arguments[0])):
            self.written = str(arguments[0])


def _imports(frame: Any) -> bool:
    """Tell whether a frame is of Python's own import, which keeps compiled code beside the source."""
    return bool(frame.f_code.co_filename.startswith(IMPORTING))


def mark_of(name: str) -> FileMark:
    """Return what tells a file from what it was before; None where it is gone."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def are_as_before(files: Mapping[str, FileMark]) -> bool:
    """Tell whether all of these files are as they were; 1 to 2 us a file."""
    return all(mark_of(name) == mark for name, mark in files.items())


def files_held() -> dict[str, FileMark]:
    """Return the files that this process may read, as it has them open or mapped; not Python's, nor the system's."""
    names = set()
    with contextlib.suppress(OSError):
        names = {_link(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_read(int(number))}
        with open("/proc/self/maps") as maps:
            names |= {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    return {name: mark_of(name) for name in names if name.startswith("/") and may_be_data(name)}


def _is_read(number: int) -> bool:
    """Tell whether an open file may be read; what is printed to one changes nothing that samples are made from."""
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
    except OSError:  # closed by now
        return False


def _link(name: str) -> str:
    try:
        return os.readlink(name)
    except OSError:
        return ""
