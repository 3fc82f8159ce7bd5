"""Whether something of a batch is the data set's own, or stands in it twice: then a copy would not do in its place."""

import bisect
import struct
import sys
from collections.abc import Iterator
from typing import Any

from flatout.watch.memory.object_graph import ObjectGraph

__all__ = ["Owned", "owned", "stands_twice"]

_DEPTH = 6


def owned(batch: Any, graph: ObjectGraph) -> str:
    """Return what of `batch` belongs to the data set that `graph` was made of, an empty string for nothing."""
    return Owned(graph).of(batch)


class Owned:
    """What belongs to a data set: its objects, and its memory."""

    def __init__(self, graph: ObjectGraph) -> None:
        """Take what was found of it."""
        pairs = sorted(struct.iter_unpack("QQ", graph.ranges.pairs))
        self._objects = {owner for (owner,) in struct.iter_unpack("Q", graph.ranges.owners)}
        self._starts = [start for start, _ in pairs]
        self._ends: list[int] = []
        for start, length in pairs:
            self._ends.append(max(start + length, self._ends[-1] if self._ends else 0))

    def of(self, batch: Any) -> str:
        """Return what of `batch` is the data set's own, an empty string for nothing."""
        for part in _parts(batch, 0):
            if id(part) in self._objects:
                return f"a {type(part).__name__} that is the data set's own"
            where = _where(part)
            if where and self._holds(where):
                return f"a {type(part).__name__} that is a view of the data set's memory"
        return ""

    def _holds(self, address: int) -> bool:
        place = bisect.bisect_right(self._starts, address)
        return place > 0 and self._ends[place - 1] > address


def stands_twice(batch: Any) -> bool:
    """Tell whether a tensor or an array stands in `batch` twice, or two of them share memory."""
    places = [where for where in map(_memory, _parts(batch, 0)) if where]
    return len(set(places)) < len(places)


def _parts(value: Any, depth: int) -> Iterator[Any]:
    if depth > _DEPTH or isinstance(value, str | bytes | int | float | type(None)):
        return
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for item in inner:
        yield from _parts(item, depth + 1)


def _where(part: Any) -> int:
    """Return where an array or a tensor has its numbers, 0 for others and for empty ones."""
    numpy, torch = sys.modules.get("numpy"), sys.modules["torch"]
    if isinstance(part, torch.Tensor):
        plain = part.layout is torch.strided and part.device.type == "cpu" and not part.is_quantized
        return int(part.data_ptr()) if plain and part.numel() else 0
    if numpy is not None and isinstance(part, numpy.ndarray) and part.size:
        return int(part.__array_interface__["data"][0])
    return 0


def _memory(part: Any) -> int:
    """Return what tells the memory of a tensor or an array from that of others."""
    torch = sys.modules["torch"]
    if isinstance(part, torch.Tensor):
        return int(part.untyped_storage()._cdata) if _where(part) else 0
    base = part
    while _where(base) and getattr(base, "base", None) is not None and _where(base.base):
        base = base.base
    return _where(base)
