"""How many bytes files behind fsspec bring over the network, and how many of them are read."""

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from flatout.probe.core.seams import Hits, Seams

__all__ = ["RemoteWatch"]


class RemoteWatch:
    """Totals over this process: what was asked of the network, what was handed on, and how long reads waited for it.

    A file that fsspec opens reads ahead by blocks (5 MiB where nobody says otherwise), and its cache counts what it
    asks for (https://github.com/fsspec/filesystem_spec/pull/1566, of 2024). Files of an fsspec without that, and those
    that are no `AbstractBufferedFile` (local ones, whole objects), are not counted.
    """

    def __init__(self) -> None:
        """Count nothing yet."""
        self.requests = self.fetched = self.used = self.waited_ns = 0
        self._installed = False

    def install(self, seams: Seams) -> None:
        """Wrap `read` as soon as the script has imported fsspec; cheap to ask again."""
        if not self._installed and "fsspec.spec" in sys.modules:
            self._installed = True
            seams.wrap("fsspec.spec:AbstractBufferedFile.read", self._read)

    def now(self) -> tuple[int, int, int, int]:
        """Return requests, bytes asked for, bytes handed on and nanoseconds so far."""
        return self.requests, self.fetched, self.used, self.waited_ns

    def _read(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def read(file: Any, *args: Any, **kwargs: Any) -> Any:
            cache: Any = getattr(file, "cache", None)
            before = getattr(cache, "total_requested_bytes", None)
            if before is None:
                return original(file, *args, **kwargs)
            hits.count += 1
            start = perf_counter_ns()
            found = original(file, *args, **kwargs)
            self.used += len(found)
            fetched = cache.total_requested_bytes - before
            if fetched > 0:
                self.requests += 1
                self.fetched += fetched
                self.waited_ns += perf_counter_ns() - start
            return found

        return read
