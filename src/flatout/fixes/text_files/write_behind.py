"""Text that the script has flushed, written a moment later by a thread, or at once where somebody may look for it.

Whoever in this process opens, stats, renames or removes such a file or a folder above it, forks, or starts another
program, finds in the file what the script has flushed.
"""

import os
import threading
import time
from collections.abc import Callable

from flatout.fixes.checkpoint.background_writer import QuietThreads
from flatout.fixes.checkpoint.shared_places import PlacesOfParent, SharedPlaces
from flatout.fixes.text_files.text_file import TextFile, identity, places_of

__all__ = ["DELAY_S", "WriteBehind"]

DELAY_S = 0.5  # that text waits at most, besides the time that writing it takes
_MOST_KNOWN = 64

_stat = os.stat  # as it is before a fix wraps it


class WriteBehind:
    """The files of this process whose text may wait.

    Attributes:
        waits: text waits just now; otherwise it is written when it is flushed.
        pending: the files that are known, by their places, whether text of them waits or not.
        is_forked: this process is forked from the one whose text waits.
        lock: held by whoever changes what waits, or writes it.
    """

    def __init__(self, acted: Callable[[], None], left: Callable[[str], None]) -> None:
        """Know no file; `acted` is told as one begins to wait, `left` why some are written at once."""
        self.waits = self.is_forked = False
        self.pending: dict[str, TextFile] = {}
        self.threads = QuietThreads()
        self._places: set[str] = set()  # of these files and of the folders above them
        self._acted, self._left = acted, left
        self._due: dict[str, TextFile] = {}
        self._shared = SharedPlaces()
        self.lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()  # of the process whose text may wait
        os.register_at_fork(before=self._fork, after_in_parent=self.lock.release, after_in_child=self._forked)

    def file(self, path: str, number: int) -> TextFile | None:
        """Return what is known of an open file; None where its text cannot wait."""
        with self.lock:
            with self.threads.quietly():
                path = os.path.realpath(path)
                places = places_of(path, number)
            if not places:
                self._left(f"{os.path.basename(path)} has a second name, or is no plain file")
                return None
            known = self.pending.get(places[0])
            if known is not None and known.path == path:
                return known
            if known is not None or len(self.pending) >= _MOST_KNOWN:
                self._forget(lambda file: file is known or not (file.num_open or file.gathering))
            self.pending[places[0]] = made = TextFile(path, places)
            self._places.update(places)
            return made

    def add(self, file: TextFile) -> None:
        """Have what waits of a file written in a moment."""
        with self.lock:
            if file.places[0] not in self._due:
                self._due[file.places[0]] = file
                self._acted()
                if not self._shared.add(file.places[0]):
                    self._write(file)
            if self._thread is not None and self._thread.is_alive():
                return
            self._thread = threading.Thread(target=self._work, name="flatout-files", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down: no threads any more
            self._thread = None
            self.settle()

    def write(self, file: TextFile) -> None:
        """Write what waits of a file now."""
        if self.is_forked:
            self._shared.wait(file.places[0])
            return
        with self.lock:
            self._due[file.places[0]] = file
            self._write(file)

    def place(self, path: object) -> str | None:
        """Return how a path is known here: "" for what is not there, None where that cannot be told."""
        if path is None or isinstance(path, int):
            return None
        try:
            text = os.fsdecode(path)  # type: ignore[arg-type]
        except TypeError:
            return ""
        try:
            found = identity(_stat(text))
        except (OSError, ValueError):
            found = ""
        if found and (os.path.isabs(text) or self.concerned(found)):
            return found
        end = os.sep + os.path.basename(text)  # in a folder that was given by its descriptor, or just removed
        return None if any(file.path.endswith(end) for file in list(self.pending.values())) else found

    def concerned(self, path: str | None) -> bool:
        """Return whether a file is known at that place or below it; None: anywhere."""
        if self.is_forked:
            return path is not None and path in self._shared
        return bool(self.pending) if path is None else path in self._places

    def wait(self, path: str | None = None) -> None:
        """Write what waits at that place or below it; without it, everything. Somebody may be looking from now on."""
        if self.is_forked:
            if path is not None:  # folders are looked through at the end of each worker
                self._shared.wait(path)
            return
        with self.lock:
            for file in list(self.pending.values()):
                if path is None or path in file.places:
                    self._write(file)
                    file.looked = True
                    _open_gathering(file)
            self._forget(lambda file: not file.looks_left)

    def settle(self) -> None:
        """Write everything that waits."""
        with self.lock:
            for file in list(self._due.values()):
                self._write(file)

    def switch(self, *, on: bool) -> None:
        """Let text wait from now on, or write it when it is flushed."""
        self.waits = on and os.getpid() == self._pid
        if not on:
            self.settle()

    def _forget(self, which: Callable[[TextFile], bool]) -> None:
        """Know some files no more: nothing of them waits from now on."""
        for place, file in list(self.pending.items()):
            if which(file):
                self._write(file)
                file.retire()
                del self.pending[place]
        self._places = {each for known in self.pending.values() for each in known.places}

    def _write(self, file: TextFile) -> None:
        """Write what waits of a file; where that fails, the script is told as it writes there next."""
        if self._due.pop(file.places[0], None) is None:
            return
        with self.threads.quietly():
            try:
                file.settle()
            except OSError as error:
                self._left(f"{os.path.basename(file.path)} could not be written: {error}")
            except Exception as error:  # out of memory, for instance: it is tried again
                self._due[file.places[0]] = file
                self._left(f"{os.path.basename(file.path)} could not be written yet: {type(error).__name__}: {error}")
            except BaseException:  # Ctrl-C
                self._due[file.places[0]] = file
                raise
            finally:
                self._tell(file)

    def _tell(self, file: TextFile) -> None:
        """Let another process go on that waits for a file: it looks without being noticed, so nothing waits again."""
        if file.places[0] not in self._due and self._shared.remove(file.places[0]):
            file.retire()
            self._left(f"{os.path.basename(file.path)} is used by a worker, too")

    def _work(self) -> None:
        while True:
            time.sleep(DELAY_S)
            self.settle()
            with self.lock:
                if not self._due:
                    self._thread = None
                    return

    def _fork(self) -> None:
        self.lock.acquire()
        if os.getpid() == self._pid:
            self.settle()

    def _forked(self) -> None:
        """In a child everything is written when it is flushed."""
        self.waits, self.is_forked, self._thread = False, True, None
        for file in self.pending.values():
            file.forget()
        self._due.clear()
        self.pending = PlacesOfParent(self._shared)
        self._places.clear()
        self.threads.busy.clear()
        self.lock.release()


def _open_gathering(file: TextFile) -> None:
    """Have a handle that gathers go on with the file that it was opened for, whatever is done to that now."""
    handle = file.gathering() if file.gathering is not None else None
    if handle is None:
        return
    try:
        handle.opened()
    except ValueError:  # it is being closed
        return
    except OSError as error:  # which is told where something is written next
        file.error = error
