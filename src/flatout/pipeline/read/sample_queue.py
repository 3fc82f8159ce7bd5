"""What the threads that ask for the samples of one pass and whoever waits for these have in common."""

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

import torch

from flatout.pipeline.read.one_core import OneCore

__all__ = ["Reader", "SampleQueue"]

Reader = Callable[[], Callable[[int], Any]]

_PATIENCE_S = 5.0  # with threads that wait for a sample at the interpreter's end


def _compute_on(number: int) -> None:
    """Let torch compute on so many threads in this one.

    torch gives a thread a number at its first look at it, whichever was set last anywhere: it has to look before.
    """
    torch.get_num_threads()
    torch.set_num_threads(number)


class SampleQueue:
    """Where samples are asked for, made by threads and waited for; the threads hold nothing else."""

    def __init__(self, reader: Reader, computing_on: int, core: OneCore | None) -> None:
        """Begin without threads: they call `reader` each for a function that reads one sample.

        `computing_on`: how many threads torch computes a sample on; `core`: where they all stay, if anywhere.
        """
        self.reader, self.computing_on, self.core = reader, computing_on, core
        self.todo: SimpleQueue[int | None] = SimpleQueue()
        self.done: dict[int, tuple[Any, BaseException | None]] = {}
        self.awaited: set[int] = set()  # what of a batch is not made yet
        self.there: SimpleQueue[None] = SimpleQueue()  # told by the thread that has made the last of it
        self.threads: list[threading.Thread] = []
        self.wanted = 0  # threads
        self.ended = False
        self._starting = threading.Lock()
        _desks.add(self)

    def grow(self) -> None:
        """Start two threads where more are wanted, which do the same at first.

        Who starts a thread waits until it runs: beside a busy core 2 ms each, and for 128 one after the other 290 ms.
        """
        for _ in range(2):
            with self._starting:
                number = len(self.threads)
                if number >= self.wanted or self.ended:
                    return
                thread = threading.Thread(target=self.serve, name=f"flatout-samples-{number}", daemon=True)
                self.threads.append(thread)
            try:
                thread.start()
            except RuntimeError:  # the system has no more: those that there are do the work
                with self._starting:
                    self.threads.remove(thread)
                    self.wanted = len(self.threads)
                    if not self.threads:
                        raise
                return

    def serve(self) -> None:
        """Make samples until there is nothing more to do.

        Threads that are kept on a core start others from there: moving each of them there as it began made the first
        batch of a pass with 250 wait 98 to 107 ms in place of 91 to 96 (n=6 each in turns, an AMD EPYC under KVM).
        """
        if self.core is None:
            self._make()
            return
        self.core.keep()
        try:
            self._make()
        finally:
            self.core.leave()

    def _make(self) -> None:
        self.grow()
        if self.ended:  # perhaps before this thread was there to be told
            return
        _compute_on(self.computing_on)
        core = self.core
        one: Callable[[int], Any] | None = None
        while (index := self.todo.get()) is not None:
            if self.ended:
                continue
            first = one is None
            try:
                one = self.reader() if one is None else one
                self.done[index] = one(index) if core is None else core.run(one, index, first=first), None
            except BaseException as error:  # whoever waits for the sample raises it
                self.done[index] = None, error
            awaited = self.awaited
            if index in awaited:
                awaited.discard(index)
                if not awaited:
                    self.there.put(None)

    def wait(self, indices: Iterable[int]) -> dict[int, Any]:
        """Return samples that were asked for, or raise what was raised for the first of them.

        Who waits is woken once, by the last of them: each time it would wait for the interpreter's lock again.
        """
        wanted = dict.fromkeys(indices)
        missing = {index for index in wanted if index not in self.done}
        self.awaited = missing  # from here on threads take out what they make
        for index in wanted:  # made between the two looks
            if index in self.done:
                missing.discard(index)
        while missing:  # a word may be left over from an earlier batch
            self.there.get()
        made = {}
        for index in wanted:
            made[index], error = self.done.pop(index)
            if error is not None:
                raise error
        return made

    def end(self) -> None:
        """Let the threads end, each with the sample that it is at."""
        if not self.ended:  # without the lock, which a process that was forked may have got from a thread it has not
            self.ended = True
            for _ in range(self.wanted):
                self.todo.put(None)
            if self.core is not None:
                self.core.end()


_desks: "weakref.WeakSet[SampleQueue]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End passes that were left open: no thread may run while the interpreter is taken down."""
    until = time.monotonic() + _PATIENCE_S
    desks = list(_desks)
    for desk in desks:
        desk.end()
    for thread in (each for desk in desks for each in desk.threads):
        thread.join(max(0.0, until - time.monotonic()))
