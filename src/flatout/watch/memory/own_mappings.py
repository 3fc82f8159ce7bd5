"""Whether memory is the process's own: mapped from no file, and shared with no other process.

What others write there, through a file or through a mapping of theirs, lifts no protection of pages in this process,
and kernels from 6.7 on protect it all the same. Kernels from 6.11 on are asked for single mappings, others list all.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator

__all__ = ["is_own_memory"]

_QUERY, _OR_NEXT, _SHARED = 0xC0686611, 0x10, 0x8
_MAPPING = struct.Struct("9Q4I2Q")


def is_own_memory(maps: int, start: int, length: int) -> bool:
    """Return whether all that is mapped in a range is anonymous and private; `maps`: `/proc/self/maps`, open."""
    try:
        found = list(_asked(maps, start, start + length))
    except OSError:
        found = list(_listed(maps, start, start + length))
    return all(found)


def _asked(maps: int, start: int, end: int) -> Iterator[bool]:
    """Yield whether each mapping of a range is the process's own.

    Raises:
        OSError: this kernel does not tell.
    """
    while start < end:
        given = bytearray(_MAPPING.pack(_MAPPING.size, _OR_NEXT, start, *(0,) * 12))
        try:
            fcntl.ioctl(maps, _QUERY, given)
        except OSError as error:
            if error.errno == errno.ENOENT:  # nothing is mapped from there on
                return
            raise
        _, _, _, first, last, flags, _, _, inode, *_ = _MAPPING.unpack(given)
        if first >= end:
            return
        yield not flags & _SHARED and not inode
        start = last


def _listed(maps: int, start: int, end: int) -> Iterator[bool]:
    parts, at = [], 0
    while part := os.pread(maps, 1 << 16, at):
        parts.append(part)
        at += len(part)
    for line in b"".join(parts).decode().splitlines():
        place, rights, _, _, inode, *_ = line.split()
        first, last = (int(part, 16) for part in place.split("-"))
        if first < end and start < last:
            yield rights.endswith("p") and inode == "0"
