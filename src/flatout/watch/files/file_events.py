"""What the kernel says of files while samples are kept: which were written, replaced or removed (inotify, Linux)."""

import ctypes
import errno
import os
import struct

__all__ = ["FileEvents"]

_WRITTEN = 0x2 | 0x40 | 0x80 | 0x100 | 0x200  # modified, moved from, moved to, created, deleted
_GONE = 0x400 | 0x800 | 0x2000 | 0x4000  # the folder itself was deleted, moved or unmounted; events were lost
_HEAD = struct.calcsize("iIII")
_AT_ONCE = 65536


class FileEvents:
    """Tells of files in some folders.

    Attributes:
        watched: the folders of which it does; a kernel may not watch all that are asked for.
    """

    def __init__(self, folders: list[str]) -> None:
        """Begin to listen."""
        self.watched: set[str] = set()
        self._folders: dict[int, str] = {}
        self._process = os.getpid()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if folders else -1
        for folder in folders if self._descriptor >= 0 else ():
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _WRITTEN)
            if number >= 0:
                self._folders[number] = folder
                self.watched.add(folder)
            elif ctypes.get_errno() == errno.ENOSPC:
                break

    def touched(self) -> list[str]:
        """Return the names of files of which something was said since the last call; "" where that cannot be told."""
        if self._descriptor < 0 or self._process != os.getpid():
            return []
        try:
            data = os.read(self._descriptor, _AT_ONCE)
        except OSError:  # nothing was said
            return []
        found, at = [], 0
        while at < len(data):
            number, mask, _, length = struct.unpack_from("iIII", data, at)
            name = os.fsdecode(data[at + _HEAD : at + _HEAD + length].rstrip(b"\0"))
            at += _HEAD + length
            lost = mask & _GONE or not name or number not in self._folders
            found.append("" if lost else os.path.join(self._folders[number], name))
        return found

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0 and self._process == os.getpid():
            os.close(self._descriptor)
