"""Many small batches gathered at once, each into memory of its own.

What a call costs is shared among them, and all cores of this rank have something to do: compiled code gathers without
the interpreter's lock. A batch's memory is its own, so a script may keep one of them, save it, resize it or write to
it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from flatout.pipeline.keeping import Keeping
from flatout.pipeline.parallel import cores_of_this_rank

__all__ = ["Bundles", "bundles_for"]

_MOST, _MOST_BYTES = 32, 8 * 1024**2  # of batches, and of what is gathered: it stays in the caches of most processors
_EACH_BYTES = 512 * 1024  # for a thread, at least: it copies as much in 0.1 ms, and takes some 20 us to begin


class Bundles:
    """The batches of one pass, gathered some at a time: one, two, four, and so on."""

    def __init__(self, keeping: Keeping, parts: Sequence[torch.Tensor], most: int) -> None:
        """Take what is kept, its rows where they lie, for each part of a batch, and how many batches to gather at most.

        Nothing is gathered before all rows are there.
        """
        self._keeping, self._parts, self._most = keeping, parts, most
        self._upcoming: list[torch.Tensor] = []
        self._places: dict[int, int] = {}  # of them, by their identity
        self._made: dict[int, list[torch.Tensor]] = {}  # parts, by place

    def follow(self, batches: Iterator[torch.Tensor], early: bool) -> Iterator[torch.Tensor]:
        """Yield the indices of `batches`, some of them drawn before they are asked for where `early` says so."""
        number = 1
        while early and (some := list(islice(batches, number))):
            self._upcoming, self._made = some, {}
            self._places = {id(one): place for place, one in enumerate(some)}
            yield from some
            number = min(2 * number, self._most)
        yield from batches

    def take(self, indices: torch.Tensor, keeping: Keeping) -> Any | None:
        """Return the batch of `indices`, which `follow` gave, if it is still `keeping` that holds the rows.

        None where it has to be made by itself.
        """
        place, layout = self._places.get(id(indices)), keeping.layout
        if place is None or layout is None or keeping is not self._keeping:
            return None
        if place not in self._made and keeping.full:
            self._made = self._gather(place)
        parts = self._made.pop(place, None)
        return None if parts is None else layout.build(parts)

    def _gather(self, first: int) -> dict[int, list[torch.Tensor]]:
        """Return the parts of all upcoming batches from `first` on; none where an index is not that of a row."""
        some = self._upcoming[first:]
        indices = torch.cat(some)
        made: list[list[torch.Tensor]] = [[] for _ in some]
        for rows in self._parts:
            outs = [torch.empty((len(one), *rows.shape[1:]), dtype=rows.dtype) for one in some]
            if not _gathered(rows, indices, outs):
                return {}
            for parts, out in zip(made, outs, strict=True):
                parts.append(out)
        return dict(enumerate(made, first))


def _gathered(rows: torch.Tensor, indices: torch.Tensor, outs: Sequence[torch.Tensor]) -> bool:
    """Write the rows at `indices` to `outs`, one after the other; return whether there are such rows.

    Args:
        rows: [N, ...], contiguous, in the memory of the CPU.
        indices: [B] of int64, contiguous.
        outs: contiguous, of the type of the rows and in all of as many.
    """
    from flatout.pipeline.kernels import _native

    row_bytes = rows[:1].nbytes
    places = torch.tensor([[out.data_ptr(), len(out)] for out in outs])
    threads = max(1, min(cores_of_this_rank(), len(indices) * row_bytes // _EACH_BYTES))
    return _native.gather(
        rows.data_ptr(), len(rows), row_bytes, indices.data_ptr(), places.data_ptr(), len(outs), threads
    )


def bundles_for(keeping: Keeping, batch_size: int | None) -> Bundles | None:
    """Return what gathers the batches of a pass over what `keeping` holds, or will hold.

    None where there is more to do than to gather, or compiled code is missing.
    """
    from flatout.pipeline.kernels import native

    store, maker = keeping.store, keeping.maker
    done = type(keeping) is Keeping and (maker is None or maker.is_done)
    parts = store.plain if store is not None and done and batch_size and native.available() else None
    if store is None or parts is None:
        return None
    each_bytes = (batch_size or 1) * sum(rows.num_bytes for rows in store.rows)
    most = min(_MOST, _MOST_BYTES // max(1, each_bytes))
    return Bundles(keeping, parts, most) if most > 1 else None
