"""The readers of one process, and the threads on which they read."""

import importlib.util
import multiprocessing
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flatout.pipeline.read.objects.fsspec_reads import FsspecReader
from flatout.pipeline.read.objects.local_reads import LocalReader
from flatout.pipeline.read.objects.object_reads import ObjectReader
from flatout.pipeline.read.objects.object_urls import FSSPEC, LOCAL, OBSTORE, Location
from flatout.pipeline.read.objects.obstore_reads import ObstoreReader
from flatout.pipeline.read.objects.reading_process import ReadingProcess

__all__ = ["ProcessReaders", "listed"]

_forked_with_obstore = multiprocessing.parent_process() is not None and "obstore" in sys.modules


class ProcessReaders:
    """What reads for this process alone: a forked one makes its own.

    Attributes:
        pool: the threads, one for each object that is asked for at a time.
    """

    def __init__(self, options: dict[str, Any], in_flight: int) -> None:
        """Start nothing yet."""
        self.pool = ThreadPoolExecutor(in_flight, "flatout-objects")
        self._options, self._in_flight = options, in_flight
        self._made: dict[str, ObjectReader] = {LOCAL: LocalReader(), FSSPEC: FsspecReader(options)}
        self._making = threading.Lock()

    def reader_of(self, place: Location) -> ObjectReader:
        """Return what reads an object.

        Raises:
            BadObject: it cannot be started.
        """
        if place.reader not in self._made:
            with self._making:
                if place.reader not in self._made:
                    self._made[place.reader] = self._of_stores()
        return self._made[place.reader]

    def _of_stores(self) -> ObjectReader:
        if not has_obstore():
            return self._made[FSSPEC]
        if _forked_with_obstore:
            return ReadingProcess(self._options, self._in_flight)
        return ObstoreReader(self._options)


def listed(place: Location, options: dict[str, Any]) -> list[str]:
    """Return the keys of a store of obstore's that begin with that of `place`.

    A process of its own asks, where this one has not asked a store itself: workers that are forked later then can.

    Raises:
        BadObject: they cannot be listed.
    """
    if "obstore" in sys.modules and not _forked_with_obstore:
        return ObstoreReader(options).names(place.root, place.key)
    asked = ReadingProcess(options, 1)
    try:
        return asked.names(place.root, place.key)
    finally:
        asked.close()


def has_obstore() -> bool:
    """Return whether obstore is installed."""
    return importlib.util.find_spec("obstore") is not None


def can_list(place: Location) -> bool:
    """Return whether `listed` is for this place."""
    return place.reader == OBSTORE and not place.root.startswith("http") and has_obstore()


def _after_fork() -> None:
    global _forked_with_obstore
    _forked_with_obstore = _forked_with_obstore or "obstore" in sys.modules


os.register_at_fork(after_in_child=_after_fork)
