"""Which pages of memory were written since they were last asked about, as the kernel knows it (Linux 6.7 and later).

userfaultfd with asynchronous write protection, and the PAGEMAP_SCAN request: pages are protected, the kernel lifts the
protection of one at its first write and remembers it. Whoever writes, from whatever thread, by whatever means, sees
neither signal nor error. No privilege is needed. Anonymous memory only: arrays, tensors, tables of containers.
"""

import ctypes
import fcntl
import functools
import os
import platform
import struct

from flatout.watch.memory.layouts import compiled
from flatout.watch.memory.own_mappings import is_own_memory

__all__ = ["PAGE", "WrittenPages", "written_pages"]

PAGE = 4096
_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_API, _REGISTER, _PROTECT = 0xC018AA3F, 0xC020AA00, 0xC018AA06
_FEATURES = 1 << 15 | 1 << 13 | 1  # asynchronous, pages without memory too, faults of writes
_WRITES, _ON = 2, 1


class WrittenPages:
    """The process's one userfaultfd: a range of memory can be watched by one only."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            OSError: the kernel has no such thing, or does not allow it here.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        number = _USERFAULTFD.get(platform.machine())
        if number is None or os.sysconf("SC_PAGE_SIZE") != PAGE:
            raise OSError("no known way to ask for written pages on this kind of machine")
        self._fd = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        try:
            fcntl.ioctl(self._fd, _API, struct.pack("QQQ", 0xAA, _FEATURES, 0))
            self.pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._maps = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._fd)
            raise

    def protect(self, start: int, length: int) -> None:
        """Watch whole pages from `start` on.

        Raises:
            OSError: it is memory of another kind, as of a file or shared with other processes.
        """
        if not is_own_memory(self._maps, start, length):
            raise OSError("memory of a file, or shared with other processes")
        if compiled is not None:
            compiled.publish(self.pagemap, start, length)  # what was written so far is news to who watches it already
        fcntl.ioctl(self._fd, _REGISTER, struct.pack("QQQQ", start, length, _WRITES, 0))
        fcntl.ioctl(self._fd, _PROTECT, struct.pack("QQQ", start, length, _ON))


@functools.cache
def _of_process(process: int) -> WrittenPages | None:
    try:
        return WrittenPages()
    except OSError:
        return None


def written_pages() -> WrittenPages | None:
    """Return what tells of written pages in this process, None where the kernel does not."""
    if os.environ.get("FLATOUT_NO_WRITTEN_PAGES"):
        return None
    return _of_process(os.getpid())
