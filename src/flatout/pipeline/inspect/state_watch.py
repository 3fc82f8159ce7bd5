"""Whether what samples are made from is as it was, asked before every batch in a few microseconds.

What an object graph found is compared byte by byte while it is little; arrays, long lists and many small objects are
told by the pages of memory that the kernel saw written. What neither can tell, files and memory that other processes
write, too, is looked at when a pass begins.
"""

import struct
import weakref
from collections.abc import Callable, Container
from typing import Any

from flatout.pipeline.inspect.layouts import compiled
from flatout.pipeline.inspect.object_graph import ObjectGraph
from flatout.pipeline.inspect.object_path import path_to
from flatout.pipeline.inspect.read_files import Opened, ReadFiles
from flatout.pipeline.inspect.written_pages import PAGE, pages

__all__ = ["StateWatch"]

_CORE_RANGES, _CORE_BYTES, _CORE_LENGTH = 1500, 64 * 1024, 1024
"""What is compared byte by byte at most: 1,500 ranges take some 10 us out of cold caches."""

_GAP = 16  # pages between two ranges that are watched with them
_EACH_LOOK_BYTES = 64 * 1024  # of what is not told by pages, what is read at every look; the rest when a pass begins

_Pair = tuple[int, int, int]  # start, length, owner


class StateWatch:
    """Watches what some things are made from.

    Attributes:
        graph: what was found of them.
        unseen: there is something that only `look_deep` sees.
        reads_files: samples are read from files.
    """

    def __init__(
        self,
        roots: list[tuple[str, Any]],
        left_out: Callable[[], list[Any]] = list,
        *,
        opened: Opened = frozenset(),
        live: frozenset[int] = frozenset(),
        files: str = "listed",
    ) -> None:
        """Take the things, each with what it is called; they are not kept alive.

        `left_out()`: what may be as it likes. `opened`: files that samples are read from. `live`:
        addresses of numbers that may change, since they are read anew for each batch. `files`, of the
        folders of names that the things hold: "listed", or "heard" where only the kernel is asked, or "passed" over.
        """
        self._opened, self._live, self._following = opened, live, files
        self._roots = [(name, _weakly(thing)) for name, thing in roots]
        self._left_out = left_out
        self._begin()

    def _begin(self) -> None:
        things = [ref() for _, ref in self._roots]
        there = [thing for thing in things if thing is not None]
        self.graph = ObjectGraph(*there, left_out=self._left_out(), live=self._live)
        core, large = _parted(self.graph.pairs, self.graph.owners, self.graph.filtered.keys())
        self._pages, self._protected = pages(), list[tuple[int, int]]()
        unpaged = self._protect(large) if self._pages is not None else large
        apart = set(unpaged)
        paged = [pair for pair in large if pair not in apart]
        near = sum(length for _, length, _ in unpaged) <= _EACH_LOOK_BYTES
        intervals = b"".join(struct.pack("QQ", *each) for each in self._protected)
        pagemap = self._pages.pagemap if self._pages is not None else -1
        self._watch = compiled.Watch(*_packed(core + (unpaged if near else [])), *_packed(paged), intervals, pagemap)
        self._far = None if near or not unpaged else compiled.Watch(b"", b"", *_packed(unpaged), b"", -1)
        self._files = ReadFiles(
            self._opened,
            [] if self._following == "passed" else self.graph.held,
            self.graph.files,
            listed=self._following == "listed",
        )
        self._hears = self.reads_files = self._files.any
        self.unseen = self._far is not None or self._files.any

    def look(self) -> str:
        """Return what has changed, in words, an empty string for nothing."""
        try:
            owner = self._watch.look()
        except OSError:  # memory that was watched is gone
            return "memory that samples are made from"
        if owner is None:
            return self._files.told() if self._hears else ""
        return self._named(owner)

    def hears(self) -> str:
        """Return a file that has changed, an empty string for none."""
        return self._files.told() if self._hears else ""

    def look_deep(self) -> str:
        """Do as `look`, and look at what it does not see."""
        found = self.look()
        if found:
            return found
        owner = None if self._far is None else self._far.look_at_all()
        if owner is not None:
            return self._named(owner)
        return self._files.changed()

    def _named(self, owner: int) -> str:
        """Return what has changed; nothing, where only names that no code reads came, went or changed."""
        if self._is_none(
            owner
        ):  # what else has changed at the same time? Pages were asked about first, and are as before
            others = [*self._watch.changed(), *(self._far.changed() if self._far is not None else [])]
            owner = next((other for other in others if not self._is_none(other)), 0)
            if not owner:
                self._begin()
                return ""
        known = self.graph.filtered.get(owner)
        things = [(name, ref()) for name, ref in self._roots]
        if known is not None:
            return f"{known.what}.{known.differing()}"
        return path_to(owner, [(name, thing) for name, thing in things if thing is not None])

    def _is_none(self, owner: int) -> bool:
        """Return whether an object is one of which nothing has changed that code names."""
        known = self.graph.filtered.get(owner)
        return known is not None and known.as_before()

    def _protect(self, large: list[_Pair]) -> list[_Pair]:
        """Watch the pages of ranges; return those that are memory of another kind."""
        assert self._pages is not None
        left = []
        for start, end, pairs in _merged(large):
            try:
                self._pages.protect(start, end - start)
                self._protected.append((start, end - start))
            except OSError:
                left += self._protect_each(pairs)
        return left

    def _protect_each(self, pairs: list[_Pair]) -> list[_Pair]:
        assert self._pages is not None
        left = []
        for start, end, some in _merged(pairs, gap=0):
            try:
                self._pages.protect(start, end - start)
                self._protected.append((start, end - start))
            except OSError:
                left += some
        return left

    def left_behind(self, covered: set[int]) -> str:
        """Return what has changed, in words, besides the objects at the addresses `covered`."""
        changed = [*self._watch.changed(), *(self._far.changed() if self._far is not None else [])]
        for owner in changed:
            known = self.graph.filtered.get(owner)
            if owner not in covered and (known is None or not known.as_before()):
                return self._named(owner)
        return ""


