"""Batches of a pass that the script's process and another one have both read, held against one another."""

from typing import Any, NamedTuple

from flatout.torch_loader.predicted.random_streams import StreamState, at_one_place
from flatout.torch_loader.streamed.batch_digest import digest_of
from flatout.torch_loader.streamed.loose_streams import undrawn
from flatout.torch_loader.streamed.stream_memory import KeptReader
from flatout.torch_loader.streamed.stream_place import NotedPlace
from flatout.torch_loader.streamed.stream_reader import StreamReader
from flatout.torch_loader.streamed.stream_worker import Delivered, ReadJob
from flatout.torch_loader.streamed.streamed_loader import StreamedLoader
from flatout.watch.dataset_state import same

__all__ = ["ReadTogether"]

_ELSEWHERE = 1009  # words: a stream that nothing is drawn from may stand so far off


class _ReadHere(NamedTuple):
    digest: int
    end: tuple[StreamState, ...]  # where the other process is to leave the streams
    loose: list[bool]  # the streams that stand elsewhere there, and are not drawn from
    place: NotedPlace  # where the stream is to be there


class ReadTogether:
    """The batches at the beginning of a pass."""

    def __init__(self, kept: StreamedLoader, reader: StreamReader | KeptReader) -> None:
        """Begin a pass, whose iterator is there and has read nothing yet."""
        self._kept, self._reader = kept, reader
        self._begun = kept.streams.read()
        if isinstance(reader, KeptReader):
            reader.begun = self._begun
        self._here: dict[int, _ReadHere] = {}  # not compared yet

    def __len__(self) -> int:
        return len(self._here)

    def add(self, number: int, batch: Any, now: tuple[StreamState, ...], end: tuple[StreamState, ...]) -> None:
        """Have a batch read by the other process that was read here, and led the streams from `now` to `end`."""
        drew, place = len(now) != len(end) or not at_one_place(now, end), self._kept.origin.place.seen
        start, loose = now, [False] * len(end)
        if number:  # what draws from no stream is to be the same wherever that stands
            still = undrawn(now, end)
            start = self._kept.streams.advanced(now, tuple([_ELSEWHERE * each for each in still]))
            loose = [not each for each in undrawn(start, now)]
            end = tuple([one if each else other for each, one, other in zip(still, start, end, strict=True)])
        self._here[number] = _ReadHere(digest_of(batch), end, loose, place)
        self._kept.origin.memory.add(batch, self._here[number].digest, place, drew=drew)
        self._reader.give(ReadJob(number, start, sent=False))

    def against(self, *, wait: bool) -> str:
        """Compare what is there, or all; return what speaks against the other process, an empty string for nothing."""
        for number in list(self._here):
            if not (wait or self._reader.arrived(number)):
                return ""
            ours, theirs = self._here.pop(number), self._reader.delivered(number)
            self._reader.taken(number)
            self._kept.origin.memory.heard(theirs.files)
            if theirs.against or theirs.failed:
                return theirs.against or "cannot be read, or sent, by another process"
            if not self._agree(number, ours, theirs):
                return "gives other batches in another process"
            if number and not self._kept.proven:
                self._kept.loose.note(ours.loose)
        return ""

    def _agree(self, number: int, ours: _ReadHere, theirs: Delivered) -> bool:
        if theirs.ended or theirs.digest != ours.digest or len(theirs.end) != len(ours.end):
            return False
        if not same(theirs.place, ours.place):
            return False
        begins = number > 0 or at_one_place(self._reader.opened(), self._begun)
        return begins and at_one_place(theirs.end, ours.end)
