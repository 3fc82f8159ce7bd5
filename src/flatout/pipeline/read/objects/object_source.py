"""Objects read by their place in a list: from the disk cache where that is known to hold them, else from their stores.

An object is what it was when it was first read: later reads give these bytes or an error. It is asked for, with the
ETag that is kept, once a run; what another process of the same data set has asked for since that was made counts.
"""

import os
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_cache import KeptObject, ObjectCache, cache_name, usual_folder
from flatout.pipeline.read.objects.object_reads import ObjectRequest
from flatout.pipeline.read.objects.object_urls import LOCAL, location_of
from flatout.pipeline.read.objects.process_readers import ProcessReaders
from flatout.pipeline.read.objects.store_options import told

__all__ = ["ObjectList", "ObjectSource"]

_QUICK_S = 0.5e-3  # what a disk may take for an object, so that asking it on threads is not worth it
_CLOCK_S = 1.0  # a time that lies so far ahead is none of this clock


@dataclass(frozen=True)
class ObjectList:
    """Which objects a data set is of, and how they are to be read."""

    urls: Sequence[str]
    ranges: Sequence[tuple[int, int] | None] | None = None
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    folder: Path | None = None
    max_bytes: int | None = None
    in_flight: int = 64
    immutable: bool = False
    opened: float = field(default_factory=time.time)


class ObjectSource:
    """Reads the objects of a list, in whichever process it is asked, from any number of threads."""

    def __init__(self, listed: ObjectList) -> None:
        """Read nothing yet."""
        self._listed = listed
        self._store = told(listed.options)
        self.cache = ObjectCache(listed.folder or usual_folder(), listed.max_bytes)
        self._identities = array("q", bytes(8 * len(listed.urls)))  # 0: not read yet
        self._sums = array("L", bytes(array("L").itemsize * len(listed.urls)))
        self._readers: dict[int, ProcessReaders] = {}  # by process

    def one(self, place: int) -> bytes:
        """Return one object.

        Raises:
            BadObject: it is missing, may not be read, does not come whole, or has changed.
        """
        return self._read(place)

    def several(self, places: Sequence[int]) -> Iterator[bytes]:
        """Give objects in order; those that do not lie on this machine's disk are asked for at once.

        Raises:
            BadObject: as `one` does.
        """
        begun: dict[int, bytes | Future[bytes]] = {}
        pool, quick = self._of_process().pool, True
        try:
            for place in places:
                if place in begun:
                    continue
                if not quick:
                    begun[place] = pool.submit(self._read, place)
                    continue
                start = time.perf_counter()
                found, kept = self._on_disk(place)
                quick = time.perf_counter() - start < _QUICK_S
                begun[place] = pool.submit(self._fetched, place, kept) if found is None else found
            for place in places:
                yield _result(begun[place])
        finally:
            _cancel(begun)

    def _read(self, place: int) -> bytes:
        found, kept = self._on_disk(place)
        return self._fetched(place, kept) if found is None else found

    def _on_disk(self, place: int) -> tuple[bytes | None, KeptObject | None]:
        """Return an object that lies on this machine's disk, and is current; and what is kept of it, current or not."""
        request = self._request(place)
        where = location_of(request.url)
        if where.reader == LOCAL:
            answer = self._of_process().reader_of(where).read(request)
            assert answer.data is not None
            self._note(place, answer.identity, answer.data)
            return answer.data, None
        kept = self.cache.find(self._name(request))
        if kept is None or not self._is_current(place, kept):
            return None, kept
        self._note(place, kept.identity, kept.data)
        return kept.data, kept

    def _fetched(self, place: int, kept: KeptObject | None) -> bytes:
        """Ask the store for an object, unless it is still the one that is kept."""
        request = self._request(place, kept.identity if kept else "")
        begun = time.time()
        answer = self._of_process().reader_of(location_of(request.url)).read(request)
        if answer.data is None:
            assert kept is not None
            self._note(place, kept.identity, kept.data)
            self.cache.confirm(self._name(request), begun)
            return kept.data
        self._note(place, answer.identity, answer.data)
        if answer.identity:
            self.cache.keep(self._name(request), answer.data, answer.identity, begun)
        return answer.data

    def _is_current(self, place: int, kept: KeptObject) -> bool:
        """Return whether somebody has asked for this object since the data set was made, or need not."""
        if self._identities[place]:
            return bool(self._identities[place] == _number(kept.identity))
        if self._listed.immutable:
            return True
        return self._listed.opened <= kept.confirmed <= time.time() + _CLOCK_S

    def _note(self, place: int, identity: str, data: bytes) -> None:
        """Note what an object is, the first time.

        Raises:
            BadObject: it has changed since.
        """
        if not identity or self._identities[place] == _number(identity):
            return
        found = zlib.crc32(data)
        if self._identities[place] and self._sums[place] != found:  # two servers may name the same bytes differently
            raise BadObject(
                f"{self._listed.urls[place]} has changed since it was first read.",
                "Its sample would be another one than before.",
                "Start the training again once the objects are written, or write changed ones under other names.",
            )
        self._sums[place] = found
        self._identities[place] = _number(identity)

    def _request(self, place: int, known: str = "") -> ObjectRequest:
        some = self._listed.ranges[place] if self._listed.ranges is not None else None
        start, stop = (None, None) if some is None else map(int, some)
        return ObjectRequest(self._listed.urls[place], start, stop, known)

    def _name(self, request: ObjectRequest) -> str:
        return cache_name(self._store, request.url, request.start, request.stop)

    def _of_process(self) -> ProcessReaders:
        found = self._readers.get(os.getpid())
        if found is None:
            made = ProcessReaders(self._listed.options, self._listed.in_flight)
            found = self._readers.setdefault(os.getpid(), made)
        return found


def _result(got: "bytes | Future[bytes]") -> bytes:
    try:
        return got if isinstance(got, bytes) else got.result()
    finally:
        del got  # an error refers to this frame


def _cancel(begun: "dict[int, bytes | Future[bytes]]") -> None:
    """Give up what is not under way, and forget all: an error refers to the frame that has it, and keeps threads."""
    for each in begun.values():
        if not isinstance(each, bytes):
            each.cancel()
    begun.clear()


def _number(identity: str) -> int:
    return hash(identity) or 1
