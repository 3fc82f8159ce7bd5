"""The process that reads a stream ahead, as the script's process sees it."""

import contextlib
import mmap
import multiprocessing
import os
import pickle
import sys
import time
import warnings
import weakref
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from flatout.torch_loader.predicted.batch_transport import BatchArena
from flatout.torch_loader.predicted.early_batches import WorkerHangsError
from flatout.torch_loader.predicted.random_streams import StreamSet, StreamState
from flatout.torch_loader.streamed.stream_worker import Delivered, Opened, ReadJob, Started, read_stream

__all__ = ["StreamReader"]

_END_S = 5.0  # a killed process is gone by then
_BATCH_S = 1.0  # it may end the batch that it is at
_UNREAD = 4  # messages; one that is not listened to would let us wait


class StreamReader:
    """One process for one pass.

    What goes wrong with it raises here: `EOFError` or `OSError` where it has ended, `WorkerHangsError`.

    Attributes:
        depth: how many batches may be sent that were not taken.
        hang_s: after how long without a word it is given up.
        given: how many batches it was asked for.
    """

    def __init__(self, loader: Any, streams: StreamSet, depth: int, *, batch_bytes: int, hang_s: float) -> None:
        """Fork it; it begins a pass over `loader` at once."""
        self.depth, self.hang_s, self.given = depth, hang_s, 0
        self._arena = BatchArena(depth + 1, batch_bytes)
        context, ending = multiprocessing.get_context("fork"), mmap.mmap(-1, 1)
        self._pipe, theirs = context.Pipe()
        process = context.Process(
            target=read_stream,
            args=(theirs, self._pipe, self._arena, loader, streams, streams.read(), ending),
            name="flatout stream reader",
            daemon=True,
        )
        _flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which the copy has none
            process.start()
        theirs.close()
        self._jobs: deque[ReadJob] = deque()  # not sent yet
        self._unread = 0
        self._opened: Opened | None = None
        self._started: dict[int, Started] = {}
        self._delivered: dict[int, Delivered] = {}
        self._finalizer = weakref.finalize(self, _end, process, self._pipe, ending, os.getpid())

    def give(self, job: ReadJob) -> None:
        """Have the next batch read."""
        self.given = job.number + 1
        self._jobs.append(job)
        self._hear()

    def opened(self) -> tuple[StreamState, ...]:
        """Return where the random streams stood when the pass had begun; wait for that."""
        while self._opened is None:
            self._wait()
        return self._opened.end

    def started(self, number: int) -> tuple[StreamState, ...]:
        """Return the states that a batch is read from; wait until they are told."""
        while number not in self._started:
            self._wait()
        return self._started[number].start

    def delivered(self, number: int) -> Delivered:
        """Return what came of a batch; wait for it."""
        while number not in self._delivered:
            self._wait()
        return self._delivered[number]

    def arrived(self, number: int) -> bool:
        """Return whether it is known what came of a batch."""
        self._hear()
        return number in self._delivered

    def taken(self, number: int) -> None:
        """Forget a batch."""
        self._started.pop(number, None)
        self._delivered.pop(number, None)

    def unpacked(self, found: Delivered) -> Any:
        """Return the batch itself."""
        assert found.parcel is not None
        return self._arena.take(found.slot, found.parcel)

    def end(self) -> None:
        """End the process."""
        self._finalizer()

    def _hear(self) -> bool:
        """Take what was sent so far, and send what can be; return whether there was something."""
        heard = False
        while self._pipe.poll():
            self._take(pickle.loads(self._pipe.recv_bytes()))
            heard = True
        while self._jobs and self._unread < _UNREAD:
            self._pipe.send_bytes(pickle.dumps(self._jobs.popleft(), 5))
            self._unread += 1
        return heard

    def _wait(self) -> None:
        if self._hear():
            return
        if not self._pipe.poll(self.hang_s):
            raise WorkerHangsError
        self._hear()

    def _take(self, message: Opened | Started | Delivered) -> None:
        if isinstance(message, Opened):
            self._opened = message
        elif isinstance(message, Started):
            self._started[message.number] = message
            self._unread -= 1
        else:
            self._delivered[message.number] = message


def _flush() -> None:
    """Print what is to be printed: the copy would have it, too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            stream.flush()


def _end(process: Any, pipe: Connection, ending: mmap.mmap, owner: int) -> None:
    if os.getpid() != owner:  # a process that was forked from it
        return
    ending[0] = 1
    with contextlib.suppress(OSError):  # ended by now, or it does not listen
        pipe.send_bytes(pickle.dumps(None))
    pipe.close()
    if not _ends(process):
        process.kill()
        process.join(_END_S)


def _ends(process: Any) -> bool:
    """Return whether it ends by itself in time; `join` would wait longer, as the process has closed its pipes."""
    until, pause = time.monotonic() + _BATCH_S, 1e-4
    while process.exitcode is None and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
    return process.exitcode is not None
