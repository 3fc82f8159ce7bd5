"""A process that makes batches of random samples before the script asks for them, from states that it is told."""

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from flatout.torch_loader.predicted.batch_transport import BatchArena, Parcel
from flatout.torch_loader.predicted.random_streams import StreamSet, StreamState, WordCounts
from flatout.watch.files.opened_files import FileMark, OpenedFiles
from flatout.watch.memory.object_graph import available
from flatout.watch.state_watch import StateWatch

__all__ = ["AFTER_END", "AFTER_START", "Began", "Job", "Made", "MadeFrom", "work"]

AFTER_START, AFTER_END = "start", "end"
"""A job begins some words after the start of this worker's last one, or after its end."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class MadeFrom:
    """What a worker makes batches from: of the process that it was forked from.

    Attributes:
        fetch: returns the batch of an index, as the script's own iterator makes it.
        streams: that it may draw from.
        roots: what must not change meanwhile, each with what it is called.
    """

    fetch: Callable[[Any], Any]
    streams: StreamSet
    roots: Sequence[tuple[str, Any]]


class Job(NamedTuple):
    """A batch to be made.

    Attributes:
        generation: jobs of earlier ones are wanted no more.
        number: of the batch in its pass.
        index: what the sampler has drawn.
        base: states of all streams, `AFTER_START` or `AFTER_END`.
        words: how many words of each stream lie between the base and the batch.
    """

    generation: int
    number: int
    index: Any
    base: tuple[StreamState, ...] | str
    words: WordCounts


class Began(NamedTuple):
    """The streams' states that a batch is made from; told before it is made."""

    generation: int
    number: int
    start: tuple[StreamState, ...]


class Made(NamedTuple):
    """A batch, and where it left the streams.

    Attributes:
        parcel: the batch; None where it could not be made or sent.
        slot: where its tensors lie.
        against: what speaks against it, an empty string for nothing.
        files: that were opened for it, as they were then.
    """

    generation: int
    number: int
    end: tuple[StreamState, ...]
    parcel: Parcel | None
    slot: int
    against: str = ""
    files: tuple[tuple[str, FileMark], ...] = ()


def work(pipe: Connection, foreign: Sequence[Connection], arena: BatchArena, made_from: MadeFrom) -> None:
    """Do what `pipe` asks for, in a forked process, until its other end is closed; `foreign`: pipes of others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the script gets, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for each in foreign:
        each.close()
    sys.modules["torch"].set_num_threads(1)
    gc.freeze()  # a look through all objects would copy every page that they lie in
    with contextlib.suppress(EOFError, OSError):
        _SampleWorker(pipe, arena, made_from).run()
    os._exit(0)  # no `finally`, no handler of the script's runs here


class _SampleWorker:
    def __init__(self, pipe: Connection, arena: BatchArena, made_from: MadeFrom) -> None:
        self._pipe, self._arena, self._from = pipe, arena, made_from
        self._jobs: deque[Job] = deque()
        self._start: tuple[StreamState, ...] = ()
        self._end: tuple[StreamState, ...] = ()
        self._ear = OpenedFiles()
        self._watch = StateWatch([*made_from.roots], files="passed") if available() else None
        self._made = 0

    def run(self) -> None:
        """Do one job after the other."""
        while True:
            self._do(self._next())

    def _next(self) -> Job:
        """Return the next job that is still wanted."""
        while not self._jobs or self._pipe.poll():
            job: Job = pickle.loads(self._pipe.recv_bytes())
            if self._jobs and job.generation != self._jobs[-1].generation:
                self._jobs.clear()
            self._jobs.append(job)
        return self._jobs.popleft()

    def _do(self, job: Job) -> None:
        streams = self._from.streams
        base = {AFTER_START: self._start, AFTER_END: self._end}[job.base] if isinstance(job.base, str) else job.base
        self._start = streams.advanced(base, job.words)
        streams.write(self._start)
        self._send(Began(job.generation, job.number, self._start))
        parcel, slot = None, self._made
        try:
            batch = self._from.fetch(job.index)
            self._end = streams.read()
            parcel = self._arena.put(slot, batch)
            self._made += 1
        except BaseException:  # made in the script's process it raises what the script knows
            self._end = streams.read()
        against = self._against()
        files = tuple(self._ear.taken().items())
        self._send(Made(job.generation, job.number, self._end, parcel, slot, against, files))

    def _against(self) -> str:
        changed = "" if self._watch is None else self._watch.look()
        if changed:
            return f"changes while it is read: {changed}"
        return f"writes to {self._ear.written} while it is read" if self._ear.written else ""

    def _send(self, message: Began | Made) -> None:
        self._pipe.send_bytes(pickle.dumps(message, 5))
