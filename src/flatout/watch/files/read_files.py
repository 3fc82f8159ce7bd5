"""Files that samples are read from: whether one of them is another than it was.

Which files a data set reads cannot be known whole without reading it. Looked at are the folders of those that were
opened, looked for or listed while some samples were made in a copy of the process, and the folders of all names that
the data set holds. The kernel tells what happens there, before each batch (inotify); where it does not, names, sizes,
times and numbers of files are compared when a pass begins and ends. No kernel tells, under the names that are known,
what is written through a memory map or another name of a file, nor that a folder further up was renamed: files and
folders are asked for their marks, too, before each batch where they are few, else when a pass begins and ends.
"""

import functools
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from flatout.watch.files.file_events import FileEvents
from flatout.watch.files.file_questions import Asked, unasked

__all__ = ["ReadFiles"]

_MOST_FOLDERS = 20_000
_SHARE = 0.02  # of the time since the last look, for the next one
_MOST_NAMES = 2_000_000
_LONGEST_NAME = 4096

_FEW = 12  # files and folders that are asked for their marks before each batch; 1 us each
_NEAR = 500  # of which marks are taken at all
_CONTENT_BYTES = 1024**2  # of the files of a system that tells no times of writes through maps, compared whole

_Mark = tuple[int, ...] | None
"""Size, time and number of a file; None where there is none."""


class ReadFiles:
    """The files that samples are read from."""

    @unasked()
    def __init__(self, asked: Asked, named: list[Any], mapped: Iterable[str], *, listed: bool = True) -> None:
        """Look at the folders of all these as they are now: files asked for, values that may be names, files mapped.

        `listed`: what stands in the folders is noted, for where the kernel does not tell of them; some us a file.
        """
        began = time.monotonic()
        self._listed = {os.path.dirname(name) for name in asked if name.endswith(os.sep)}
        opened = {name for name in asked if not name.endswith(os.sep)}
        real = {os.path.realpath(name) for name in opened}
        names = _names(named)
        named_in = {os.path.dirname(name) for name in opened | real} | _folders(names)
        folders = sorted(named_in | self._listed)[:_MOST_FOLDERS]
        links = {link for folder in folders for link in _links_to(folder)}
        folders += sorted({os.path.dirname(link) for link in links} - {*folders})
        self._events = FileEvents(folders)  # first: what happens from here on is told
        self._kinds = {os.path.splitext(name)[1] for name in opened}
        self._names = {os.path.basename(name) for name in [*opened, *real, *links, *names]}
        self._files = {name: _mark(name) for name in mapped}
        self._folders = {folder: _marks(folder) if listed else {} for folder in folders}
        held = (name for name in names if name not in opened and os.path.dirname(os.path.abspath(name)) in named_in)
        near = [*sorted(opened), *mapped, *held, *folders][:_NEAR]
        self._near = {name: mark for name in near if (mark := _whole_mark(name)) is not None}
        self._few = self._near if len(self._near) <= _FEW else {}
        self._content = _contents(self._near)
        self._looked_s = time.monotonic()
        self._took_s, self._turn = self._looked_s - began, 0

    @property
    def any(self) -> bool:
        """Return whether there is anything to look at."""
        return bool(self._files or self._folders)

    @unasked()
    def told(self) -> str:
        """Return a file of which the kernel says that it is not as it was, an empty string for none."""
        for name in self._events.touched():
            if not name:
                return self.changed(whole=True)
            folder, base = os.path.split(name)
            known = base in (self._folders.get(folder) or {})
            if self._reads(folder, base) if known else folder in self._listed or base in self._names:
                return f"the file {name}"
        return self._moved(self._few)

    @staticmethod
    def _moved(marks: Mapping[str, _Mark]) -> str:
        for name, mark in marks.items():
            if _whole_mark(name) != mark:
                return f"the file {name}"
        return ""

    def _reads(self, folder: str, base: str) -> bool:
        return folder in self._listed or base in self._names or os.path.splitext(base)[1] in self._kinds

    @unasked()
    def changed(self, *, whole: bool = False) -> str:
        """Return a file that is not as it was, an empty string for none.

        Where looking at all would take more than a small share of the time since the last look, some folders are looked
        at, others each time; all of them where `whole`.
        """
        now = time.monotonic()
        share = 1.0 if whole else min(1.0, _SHARE * (now - self._looked_s) / max(self._took_s, 1e-4))
        self._looked_s = now
        for name, mark in self._files.items():
            if _mark(name) != mark:
                return f"the file {name}"
        found = self._moved(self._near)
        if not found and any(_digest(name) != digest for name, digest in self._content.items()):
            found = "a file"
        if found:
            return found
        unheard = [folder for folder in self._folders if whole or folder not in self._events.watched]
        for place in range(min(len(unheard), max(1, round(share * len(unheard))))):
            folder = unheard[(self._turn + place) % len(unheard)]
            found = self._differing(folder)
            if found:
                return found
        self._turn += max(1, round(share * len(unheard)))
        return ""

    def _differing(self, folder: str) -> str:
        before, now = self._folders[folder], _marks(folder)
        new = now.keys() - before.keys() if folder in self._listed else now.keys() & self._names - before.keys()
        gone = (name for name in before if name not in now or before[name] != now[name])
        read = [*sorted(new), *(name for name in gone if self._reads(folder, name))]
        return f"the file {os.path.join(folder, read[0])}" if read else ""