def _weakly(thing: Any) -> Any:
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _parted(pairs: bytes, owners: bytes, always: Container[int]) -> tuple[list[_Pair], list[_Pair]]:
    """Return the ranges that are compared byte by byte, those of `always` among them, and those told by their pages."""
    core: list[_Pair] = []
    large: list[_Pair] = []
    left = _CORE_BYTES
    for (start, length), (owner,) in zip(struct.iter_unpack("QQ", pairs), struct.iter_unpack("Q", owners), strict=True):
        few = length <= _CORE_LENGTH and len(core) < _CORE_RANGES and length <= left
        if few or owner in always:
            core.append((start, length, owner))
            left -= length
        else:
            large.append((start, length, owner))
    return core, large


def _packed(pairs: list[_Pair]) -> tuple[bytes, bytes]:
    both = b"".join(struct.pack("QQ", start, length) for start, length, _ in pairs)
    return both, b"".join(struct.pack("Q", owner) for _, _, owner in pairs)


def _merged(pairs: list[_Pair], gap: int = _GAP) -> list[tuple[int, int, list[_Pair]]]:
    """Return whole pages that cover `pairs`, with those in each."""
    found: list[tuple[int, int, list[_Pair]]] = []
    for pair in sorted(pairs):
        start, end = pair[0] // PAGE * PAGE, -(-(pair[0] + pair[1]) // PAGE) * PAGE
        if found and start <= found[-1][1] + gap * PAGE:
            found[-1][2].append(pair)
            found[-1] = (found[-1][0], max(end, found[-1][1]), found[-1][2])
        else:
            found.append((start, end, [pair]))
    return found
