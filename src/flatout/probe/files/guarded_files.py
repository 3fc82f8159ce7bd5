"""Keeps the user's files as they were: every file an observed script is about to change is set aside first.

An audit hook sees each open for writing, rename, removal and new folder *before* it happens. What existed is kept
under the run's folder and noted in a journal, which lies in the user's state folder; when the script has ended,
`engine/process/restore.py` puts it back and moves away what the script wrote. So the script sees its own files as ever
(a checkpoint it saved can be loaded, renamed, deleted), and the folder looks afterwards as it looked before. Where the
script has a private copy of a place (`engine/process/private_world.py`), nothing is to be done there. Standard library
only: it starts before torch.

Each act is noted before it is done, and a file is set aside in one step or not at all: a kill at any moment leaves
either the file in its place or a note that brings it back. What cannot be noted or kept (a full disk) is not done:
the script's own call fails instead.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any
from urllib.parse import unquote

from flatout.probe.files.private_places import PrivatePlaces
from flatout.probe.files.setting_aside import take_by_link, take_by_move, take_copy, take_tree
from flatout.state_folder import journal_folder, own_folder

__all__ = ["FileKeeper", "keep_files"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ANEW = os.O_TRUNC | os.O_CREAT
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/", "/var/run/")


class FileKeeper:
    """The journal of one execution, shared by all of its processes."""

    def __init__(self, folder: str, *working_folders: str) -> None:
        """Keep what is not in `folder`; below `working_folders` everything, elsewhere no caches and temporaries."""
        self._notes = own_folder(journal_folder(folder))
        self._folder = os.path.join(folder, "files")
        self._own = tuple(os.path.join(os.path.realpath(path), "") for path in (folder, self._notes))
        self._private = PrivatePlaces.of(self._notes)
        self._working = tuple(os.path.join(os.path.realpath(path), "") for path in working_folders)
        passing = (tempfile.gettempdir(), "~/.cache", "~/.triton", sys.prefix)
        self._passing = tuple(os.path.join(os.path.realpath(os.path.expanduser(path)), "") for path in passing)
        self._seen: set[str] = set()
        self._trees: tuple[str, ...] = ()
        self._busy: set[int] = set()  # threads at work here, whose own file operations pass
        self._numbers = itertools.count()
        for name in (os.path.join(self._folder, "kept"), os.path.join(self._notes, "known")):
            os.makedirs(name, exist_ok=True)

    def install(self) -> None:
        """Begin to watch; an audit hook lasts as long as its process."""
        acts: dict[str, Callable[..., None]] = {
            "open": self._opened,
            "os.remove": self._removed,
            "os.rename": self._renamed,
            "os.mkdir": self._made_folder,
            "os.rmdir": self._removed_folder,
            "os.truncate": lambda path, *_: self.before_write(path),
            "os.chmod": self._changed_stat,
            "os.utime": lambda path, times, ns, dir_fd: self._changed_stat(path, 0, dir_fd),
            "os.link": lambda source, target, *_: self.before_write(target),
            "os.symlink": lambda source, target, *_: self.before_write(target),
            "shutil.rmtree": self._removed_tree,
            "sqlite3.connect": self._opened_database,
        }

        def hook(event: str, args: tuple[Any, ...]) -> None:
            act = acts.get(event)
            if act is not None and get_ident() not in self._busy:
                act(*args)

        sys.addaudithook(hook)

    def before_write(self, path: Any, *, truncates: bool = False) -> None:
        """Set aside the file at `path`, which is about to be written, or note that it is new."""
        place = self._place(path)
        if place is None:
            return
        try:
            found = os.lstat(place)
        except OSError:
            self._record("created", place)
            return
        if not stat.S_ISREG(found.st_mode):
            return
        if truncates and os.access(place, os.W_OK) and self._keep(place, take_by_move):
            return
        shared = found.st_nlink > 1
        self._keep(place, take_by_link if shared else take_copy)
        if shared:
            self._give_own_copy(place)

    def _opened(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
            self.before_write(path, truncates=flags & _ANEW == _ANEW)

    def _opened_database(self, database: Any, *rest: Any) -> None:
        """A database comes with a journal of its own, which must never meet an older database."""
        with contextlib.suppress(TypeError):
            text, _, query = os.fsdecode(database).partition("?")
            if text.startswith("file:"):
                text = unquote(re.sub("^file:(//+)?", lambda found: "/" if found[1] else "", text))
            if text and text != ":memory:" and not re.search("mode=(ro|memory)", query):
                for suffix in ("", "-journal", "-wal", "-shm"):
                    self.before_write(text + suffix)

    def _removed(self, path: Any, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd, follow=False)
        if place is not None and os.path.lexists(place):
            self._keep(place, take_by_link)

    def _renamed(self, source: Any, target: Any, source_fd: int = -1, target_fd: int = -1) -> None:
        if self._private:
            with self._quiet():
                self._private.make_movable(_absolute(source, source_fd, follow=False))
        old, new = self._place(source, source_fd, follow=False), self._place(target, target_fd, follow=False)
        if old is not None and old == new:
            return
        if old is not None and os.path.isdir(old) and not os.path.islink(old):
            self._renamed_folder(old, new or _absolute(target, target_fd, follow=False))
            return
        self._removed(source, source_fd)
        if new is not None and not os.path.lexists(new):
            self._record("created", new)
        elif new is not None and (not os.path.isdir(new) or os.path.islink(new)):
            self._keep(new, take_by_link)

    def _renamed_folder(self, old: str, new: str) -> None:
        """Note every move of a folder, the script's own folders too: what lies in it is undone where it lay then."""
        if os.path.isdir(new):
            self._removed_folder(new)
        self._note("renamed", old, new, os.lstat(old).st_ino)
        self._forget(old, new)
        self._trees = tuple(tree for tree in self._trees if not tree.startswith(os.path.join(new, "")))

    def _made_folder(self, path: Any, mode: int = 0, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd, follow=False)
        if place is not None and not os.path.lexists(place):
            self._record("folder", place)

    def _removed_folder(self, path: Any, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd, follow=False)
        if place is not None and os.path.isdir(place):
            self._record("removed_folder", place, number=stat.S_IMODE(os.stat(place).st_mode))

    def _removed_tree(self, path: Any, dir_fd: int | None = None) -> None:
        place = self._place(path, -1 if dir_fd is None else dir_fd, follow=False)
        if place is not None and os.path.isdir(place) and not os.path.islink(place) and self._keep(place, take_tree):
            self._trees += (os.path.join(place, ""),)

    def _changed_stat(self, path: Any, mode: int = 0, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd)
        if place is None or not os.path.exists(place):
            return
        found = os.stat(place)
        if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
            self.before_write(place)
        else:
            times = f"{found.st_atime_ns} {found.st_mtime_ns} {found.st_ino}"
            self._record("stat", place, times, number=stat.S_IMODE(found.st_mode), known_as=f"{place}\0stat")

    def _keep(self, place: str, take: Callable[[str, str], Any]) -> bool:
        """Set `place` aside by `take`, once; return whether this was the time."""
        kept = os.path.join(self._folder, "kept", f"{os.getpid()}-{next(self._numbers)}-{time.time_ns()}")
        return self._record("tree" if take is take_tree else "kept", place, kept, take=take)

    def _give_own_copy(self, place: str) -> None:
        """Part a file about to be written from its other names, of which one may be what was kept."""
        partial = os.path.join(self._folder, "kept", f"own-{os.getpid()}-{next(self._numbers)}")
        with self._quiet():
            shutil.copy2(place, partial)
            shutil.move(partial, place)

    def _place(self, path: Any, dir_fd: int = -1, *, follow: bool = True) -> str | None:
        """Return the absolute path when it is to be protected, None when it is not ours to care for."""
        place = _absolute(path, dir_fd, follow=follow)
        if not place or place.startswith((*self._own, *_SYSTEM)) or f"{os.sep}__pycache__{os.sep}" in place:
            return None
        if place in self._private or (self._trees and place.startswith(self._trees)):
            return None
        if not place.startswith(self._working) and place.startswith(self._passing):
            return None
        return None if os.path.basename(place) == "__pycache__" else place

    def _record(
        self, act: str, place: str, other: str = "", *, number: int = 0, known_as: str = "", take: Any = None
    ) -> bool:
        """Note an act and `take` its place, once; who comes meanwhile waits. Return whether this was the time."""
        known_as = known_as or place
        if known_as in self._seen:
            return False
        name = os.path.join(self._notes, "known", hashlib.sha1(os.fsencode(known_as)).hexdigest())
        with self._quiet(), open(name, "a+b", buffering=0) as known:
            with contextlib.suppress(OSError):
                fcntl.flock(known, fcntl.LOCK_EX)
            try:
                known.seek(0)
                fresh = not known.read(1)
                if fresh:
                    self._note(act, place, other, number)
                    if take is not None:
                        take(place, other)
                    known.write(os.fsencode(known_as))
            finally:
                with contextlib.suppress(OSError):  # by closing it alone, a process forked meanwhile would keep it
                    fcntl.flock(known, fcntl.LOCK_UN)
        self._seen.add(known_as)
        return fresh

    def _forget(self, *places: str) -> None:
        """Take `places` and all below them for unknown again."""
        below = tuple(os.path.join(place, "") for place in places)

        def stays(known_as: str) -> bool:
            return known_as.partition("\0")[0] not in places and not known_as.startswith(below)

        with self._quiet(), contextlib.suppress(OSError):
            for entry in os.scandir(os.path.join(self._notes, "known")):
                with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                    if not stays(os.fsdecode(file.read())):
                        os.unlink(entry.path)
        self._seen = {known_as for known_as in self._seen if stays(known_as)}

    def _note(self, act: str, place: str, other: str, number: int) -> None:
        entry = json.dumps({"act": act, "place": place, "other": other, "number": number})
        line = f"\n{entry}\n".encode("ascii")  # begins a line even after a note that a full disk cut off
        with self._quiet():
            journal = os.open(os.path.join(self._notes, "journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                if os.write(journal, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._folder)
            finally:
                os.close(journal)

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Let our own file operations pass the hook."""
        thread = get_ident()
        nested = thread in self._busy
        self._busy.add(thread)
        try:
            yield
        finally:
            if not nested:
                self._busy.discard(thread)


def _absolute(path: Any, dir_fd: int, *, follow: bool) -> str:
    """Return the real place of `path`; of a link itself unless `follow`; nothing when it names no file."""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if isinstance(dir_fd, int) and dir_fd >= 0 and not os.path.isabs(text):
        with contextlib.suppress(OSError):
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
    folder, name = os.path.split(os.path.abspath(text))
    place = os.path.realpath(text) if follow else os.path.join(os.path.realpath(folder), name)
    return place if text else ""


_keepers: list[FileKeeper] = []
"""The keeper of this process, for the seams that write files past Python's `open`."""


def keep_files(folder: str) -> FileKeeper:
    """Install the keeper of this process, once, and return it."""
    if not _keepers:
        started_in = [os.getcwd()]
        with contextlib.suppress(OSError), open(os.path.join(journal_folder(folder), "working"), "rb") as file:
            started_in.append(os.fsdecode(file.read()))
        _keepers.append(FileKeeper(folder, *started_in))
        _keepers[0].install()
    return _keepers[0]
