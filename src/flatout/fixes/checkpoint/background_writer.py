"""Files written in the background, in order, by one thread; whatever accesses one of them waits until it is in place.

A file is written into a folder of its own beside its place and moved there when it is complete. The folder and the
empty file in it are made at the moment of saving, so that mode, owner and group are those of that moment. An error of
the thread is raised at the script's next access: at the next file, at an access to one, or, at the latest, at the end
of the process, whose exit status then says so.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from threading import get_ident

from flatout.fixes.checkpoint.shared_places import SharedPlaces

__all__ = ["BackgroundWriter", "Content", "PendingWrite", "QuietThreads", "content_of"]

_MOST_WAITING = 4  # files; each holds its content in memory

Content = tuple[int, int] | None
"""Number and size of a file, None where there is none: what is only touched, or written alike, is no other file."""


@dataclass(frozen=True)
class PendingWrite:
    """One file to be written: its place, the empty file beside it that takes the content, and what writes it there."""

    target: str  # absolute, without symbolic links
    made: str  # in a folder of its own, which nobody else uses
    write: Callable[[str], None]
    num_bytes: int = 0
    saved_ns: int = 0  # when it was saved, as files have it; 0: the moment of writing
    done: Callable[[], None] = lambda: None  # called when it is in its place, or will never be
    before: Content = None  # what stood in its place when it was saved

    @property
    def folder(self) -> str:
        """Return the folder that the file is made in."""
        return os.path.dirname(self.made)

    def run(self, stays: Callable[[], bool] = lambda: False) -> None:
        """Write the file beside its place, then put it there, unless `stays` says that what is there by now stays."""
        try:
            self.write(self.made)
            if stays():
                return
            if self.saved_ns:
                os.utime(self.made, ns=(self.saved_ns, self.saved_ns))
            try:
                os.replace(self.made, self.target)
            except OSError:  # a place that cannot be given another file: mounted by itself, for instance
                shutil.copyfile(self.made, self.target)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.done()

    def concerns(self, path: str) -> bool:
        """Return whether `path` is the file or a folder that it lies in."""
        return self.target == path or self.target.startswith(os.path.join(path, "")) or self.folder == path


def content_of(path: str) -> Content:
    """Return what tells whether a file was written or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size


class QuietThreads:
    """Threads at work here: what they do with files concerns nobody."""

    def __init__(self) -> None:
        """None is at work yet."""
        self.busy: set[int] = set()

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


class _PendingInParent(deque[PendingWrite]):
    """What was pending as a process was forked; more may be by now, in the other process."""

    def __init__(self, pending: deque[PendingWrite], shared: SharedPlaces) -> None:
        super().__init__(pending)
        self._shared = shared

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self._shared)


