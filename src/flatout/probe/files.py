"""Keeps the user's files as they were: every file an observed script is about to change is set aside first.

An audit hook sees each open for writing, rename, removal and new folder *before* it happens. What existed is kept
under the run's folder and noted in a journal; when the script has ended, `flatout.engine.restore` puts it back and
moves away what the script wrote. So the script sees its own files as ever (a checkpoint it saved can be loaded,
renamed, deleted), and the folder looks afterwards as it looked before. Standard library only: it starts before torch.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from typing import Any

__all__ = ["FileKeeper", "keep_files"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/", "/var/run/")


class FileKeeper:
    """The journal of one execution, shared by all of its processes."""

    def __init__(self, folder: str, working_folder: str) -> None:
        """Keep what lies outside of `folder`; below `working_folder` everything, elsewhere no caches and temporaries."""
        self._own = os.path.join(os.path.realpath(folder), "")
        self._folder = os.path.join(folder, "files")
        self._working = os.path.join(os.path.realpath(working_folder), "")
        home = os.path.realpath(os.path.expanduser("~"))
        self._passing = tuple(
            os.path.join(os.path.realpath(path), "")
            for path in (tempfile.gettempdir(), os.path.join(home, ".cache"), os.path.join(home, ".triton"), sys.prefix)
        )
        self._seen: set[str] = set()
        self._trees: tuple[str, ...] = ()
        self._busy = False
        for name in ("kept", "known"):
            os.makedirs(os.path.join(self._folder, name), exist_ok=True)

    def install(self) -> None:
        """Begin to watch; an audit hook lasts as long as its process."""
        acts: dict[str, Callable[..., None]] = {
            "open": self._opened,
            "os.remove": self._removed,
            "os.rename": self._renamed,
            "os.mkdir": self._made_folder,
            "os.rmdir": self._removed_folder,
            "os.truncate": lambda path, *_: self.before_write(path),
            "os.link": lambda source, target, *_: self.before_write(target),
            "os.symlink": lambda source, target, *_: self.before_write(target),
            "shutil.rmtree": self._removed_tree,
            "sqlite3.connect": lambda database, *_: self.before_write(database),
        }

        def hook(event: str, args: tuple[Any, ...]) -> None:
            act = acts.get(event)
            if act is not None and not self._busy:
                act(*args)

        sys.addaudithook(hook)

    # -- events -------------------------------------------------------------------------------------------------

    def before_write(self, path: Any, *, truncates: bool = False) -> None:
        """Set aside the file at `path`, which is about to be written, or note that it is new."""
        place = self._place(path)
        if place is None:
            return
        if not os.path.lexists(place):
            if self._first(place):
                self._note("created", place)
            return
        if not stat.S_ISREG(os.lstat(place).st_mode) or not self._first(place):
            return
        kept = self._kept_name(place)
        if truncates:
            with self._quiet():
                try:
                    os.rename(place, kept)
                except OSError:
                    shutil.copy2(place, kept)
        else:
            with self._quiet():
                shutil.copy2(place, kept)
        self._note("kept", place, kept)

    def _opened(self, path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(flags, int) or not flags & _WRITING or isinstance(path, int):
            return
        both = os.O_TRUNC | os.O_CREAT
        self.before_write(path, truncates=flags & both == both)

    def _removed(self, path: Any, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd, follow=False)
        if place is not None and os.path.lexists(place) and self._first(place):
            self._link(place)

    def _renamed(self, source: Any, target: Any, source_fd: int = -1, target_fd: int = -1) -> None:
        old, new = self._place(source, source_fd, follow=False), self._place(target, target_fd, follow=False)
        if old is not None and os.path.isdir(old) and not os.path.islink(old):
            if self._first(old) and new is not None:
                self._first(new)
                self._note("renamed", old, new)
            return
        if old is not None and os.path.lexists(old) and self._first(old):
            self._link(old)
        if new is None:
            return
        if not os.path.lexists(new):
            if self._first(new):
                self._note("created", new)
        elif self._first(new):
            self._link(new)

    def _made_folder(self, path: Any, mode: int = 0, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd, follow=False)
        if place is not None and not os.path.lexists(place) and self._first(place):
            self._note("folder", place)

    def _removed_folder(self, path: Any, dir_fd: int = -1) -> None:
        place = self._place(path, dir_fd, follow=False)
        if place is not None and os.path.isdir(place) and self._first(place):
            self._note("removed_folder", place)

    def _removed_tree(self, path: Any, dir_fd: int | None = None) -> None:
        place = self._place(path, -1 if dir_fd is None else dir_fd, follow=False)
        if place is None or not os.path.isdir(place) or not self._first(place):
            return
        kept = self._kept_name(place)
        with self._quiet():
            shutil.copytree(place, kept, symlinks=True, copy_function=_link_or_copy)
        self._note("tree", place, kept)
        self._trees += (os.path.join(place, ""),)

    # -- keeping ------------------------------------------------------------------------------------------------

    def _link(self, place: str) -> None:
        kept = self._kept_name(place)
        with self._quiet():
            _link_or_copy(place, kept)
        self._note("kept", place, kept)

    def _place(self, path: Any, dir_fd: int = -1, *, follow: bool = True) -> str | None:
        """Return the absolute path when it is to be protected, None when it is not ours to care for."""
        try:
            text = os.fsdecode(os.fspath(path))
        except TypeError:
            return None
        if text.startswith(("file:", ":memory:")) or not text:
            return None
        if isinstance(dir_fd, int) and dir_fd >= 0 and not os.path.isabs(text):
            with contextlib.suppress(OSError):
                text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        folder, name = os.path.split(os.path.abspath(text))
        place = os.path.realpath(text) if follow else os.path.join(os.path.realpath(folder), name)
        if place.startswith((self._own, *_SYSTEM)) or f"{os.sep}__pycache__{os.sep}" in place:
            return None
        if place.startswith(self._trees) if self._trees else False:
            return None
        if not place.startswith(self._working) and place.startswith(self._passing):
            return None
        return None if name == "__pycache__" else place

    def _first(self, place: str) -> bool:
        """Return whether no process of this execution has dealt with `place` before."""
        if place in self._seen:
            return False
        self._seen.add(place)
        known = os.path.join(self._folder, "known", hashlib.sha1(place.encode("utf-8", "surrogateescape")).hexdigest())
        with self._quiet():
            try:
                os.close(os.open(known, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                return False
        return True

    def _kept_name(self, place: str) -> str:
        number = hashlib.sha1(place.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return os.path.join(self._folder, "kept", f"{number}-{os.path.basename(place)[:80]}")

    def _note(self, act: str, place: str, other: str = "") -> None:
        line = json.dumps({"act": act, "place": place, "other": other}) + "\n"
        with self._quiet():
            journal = os.open(os.path.join(self._folder, "journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(journal, line.encode("utf-8", "surrogateescape"))
            finally:
                os.close(journal)

    @contextlib.contextmanager
    def _quiet(self) -> Any:
        """Let our own file operations pass the hook."""
        busy, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = busy


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


_keepers: list[FileKeeper] = []
"""The keeper of this process, for the seams that write files past Python's `open`."""


def keep_files(folder: str) -> FileKeeper:
    """Install the keeper of this process, once, and return it."""
    if not _keepers:
        _keepers.append(FileKeeper(folder, os.getcwd()))
        _keepers[0].install()
    return _keepers[0]
