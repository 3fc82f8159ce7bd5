"""A process that reads a stream in place of the script's: the same iterator, begun where the script began its own.

It is forked before the script's own iterator is made, so that files and connections that the stream opens are its own.
"""

import contextlib
import copy
import ctypes
import gc
import mmap
import os
import pickle
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from flatout.torch_loader.predicted.batch_transport import BatchArena, Parcel
from flatout.torch_loader.predicted.random_streams import StreamSet, StreamState, WordCounts
from flatout.torch_loader.streamed.batch_digest import digest_of
from flatout.torch_loader.streamed.diverted_output import DivertedOutput
from flatout.torch_loader.streamed.stream_place import NotedPlace, StreamPlace
from flatout.watch.files.opened_files import FileMark, OpenedFiles
from flatout.watch.own_generators import generators_in
from flatout.watch.shared_locks import take_own_locks
from flatout.watch.state_watch import StateWatch

__all__ = ["Delivered", "Opened", "ReadJob", "Started", "read_stream", "roots_of", "streams_of"]

_PR_SET_PDEATHSIG = 1


class ReadJob(NamedTuple):
    """The next batch is to be read.

    Attributes:
        number: of the batch.
        start: the streams' states that it begins from; None: `words` after the end of the batch before.
        words: how many words of each stream lie between.
        sent: the batch is sent; else the script's process makes it, too.
    """

    number: int
    start: tuple[StreamState, ...] | None
    words: WordCounts = ()
    sent: bool = True


class Opened(NamedTuple):
    """The iterator is there; the random streams stand at `end`."""

    end: tuple[StreamState, ...]


class Started(NamedTuple):
    """The states that a batch is read from; told before it is read."""

    number: int
    start: tuple[StreamState, ...]


class Delivered(NamedTuple):
    """A batch, and where it left the streams.

    Attributes:
        number: of the batch.
        end: where the streams stand.
        digest: of the batch, 0 where there is none.
        parcel: the batch; None where it was not asked for, could not be read or sent.
        slot: where its tensors lie.
        ended: the stream has no more.
        failed: reading it raised.
        against: what speaks against it, an empty string for nothing.
        files: that were opened for it, as they were then.
        words: of the step before it, as they were told.
        place: where the stream is after it, as it notes that in itself.
    """

    number: int
    end: tuple[StreamState, ...]
    digest: int = 0
    parcel: Parcel | None = None
    slot: int = 0
    ended: bool = False
    failed: bool = False
    against: str = ""
    files: tuple[tuple[str, FileMark], ...] = ()
    words: WordCounts = ()
    place: NotedPlace | None = None


def streams_of(loader: Any, met: list[Any]) -> StreamSet:
    """Return the random streams that a stream may draw from; `met`: generators that an object graph has met."""
    return StreamSet([*met, *generators_in(loader.dataset), *generators_in(loader.collate_fn)])


def roots_of(loader: Any) -> list[tuple[str, Any]]:
    """Return what a stream is made from, each with what it is called."""
    init = [] if loader.worker_init_fn is None else [("worker_init_fn", loader.worker_init_fn)]
    return [(type(loader.dataset).__name__, loader.dataset), ("collate_fn", loader.collate_fn), *init]