class BackgroundWriter:
    """The files of this process that are still to be written."""

    def __init__(self) -> None:
        """Write nothing yet."""
        self.pending: deque[PendingWrite] = deque()
        self.unfinished = ""  # the folder of a file that is being prepared
        self.threads = QuietThreads()
        self.changed = threading.Condition()
        self.on_change: list[Callable[[bool], None]] = []  # told, with `changed` held, whether files are pending
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._placed: dict[str, Content] = {}  # what was put in place last
        self._pid = os.getpid()
        self._shared = SharedPlaces()
        os.register_at_fork(after_in_child=self._forked)

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that writes."""
        return os.getpid() != self._pid

    def put(self, make: Callable[[], PendingWrite | None]) -> bool:
        """Write the file that `make` prepares after those before it; wait first while too many are held in memory.

        Return False where `make` returned None.
        """
        with self.changed:
            self.changed.wait_for(lambda: len(self.pending) < _MOST_WAITING)
            self._tell(pending=True)
            try:
                writing = make()
                if writing is not None:
                    self.pending.append(writing)
                    self._shared.add(_number_of(writing.target))
                    self.unfinished = ""
            finally:
                self._discard()
                self._tell(pending=bool(self.pending))
            if writing is None or self._thread is not None:
                return writing is not None
            self._thread = threading.Thread(target=self._work, name="flatout-checkpoint")
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down: no threads any more
            self._work()
        return True

    def _discard(self) -> None:
        """Remove the folder of a file that was not put here after all."""
        if self.unfinished:
            shutil.rmtree(self.unfinished, ignore_errors=True)
            self.unfinished = ""

    def wait(self, path: str | None = None) -> None:
        """Wait until `path`, or what lies in that folder, is written; without it, for everything.

        Raises:
            Exception: what went wrong while a file was written, this one or another.
        """
        with self.threads.quietly():
            if self.forked:
                self._wait_for_parent(path)
                return
            with self.changed:
                self.changed.wait_for(lambda: not self.concerned(path))
        self.raise_error()

    def settle(self) -> None:
        """Wait for everything; what went wrong is raised later."""
        with self.threads.quietly(), self.changed:
            self.changed.wait_for(lambda: self.forked or not self.pending)

    def raise_error(self) -> None:
        """Raise, once, what went wrong while a file was written."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def concerned(self, path: str | None) -> bool:
        """Return whether a file that is still to be written is `path` or lies below it."""
        if self.forked:
            with self.threads.quietly():
                for gone in [each for each in self.pending if not os.path.lexists(each.folder)]:
                    self.pending.remove(gone)
            if path is not None and _number_of(path) in self._shared:
                return True
        return any(path is None or writing.concerns(path) for writing in list(self.pending))

    def place(self, path: object) -> str | None:
        """Return the place that a path names, empty for what is none of ours, None where that cannot be told."""
        if path is None or isinstance(path, int):  # a folder by its descriptor, or the current one
            return None
        try:
            text = os.fsdecode(path)  # type: ignore[arg-type]
            name = os.path.basename(text)
            known = any(os.path.basename(writing.target) == name for writing in list(self.pending))
            if known and not os.path.isabs(text):  # in which folder is unknown
                return None
            return os.path.realpath(text)
        except (TypeError, ValueError, OSError):
            return ""

    def failed_at_end(self) -> bool:
        """Wait for everything; say on standard error what went wrong, if the script has not been told.

        A Ctrl-C meanwhile does not end the waiting: the script has saved, and without us the file would be there.
        """
        while not self.forked:
            try:
                self.wait()
                self._discard()
            except KeyboardInterrupt:
                continue
            except Exception as error:
                trace = "".join(traceback.format_exception(error))
                sys.stderr.write(f"flatout: a checkpoint could not be written in the background:\n{trace}")
                sys.stderr.flush()
                return True
            else:
                return False
        return False

    def _tell(self, *, pending: bool) -> None:
        for told in self.on_change:
            told(pending)

    def _work(self) -> None:
        with self.threads.quietly():
            while True:
                with self.changed:
                    if not self.pending:
                        self._thread = None
                        self._tell(pending=False)
                        return
                    writing = self.pending[0]
                try:
                    writing.run(partial(self._was_overwritten, writing))
                    self._placed[writing.target] = content_of(writing.target)
                except Exception as error:
                    self._error = self._error or error
                with self.changed:
                    self.pending.popleft()
                    if all(each.target != writing.target for each in self.pending):
                        self._shared.remove(_number_of(writing.target))
                    del writing
                    self.changed.notify_all()

    def _was_overwritten(self, writing: PendingWrite) -> bool:
        """Tell whether something that is not held back has written a file in this place since it was saved."""
        now = content_of(writing.target)
        if now is None or now in (writing.before, self._placed.get(writing.target)):
            return False
        sys.stderr.write(f"flatout: {writing.target} was written again after torch.save: that stays\n")
        return True

    def _wait_for_parent(self, path: str | None) -> None:
        """In a child: the parent's folders go away as their files are put in place."""
        parent = os.getppid()
        for writing in [each for each in self.pending if path is None or each.concerns(path)]:
            while os.path.lexists(writing.folder) and os.getppid() == parent:
                time.sleep(0.001)
            self.pending.remove(writing)
        while path is not None and _number_of(path) in self._shared and os.getppid() == parent:
            self._shared.wait(_number_of(path))

    def _forked(self) -> None:
        """In a child nothing is written; what the parent writes is waited for."""
        self.changed, self._thread, self._error = threading.Condition(), None, None
        self.threads.busy.clear()
        self._tell(pending=False)
        self.pending = _PendingInParent(self.pending, self._shared)


def _number_of(path: str) -> str:
    """Return what tells a path from all others: a file that is still to be written has no number of its own."""
    digest = hashlib.blake2b(os.fsencode(path), digest_size=16).digest()
    return f"{int.from_bytes(digest[:8], 'big')}:{int.from_bytes(digest[8:], 'big')}"
