"""Which files are still to be written, in memory that forked processes share: workers of a loader wait for those.

The process that writes notes each such file. A process that was forked from it, and opens or stats one, or writes to
it, says so and waits until it is written, for some seconds at most.
"""

import mmap
import struct
import time
from typing import Any

__all__ = ["PlacesOfParent", "SharedPlaces"]

_PLACE, _WORD = struct.Struct("=QQ"), struct.Struct("=Q")  # device and number of a file; how many there are, or a flag
_SLOT = _PLACE.size + _WORD.size
_NOTHING = _PLACE.pack(0, 0)
_PATIENCE_S, _LOOK_S = 5.0, 0.001


class SharedPlaces:
    """Files that are still to be written, by two numbers that tell each from all others: `device:number`."""

    def __init__(self) -> None:
        """Note none yet."""
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._slots: dict[str, int] = {}
        self._free = list(range(_WORD.size, mmap.PAGESIZE - _SLOT, _SLOT))

    def __bool__(self) -> bool:
        """Return whether any file is."""
        return bool(_WORD.unpack_from(self._page)[0])

    def __contains__(self, place: str) -> bool:
        """Return whether a file is still to be written."""
        return bool(self) and self._found(place) >= 0

    def add(self, place: str) -> bool:
        """Note a file; return False where there is no room for it."""
        if place not in self._slots:
            if not self._free:
                return False
            slot = self._slots[place] = self._free.pop()
            self._page[slot : slot + _SLOT] = _packed(place) + _WORD.pack(0)
            _WORD.pack_into(self._page, 0, len(self._slots))
        return True

    def remove(self, place: str) -> bool:
        """Note that a file is written; return whether another process waited for that."""
        slot = self._slots.pop(place, None)
        if slot is None:
            return False
        self._free.append(slot)
        self._page[slot : slot + _PLACE.size] = _NOTHING
        _WORD.pack_into(self._page, 0, len(self._slots))
        return bool(_WORD.unpack_from(self._page, slot + _PLACE.size)[0])

    def wait(self, place: str) -> None:
        """Wait in a forked process until a file is written."""
        end = time.monotonic() + _PATIENCE_S
        while self and (slot := self._found(place)) >= 0 and time.monotonic() < end:
            _WORD.pack_into(self._page, slot + _PLACE.size, 1)
            time.sleep(_LOOK_S)

    def _found(self, place: str) -> int:
        """Return where a file stands in memory, as whichever process has noted it."""
        at = self._page.find(_packed(place), _WORD.size)
        while at >= 0 and (at - _WORD.size) % _SLOT:  # bytes of two files, side by side
            at = self._page.find(_packed(place), at + 1)
        return at


class PlacesOfParent(dict[str, Any]):
    """What a forked process knows of files: none by itself, and asked for as long as text of the other one waits."""

    def __init__(self, places: SharedPlaces) -> None:
        """Take the places of the process that this one is forked from."""
        super().__init__()
        self._places = places

    def __bool__(self) -> bool:
        """Return whether text of any file waits there."""
        return bool(self._places)


def _packed(place: str) -> bytes:
    device, _, number = place.partition(":")
    return _PLACE.pack(int(device), int(number))