def read_stream(
    pipe: Connection,
    theirs: Connection,
    arena: BatchArena,
    loader: Any,
    streams: StreamSet,
    start: tuple[StreamState, ...],
    ending: mmap.mmap,
) -> None:
    """Read batches as `pipe` asks for them, in a forked process, until its other end, `theirs`, is closed.

    `start`: where the streams stood before the process was forked; Python seeds its own anew then. It ends between two
    batches, as soon as `ending` is set: the stream's code may have a lock that the script's process waits for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the script gets, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    theirs.close()
    output = DivertedOutput({pipe.fileno()})
    sys.modules["torch"].set_num_threads(1)
    streams.write(start)
    take_own_locks()
    gc.freeze()  # a look through all objects would copy every page that they lie in
    with contextlib.suppress(BaseException):  # what a stream raises as it begins is raised in the script's process
        _StreamWorker(pipe, arena, loader, streams, output).run(lambda: ending[0] != 0)
    os._exit(0)  # no `finally`, no handler of the script's runs here


class _StreamWorker:
    def __init__(
        self, pipe: Connection, arena: BatchArena, loader: Any, streams: StreamSet, output: DivertedOutput
    ) -> None:
        self._pipe, self._arena, self._loader, self._streams = pipe, arena, loader, streams
        self._output, self._ear = output, OpenedFiles()
        self._watch: StateWatch | None = None
        self._place: StreamPlace | None = None
        self._end: tuple[StreamState, ...] = ()
        self._sent = 0

    def run(self, is_to_end: Callable[[], bool]) -> None:
        """Begin, and read one batch after the other."""
        read = _begun(self._loader)
        self._send(Opened(self._streams.read()))
        while (job := pickle.loads(self._pipe.recv_bytes())) is not None and not is_to_end():
            self._do(job, read)

    def _do(self, job: ReadJob, read: Callable[[], Any]) -> None:
        start = self._streams.advanced(self._end, job.words) if job.start is None else job.start
        self._streams.write(start)
        self._send(Started(job.number, start))
        batch, ended, failed = None, False, False
        try:
            batch = read()
        except StopIteration:
            ended = True
        except BaseException:  # read in the script's process it raises what the script knows
            failed = True
        if self._watch is None:  # what the stream sets up for itself, it has set up by now
            self._place = place = StreamPlace(self._loader.dataset)
            roots = [*roots_of(self._loader), *place.others]
            self._watch = StateWatch(roots, lambda: place.left_out, files="passed")
            self._streams = streams_of(self._loader, self._watch.graph.met.generators)
        self._end = self._streams.read()
        self._deliver(job, batch, Delivered(job.number, self._end, ended=ended, failed=failed, words=job.words))

    def _deliver(self, job: ReadJob, batch: Any, found: Delivered) -> None:
        against, files = self._against(job), tuple(self._ear.taken().items())
        found = found._replace(against=against, files=files)
        if self._place is not None and not (found.failed or against):
            self._place.take()
            found = found._replace(place=self._place.seen)
        if not (found.ended or found.failed or against):
            try:
                found = self._with(job, batch, found)
            except Exception:  # what cannot be sent is read in the script's process
                found = found._replace(failed=True)
        self._send(found)

    def _with(self, job: ReadJob, batch: Any, found: Delivered) -> Delivered:
        digest, slot = digest_of(batch), self._sent
        parcel = self._arena.put(slot, batch)
        if job.sent:
            self._sent += 1
        elif digest_of(self._arena.take(slot, parcel)) != digest:
            return found._replace(failed=True)
        return found._replace(digest=digest, slot=slot, parcel=parcel if job.sent else None)

    def _against(self, job: ReadJob) -> str:
        changed = "" if self._place is None else self._place.differs()
        changed = changed or ("" if self._watch is None else self._watch.look())
        if changed:
            return f"changes while it is read: {changed}"
        if self._ear.written:
            return f"writes to {self._ear.written} while it is read"
        if job.sent and self._output.written:
            return "prints, or writes to an open file or connection, while it is read"
        self._output.forget()
        return ""

    def _send(self, message: Opened | Started | Delivered) -> None:
        self._pipe.send_bytes(pickle.dumps(message, 5))


def _begun(loader: Any) -> Callable[[], Any]:
    """Return what reads the next batch of a new pass as torch's iterator without workers does, not pinned."""
    from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

    alone = copy.copy(loader)
    vars(alone).update(pin_memory=False, _iterator=None)
    iterator = _SingleProcessDataLoaderIter(alone)
    fetch, indices = iterator._dataset_fetcher.fetch, iterator._sampler_iter
    return lambda: fetch(next(indices))
