"""Files written in the background, in order, one thread; whoever wants to see one of them waits until it is there.

A file is written into a folder of its own beside its place and put there whole. What goes wrong in the thread is
raised where the script comes by next: at the next file, at an access to one, or, at the latest, at the end of the
process, whose exit status then says so.
"""

import contextlib
import os
import shutil
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import get_ident

__all__ = ["Background", "Writing"]

_MOST_WAITING = 4  # files; each holds its content in memory


@dataclass(frozen=True)
class Writing:
    """One file to be written: its place, the folder it is made in, and what writes it to a path there."""

    target: str  # absolute, without symbolic links
    folder: str
    write: Callable[[str], None]
    mode: int | None = None  # permissions of the file that is replaced

    def run(self) -> None:
        """Write the file beside its place, then put it there."""
        made = os.path.join(self.folder, os.path.basename(self.target))
        try:
            self.write(made)
            if self.mode is not None:
                os.chmod(made, self.mode)
            os.replace(made, self.target)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def concerns(self, path: str) -> bool:
        """Return whether `path` is the file or a folder that it lies in."""
        return self.target == path or self.target.startswith(os.path.join(path, "")) or self.folder == path


class Background:
    """The files of this process that are still to be written."""

    def __init__(self) -> None:
        """Write nothing yet."""
        self.pending: deque[Writing] = deque()
        self.busy: set[int] = set()  # threads at work here: what they do with files concerns nobody
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._forked)

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that writes."""
        return os.getpid() != self._pid

    def put(self, writing: Writing) -> None:
        """Write a file after those before it; wait first while too many are held in memory."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.pending) < _MOST_WAITING)
            self.pending.append(writing)
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._work, name="flatout-checkpoint")
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down: no threads any more
            self._work()

    def wait(self, path: str | None = None) -> None:
        """Wait until `path`, or what lies in that folder, is written; without it, for everything.

        Raises:
            Exception: what went wrong while a file was written, this one or another.
        """
        with self.quietly():
            if self.forked:
                self._wait_for_parent(path)
                return
            with self._changed:
                self._changed.wait_for(lambda: not self.concerned(path))
        self.raise_error()

    def settle(self) -> None:
        """Wait for everything; what went wrong is raised later."""
        with self.quietly(), self._changed:
            self._changed.wait_for(lambda: self.forked or not self.pending)

    def raise_error(self) -> None:
        """Raise, once, what went wrong while a file was written."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def concerned(self, path: str | None) -> bool:
        """Return whether a file that is still to be written is `path` or lies below it."""
        if self.forked:
            with self.quietly():
                self.pending = deque(each for each in self.pending if os.path.lexists(each.folder))
        return any(path is None or writing.concerns(path) for writing in list(self.pending))

    def has_name(self, name: str) -> bool:
        """Return whether a file of this name is still to be written, wherever."""
        return any(os.path.basename(writing.target) == name for writing in list(self.pending))

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Let what this thread does with files pass, however deep it is in here."""
        me = get_ident()
        outermost = me not in self.busy
        self.busy.add(me)
        try:
            yield
        finally:
            if outermost:
                self.busy.discard(me)

    def failed_at_end(self) -> bool:
        """Wait for everything; say on standard error what went wrong, if the script has not been told."""
        if self.forked:
            return False
        try:
            self.wait()
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            sys.stderr.write(f"flatout: a checkpoint could not be written in the background:\n{trace}")
            sys.stderr.flush()
            return True
        return False

    def _work(self) -> None:
        with self.quietly():
            while True:
                with self._changed:
                    if not self.pending:
                        self._thread = None
                        return
                    writing = self.pending[0]
                try:
                    writing.run()
                except Exception as error:
                    self._error = self._error or error
                with self._changed:
                    self.pending.popleft()
                    del writing
                    self._changed.notify_all()

    def _wait_for_parent(self, path: str | None) -> None:
        """In a child: the parent's folders go away as their files are put in place."""
        parent = os.getppid()
        for writing in [each for each in self.pending if path is None or each.concerns(path)]:
            while os.path.lexists(writing.folder) and os.getppid() == parent:
                time.sleep(0.001)
            self.pending.remove(writing)

    def _forked(self) -> None:
        """In a child nothing is written; what the parent writes is waited for."""
        self._changed, self._thread, self._error = threading.Condition(), None, None
        self.busy.clear()
