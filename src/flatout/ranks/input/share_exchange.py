"""One batch whose samples are made by all ranks, each its share, and sent to the others.

Samples may draw random numbers. Where each draws as many, a rank knows from where in the random streams its share
begins. Whether it began where the rank before it has ended is seen once all are made: no bit depends on the prediction.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from time import perf_counter
from typing import Any, NamedTuple

import torch

from flatout.ranks.group import RankGroup
from flatout.ranks.input.content_digest import digest_of_bytes
from flatout.ranks.input.quiet_making import QuietMaking
from flatout.ranks.input.sample_content import by_columns, packed, unpacked
from flatout.ranks.input.sample_maker import SampleMaker
from flatout.ranks.rows import shares
from flatout.torch_loader.predicted.random_streams import StreamSet, StreamState, WordCounts
from flatout.watch.freshness import Freshness
from flatout.watch.state_guard import StateGuard

__all__ = ["Against", "Asked", "ShareExchange", "SharedBatch", "change_in"]

_ALIGNED = 64

States = tuple[StreamState, ...]


class Against(IntFlag):
    """What speaks against a share, as one rank sees it."""

    NOTHING = 0
    CHANGED_BEFORE = 1  # the data set, since the last batch
    FAILED = 2
    PRINTED = 4
    CHANGED = 8  # while the samples were read
    LEFT = 16  # not all of that could be put back
    APART = 32  # it did not begin where the one before has ended
    ELSEWHERE = 64  # ranks began the batch in different states of the streams


class Asked(NamedTuple):
    """What a rank makes samples of, and how it sees what that does."""

    maker: SampleMaker
    indices: Sequence[Any]
    streams: StreamSet
    words: WordCounts  # of a sample
    fresh: Freshness
    before_s: float = 0.0  # what the last batch that was shared took in this rank


@dataclass(slots=True)
class SharedBatch:
    """What came of it, the same on all ranks but for `why`.

    Attributes:
        samples: of all ranks, None where there are none.
        end: where they leave the streams.
        against: what one rank or another has against it.
        each: that of each rank.
        why: in words, of this rank.
        own: how many this rank has made.
        before_s: the longest that a rank took for the last batch.
    """

    samples: list[Any] | None = None
    end: States = ()
    against: Against = Against.NOTHING
    each: tuple[Against, ...] = ()
    why: str = ""
    own: int = 0
    before_s: float = 0.0
    took_s: float = 0.0


class _Own(NamedTuple):
    samples: list[Any]
    start: States
    end: States
    content: list[memoryview]
    against: Against
    why: str


class ShareExchange:
    """Makes and sends the shares; all ranks call it for the same batches."""

    def __init__(self, group: RankGroup, quiet: QuietMaking) -> None:
        """Take how ranks exchange, and what holds back what samples print."""
        self._group, self._quiet = group, quiet

    def made(self, asked: Asked, now: States) -> SharedBatch:
        """Have a batch made by all, from streams that stand at `now`; they stand there at the end, too."""
        begin = perf_counter()
        parts = shares(len(asked.indices), self._group.size)
        own = self._own(asked, now, sum(parts[: self._group.rank]), parts[self._group.rank])
        asked.streams.write(now)
        heads, states = self._heads(own, now, asked.before_s)
        each = tuple(Against(int(one)) for one in heads[:, 0])
        found = SharedBatch(each=each, why=own.why, own=len(own.samples), before_s=float(heads[:, 2].max()) / 1e6)
        for one in each:
            found.against |= one
        if bool((heads[:, 3] != heads[0, 3]).any()):
            found.against |= Against.ELSEWHERE
        if not found.against and not states:
            found.against = Against.APART
        if not found.against:
            self._take(asked, own, heads[:, 1].tolist(), now, found)
        found.took_s = perf_counter() - begin
        return found

    def _own(self, asked: Asked, now: States, first: int, number: int) -> _Own:
        """Make this rank's share."""
        before = change_in(asked.fresh)
        if before:
            return _Own([], now, now, [], Against.CHANGED_BEFORE, before)
        against, why, samples, content = Against.NOTHING, "", list[Any](), list[memoryview]()
        start = end = asked.streams.advanced(now, tuple(first * count for count in asked.words))
        guard = StateGuard(asked.maker.dataset)
        guard.__enter__()
        asked.streams.write(start, now)
        with self._quiet.quietly():
            try:
                made = asked.maker.samples(asked.indices[first : first + number])
                end = asked.streams.read()
                if type(made) is not list or len(made) != number:
                    raise TypeError(f"{type(made).__name__} in place of a list of {number} samples")
                ends = (start, end) if first + number == len(asked.indices) else None
                samples, content = made, packed((by_columns(made) if asked.maker.copies else made, ends))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # made whole it is raised where the script sees it
                against, why = Against.FAILED, f"{type(error).__name__}: {error}"[:200]
        if self._quiet.tried:
            against, why = Against.FAILED, self._quiet.tried
        if self._quiet.printed:
            against |= Against.PRINTED
        changed = change_in(asked.fresh)
        if changed:
            against, why = against | Against.CHANGED, changed
            guard.put_back()
            against |= Against.LEFT if asked.fresh.left_behind(guard.covered) else Against.NOTHING
        return _Own(samples, start, end, content, against, why)

    def _heads(self, own: _Own, now: States, before_s: float) -> tuple[torch.Tensor, bool]:
        """Return what each rank tells of its share, and whether each has begun where the last one has ended."""
        length = sum(piece.nbytes for piece in own.content)
        at = [_digest(states) for states in (now, own.start, own.end)]
        told = torch.tensor([int(own.against), length, int(before_s * 1e6), *at], device="cpu")
        heads = self._group.everywhere(told)
        chained = bool((heads[1:, 4] == heads[:-1, 5]).all()) and bool(heads[0, 4] == heads[0, 3])
        return heads, chained

    def _take(self, asked: Asked, own: _Own, lengths: list[int], now: States, found: SharedBatch) -> None:
        """Exchange the samples themselves."""
        room = -max(lengths) % _ALIGNED + max(lengths)
        sent = torch.empty(room, dtype=torch.uint8, device="cpu")
        memory, at = _bytes_of(sent), 0
        for piece in own.content:
            memory[at : at + piece.nbytes] = piece
            at += piece.nbytes
        rows = self._group.everywhere(sent)
        samples, states = list[Any](), None
        for rank, length in enumerate(lengths):
            if rank == self._group.rank:
                samples += own.samples
                states = states or ((own.start, own.end) if rank == self._group.size - 1 else None)
                continue
            theirs, last = unpacked(_bytes_of(rows[rank, :length]), alone=not asked.maker.copies)
            samples += theirs
            states = states or last
        assert states is not None
        found.samples, found.end = samples, asked.streams.settled(now, *states)


def change_in(fresh: Freshness) -> str:
    """Return what of a data set has changed since it was followed, "" for nothing."""
    return fresh.changed if fresh.changed_by_reading() else ""


def _digest(states: States) -> int:
    marks = [each.mark for each in states]
    return digest_of_bytes(*(mark if isinstance(mark, bytes) else pickle.dumps(mark) for mark in marks))


def _bytes_of(tensor: Any) -> memoryview:
    return memoryview(tensor.numpy())