def _links_to(folder: str) -> list[str]:
    """Return the links on the way to a folder, itself included."""
    found = []
    while folder != os.path.dirname(folder):
        found += [folder] if os.path.islink(folder) else []
        folder = os.path.dirname(folder)
    return found


def _mark(name: str) -> _Mark:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _whole_mark(name: str) -> _Mark:
    """Return what tells which file or folder a name leads to, and of a file whether it was written since."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    which = (found.st_dev, found.st_ino)
    return which if stat.S_ISDIR(found.st_mode) else (*which, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _contents(marks: Mapping[str, _Mark]) -> dict[str, bytes]:
    """Return digests of what stands in small files that lie in memory, as in `/tmp`: their times may stand still."""
    left, found = _CONTENT_BYTES, {}
    for name, mark in marks.items():
        if mark is None or len(mark) < 3 or mark[2] > left or not _lies_in_memory(name):
            continue
        left -= mark[2]
        found[name] = _digest(name)
    return found


def _lies_in_memory(name: str) -> bool:
    return os.path.realpath(name).startswith(_in_memory())


@functools.cache
def _in_memory() -> tuple[str, ...]:
    """Return where file systems in memory are mounted."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
            found = [line.split()[1] for line in mounts if line.split()[2] in ("tmpfs", "ramfs")]
    except (OSError, IndexError):
        return ()
    return tuple(os.path.join(place, "") for place in found)


def _digest(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return hashlib.blake2b(file.read(_CONTENT_BYTES + 1)).digest()
    except OSError:
        return b""


def _marks(folder: str) -> dict[str, _Mark]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name: _of_entry(entry) for entry in entries}
    except OSError:
        return {}


def _of_entry(entry: os.DirEntry[str]) -> _Mark:
    try:
        found = entry.stat() if entry.is_file() else None
    except OSError:
        return None
    return None if found is None else (found.st_size, found.st_mtime_ns, found.st_ino)


def _folders(names: list[str]) -> set[str]:
    named = {os.path.dirname(name) for name in names}
    return {os.path.abspath(folder) for folder in named if folder and os.path.isdir(folder)}


def _names(values: list[Any]) -> list[str]:
    some = values[:_MOST_NAMES]
    paths = {kind for kind in set(map(type, some)) if issubclass(kind, PurePath)}
    names = [value for value in some if type(value) is str and os.sep in value]
    names += [str(value) for value in some if type(value) in paths] if paths else []
    return [name for name in names if len(name) < _LONGEST_NAME and "\0" not in name]
