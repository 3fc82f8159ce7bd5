"""Batches that other processes make before they are asked for: who makes which, and what has come back."""

import multiprocessing
import os
import pickle
import time
import warnings
import weakref
from multiprocessing.connection import Connection
from typing import Any

from flatout.torch_loader.predicted.batch_transport import BatchArena
from flatout.torch_loader.predicted.random_streams import StreamState, WordCounts
from flatout.torch_loader.predicted.sample_worker import Began, Job, Made, MadeFrom, work

__all__ = ["EarlyBatches", "WorkerHangsError"]

_END_S = 5.0  # a killed process is gone by then


class WorkerHangsError(Exception):
    """A worker lives and does not answer."""


class EarlyBatches:
    """The processes, started where they are first needed, and the jobs that they were given.

    What goes wrong with a process raises here: `EOFError` or `OSError` where it has ended, `WorkerHangsError`.

    Attributes:
        count: how many processes there may be.
        depth: how many batches one of them may have in work at a time.
    """

    def __init__(self, count: int, depth: int, made_from: MadeFrom, *, batch_bytes: int, hang_s: float) -> None:
        """Start none yet; they are copies of this process as it is when they start."""
        self.count, self.depth = count, depth
        self._from, self._batch_bytes, self._hang_s = made_from, batch_bytes, hang_s
        self._processes: dict[int, _WorkerProcess] = {}
        self._generation = 0
        self._given: dict[int, int] = {}  # number of a batch -> its worker
        self._began: dict[int, Began] = {}
        self._made: dict[int, Made] = {}
        self._finalizer = weakref.finalize(self, _end, self._processes, os.getpid())

    def forget(self) -> None:
        """Want none of the jobs that were given any more."""
        self._generation += 1
        for found in (self._given, self._began, self._made):
            found.clear()

    def give(
        self, worker: int, number: int, index: Any, base: tuple[StreamState, ...] | str, words: WordCounts
    ) -> bool:
        """Have a batch made; return whether the worker had room for it. `base` and `words` are as in `Job`."""
        if sum(each == worker for each in self._given.values()) >= self.depth:
            return False
        process = self._processes.get(worker)
        if process is None:
            process = self._processes[worker] = self._started()
        self._hear(process)  # a worker that waits for us to listen would not listen to us
        process.pipe.send_bytes(pickle.dumps(Job(self._generation, number, index, base, words), 5))
        self._given[number] = worker
        return True

    def __contains__(self, number: int) -> bool:
        """Return whether somebody was told to make a batch."""
        return number in self._given

    def began(self, number: int) -> tuple[StreamState, ...]:
        """Return the states that a batch is made from; wait for the worker to say so."""
        self._wait(number, self._began)
        return self._began[number].start

    def made(self, number: int) -> Made:
        """Return what came of a batch; wait for it."""
        self._wait(number, self._made)
        return self._made[number]

    def arrived(self, number: int) -> bool:
        """Return whether a batch is there."""
        if number in self._given and number not in self._made:
            self._hear(self._processes[self._given[number]])
        return number in self._made

    def unpacked(self, made: Made) -> Any:
        """Return the batch itself."""
        assert made.parcel is not None
        return self._processes[self._given[made.number]].arena.take(made.slot, made.parcel)

    def release(self, number: int) -> None:
        """Say that a batch is done with: its worker has room for another."""
        for found in (self._given, self._began, self._made):
            found.pop(number, None)

    def end(self) -> None:
        """End the processes."""
        self._finalizer()

    def _started(self) -> "_WorkerProcess":
        arena = BatchArena(self.depth + 1, self._batch_bytes)
        return _WorkerProcess(arena, self._from, [each.pipe for each in self._processes.values()])

    def _wait(self, number: int, found: dict[int, Any]) -> None:
        process, until = self._processes[self._given[number]], time.monotonic() + self._hang_s
        while number not in found:
            if not process.pipe.poll(max(0.0, until - time.monotonic())):
                raise WorkerHangsError
            self._hear(process)

    def _hear(self, process: "_WorkerProcess") -> None:
        """Take what a process has sent so far."""
        while process.pipe.poll():
            message: Began | Made = pickle.loads(process.pipe.recv_bytes())
            if message.generation == self._generation:
                found: dict[int, Any] = self._began if isinstance(message, Began) else self._made
                found[message.number] = message


class _WorkerProcess:
    def __init__(self, arena: BatchArena, made_from: MadeFrom, others: list[Connection]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.arena = arena
        self._process = context.Process(
            target=work,
            args=(theirs, [self.pipe, *others], arena, made_from),
            name="flatout sample worker",
            daemon=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which the copy has none
            self._process.start()
        theirs.close()

    def end(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.join(_END_S)


def _end(processes: dict[int, _WorkerProcess], owner: int) -> None:
    if os.getpid() == owner:  # and not a process that was forked from it
        for each in processes.values():
            each.end()
    processes.clear()
