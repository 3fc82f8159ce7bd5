"""Whether what samples are made from is as it was, asked before every batch in a few microseconds.

What an object graph found is compared byte by byte while it is little; arrays, long lists and many small objects are
told by the pages of memory that the kernel saw written. What neither can tell, files and memory that other processes
write, too, is looked at when a pass begins.
"""

import struct
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

from flatout.watch.files.file_questions import Asked
from flatout.watch.files.read_files import ReadFiles
from flatout.watch.forked_copy import in_a_copy
from flatout.watch.memory.layouts import compiled
from flatout.watch.memory.object_graph import ObjectGraph
from flatout.watch.memory.object_path import path_to
from flatout.watch.memory.written_pages import PAGE, WrittenPages, written_pages

__all__ = ["Following", "StateWatch"]

Following = Literal["listed", "heard", "passed"]
"""How the folders are followed of names that things hold: by what stands in them, by the kernel alone, not at all."""

_CORE_RANGES, _CORE_BYTES, _CORE_LENGTH = 1500, 64 * 1024, 1024
"""What is compared byte by byte at most: 1,500 ranges take some 10 us out of cold caches."""

_GAP = 16  # pages between two ranges that are watched with them
_EACH_LOOK_BYTES = 64 * 1024  # of what is not told by pages, what is read at every look; the rest when a pass begins


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
        asked: Asked = frozenset(),
        live: frozenset[int] = frozenset(),
        files: Following = "listed",
    ) -> None:
        """Take the things, each with what it is called; they are not kept alive.

        `left_out()`: what may be as it likes. `asked`: what samples ask of files. `live`:
        addresses of numbers that may change, since they are read anew for each batch. `files`: how the
        folders of names that the things hold are followed.
        """
        self._asked, self._live, self._following = asked, live, files
        self._roots = [(name, _weakly(thing)) for name, thing in roots]
        self._left_out = left_out
        self._begin()

    def _begin(self) -> None:
        things = [ref() for _, ref in self._roots]
        there = [thing for thing in things if thing is not None]
        self.graph = ObjectGraph(*there, left_out=self._left_out(), live=self._live)
        self._far: Any = None
        if in_a_copy():  # which looks once, by reading everything
            self._core, self._watch = (b"", b""), compiled.Watch(b"", b"", b"", b"", b"", -1)
            self._far = compiled.Watch(b"", b"", self.graph.ranges.pairs, self.graph.ranges.owners, b"", -1)
            self._files = ReadFiles(frozenset(), [], ())
        else:
            self._protect()
            names = [] if self._following == "passed" else self.graph.named
            self._files = ReadFiles(self._asked, names, self.graph.files, listed=self._following == "listed")
        self.reads_files = self._files.any
        self.unseen = self._far is not None or self._files.any

    def _protect(self) -> None:
        """Have little of it compared, and the pages of the rest watched where the kernel does that."""
        core, owners, large, large_owners = compiled.part(
            self.graph.ranges.pairs,
            self.graph.ranges.owners,
            self.graph.filtered,
            _CORE_RANGES,
            _CORE_BYTES,
            _CORE_LENGTH,
        )
        pages = written_pages()
        protected, refused = (b"", compiled.cover(large, 0)) if pages is None else _protected(pages, large)
        unpaged, their_owners, paged, paged_owners = compiled.within(large, large_owners, refused)
        if sum(length for _, length in _ranges(unpaged)) <= _EACH_LOOK_BYTES:
            core, owners = core + unpaged, owners + their_owners
        else:
            self._far = compiled.Watch(b"", b"", unpaged, their_owners, b"", -1)
        self._core = core, owners
        self._watch = compiled.Watch(
            core, owners, paged, paged_owners, protected, -1 if pages is None else pages.pagemap
        )

    def look(self) -> str:
        """Return what has changed, in words, an empty string for nothing."""
        try:
            owner = self._watch.look()
        except OSError:  # memory that was watched is gone
            return "memory that samples are made from"
        return ("" if owner is None else self._named(owner)) or self.hears()

    def hears(self) -> str:
        """Return a file that has changed, an empty string for none."""
        return self._files.told() if self.reads_files else ""

    def look_deep(self) -> str:
        """Do as `look`, and look at what it does not see."""
        found = self.look()
        if found:
            return found
        owner = None if self._far is None else self._far.look_at_all()
        return ("" if owner is None else self._named(owner)) or self._files.changed()

    def _named(self, owner: int) -> str:
        """Return what has changed; nothing, where only names that no code reads came, went or changed."""
        if self._is_none(owner):  # what else has changed by now? Pages were asked about first, and are as before
            others = [*self._watch.changed(), *(self._far.changed() if self._far is not None else [])]
            owner = next((other for other in others if not self._is_none(other)), 0)
            if not owner:
                return self._take_names()
        known = self.graph.filtered.get(owner)
        things = [(name, ref()) for name, ref in self._roots]
        if known is not None:
            return f"{known.what}.{known.differing()}"
        return path_to(owner, [(name, thing) for name, thing in things if thing is not None])

    def _take_names(self) -> str:
        """Take the names that code reads where they stand now; the memory of a dictionary moves as it grows.

        Return a file that has changed, where everything is followed anew: what was heard of files is lost then.
        """
        again = self.graph.names_again()
        if again is None or in_a_copy():
            changed = self.hears()
            self._begin()
            return changed
        found: dict[int, list[bytes]] = {}
        for pair, (owner,) in zip(_ranges(again[0]), struct.iter_unpack("Q", again[1]), strict=True):
            found.setdefault(owner, []).append(struct.pack("QQ", *pair))
        pairs, owners = list[bytes](), list[int]()
        for pair, (owner,) in zip(_ranges(self._core[0]), struct.iter_unpack("Q", self._core[1]), strict=True):
            there = found.pop(owner, []) if owner in self.graph.filtered else [struct.pack("QQ", *pair)]
            pairs += there
            owners += [owner] * len(there)
        self._core = b"".join(pairs), struct.pack(f"{len(owners)}Q", *owners)
        self._watch.core(*self._core)
        return ""

    def _is_none(self, owner: int) -> bool:
        """Return whether an object is one of which nothing has changed that code names."""
        known = self.graph.filtered.get(owner)
        return known is not None and known.as_before()

    def left_behind(self, covered: set[int]) -> str:
        """Return what has changed, in words, besides the objects at the addresses `covered`.

        That the user's modules were imported is no change: the script's own first batch does so.
        """
        covered = covered | {id(sys.modules)}
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


def _protected(pages: WrittenPages, large: bytes) -> tuple[bytes, bytes]:
    """Watch the pages of ranges; return those watched, and those that are memory of another kind."""
    watched: list[tuple[int, ...]] = []
    refused: list[tuple[int, ...]] = []
    for span in _ranges(compiled.cover(large, _GAP * PAGE)):
        if _protect(pages, span):
            watched.append(span)
            continue
        inside = compiled.within(large, bytes(len(large) // 2), struct.pack("QQ", *span))[0]
        for each in _ranges(compiled.cover(inside, 0)):
            (watched if _protect(pages, each) else refused).append(each)
    return _bytes(watched), _bytes(refused)


def _protect(pages: WrittenPages, span: tuple[int, ...]) -> bool:
    try:
        pages.protect(*span)
    except OSError:
        return False
    return True


def _bytes(ranges: list[tuple[int, ...]]) -> bytes:
    return b"".join(struct.pack("QQ", *each) for each in ranges)


def _ranges(pairs: bytes) -> Iterator[tuple[int, ...]]:
    return struct.iter_unpack("QQ", pairs)
