"""Objects kept on disk between passes, runs and processes: written whole or not at all, checked when first read.

One file an object, of a name made from its URL, its range and its store; inside are the identity that it had, its
bytes and their checksum. It gets its name by rename once it is written whole; a checksum that does not fit, after a
loss of power for instance, makes it absent. So nothing waits for the disk.

The time of a file is when its object was last known to be as it is kept; the time of access is its last use. What all
files take is noted in `.taken`, under a lock, in shares of which each process uses up one before it asks for the next.
Where that exceeds what may be used, those unused for longest are removed.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flatout.units import format_bytes
from flatout.watch.forked_copy import in_a_copy

__all__ = ["KeptObject", "ObjectCache", "cache_name", "usual_folder"]

_START = struct.Struct("<8sQIIQ")
"""What a file is, a number of it alone, a checksum, the bytes of its note and of the object."""
_MAGIC = b"flatobj1"
_FIRST_READ = 1024
_LARGEST = 2**30  # Linux writes less than 2 GiB at a time
_SUFFIX, _PARTIAL = ".object", ".partial"
_MOST_BYTES, _MOST_OF_FREE = 20 * 10**9, 0.5
_SHARE_BYTES, _FEWEST_SHARES = 16 * 1024**2, 32
_LEFT_AFTER_REMOVAL = 0.9
_UNFINISHED_S = 600.0  # a file without its name that is older was left by a process that was killed
_USED_AGAIN_S = 60.0  # a use is noted once in so many seconds
_OPEN = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True)
class KeptObject:
    """An object as it is kept.

    Attributes:
        confirmed: when it was last known to be as its store has it.
    """

    data: bytes
    identity: str
    confirmed: float


def cache_name(*parts: object) -> str:
    """Return the name of a file for what these parts say."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def usual_folder() -> Path:
    """Return where objects are kept for whom nobody names a folder: below `XDG_CACHE_HOME`, or `~/.cache`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    top = Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~")) / ".cache"
    return top / "flatout" / "objects"


class ObjectCache:
    """A folder of objects. Whatever its disk does is no error: an object that is not kept is asked for again.

    Attributes:
        refused: why nothing more is kept; empty while something is.
    """

    def __init__(self, folder: Path, max_bytes: int | None) -> None:
        """Make nothing yet; `max_bytes`: None for 20 GB, or half of what is free if that is less."""
        self._folder, self._asked_bytes = folder, max_bytes
        self._max_bytes: int | None = None
        self._left = 0  # of this process's share
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._checked: set[int] = set()
        self.refused = "" if max_bytes != 0 else "max_bytes is 0"

    def find(self, name: str) -> KeptObject | None:
        """Return what is kept under a name, its bytes checked the first time; None where there is nothing whole."""
        if self._asked_bytes == 0:
            return None
        try:
            file = os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK | _OPEN)
        except OSError:
            return None
        try:
            return self._read(file, name)
        except (OSError, ValueError, struct.error):
            return None
        finally:
            os.close(file)

    def keep(self, name: str, data: bytes, identity: str, begun: float) -> None:
        """Keep an object that was asked for at the time `begun`, if there is room for it."""
        note = json.dumps([name, identity]).encode()
        size = _START.size + len(note) + len(data)
        if self.refused or size > _LARGEST or in_a_copy():  # a copy that is looked at leaves no trace
            return
        number = int.from_bytes(os.urandom(8), "little")
        start = _START.pack(_MAGIC, number, zlib.crc32(data, zlib.crc32(note)), len(note), len(data))
        path = self._path(name)
        partial = f"{path}.{os.getpid()}.{number}{_PARTIAL}"
        try:
            if not self._has_room(size):
                return
            file = self._made(partial)
            try:
                if os.writev(file, [start, note, data]) != size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.utime(file, (time.time(), begun))
            finally:
                os.close(file)
            os.rename(partial, path)
            self._checked.add(number)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            self.refused = f"{self._folder} cannot be written ({error.strerror or type(error).__name__})"

    def confirm(self, name: str, begun: float) -> None:
        """Note that an object was still as it is kept at the time `begun`."""
        if not in_a_copy():
            with contextlib.suppress(OSError):
                os.utime(self._path(name), (time.time(), begun))

    @property
    def max_bytes(self) -> int:
        """Return what all objects may take together."""
        if self._max_bytes is None:
            self._max_bytes = self._asked_bytes if self._asked_bytes is not None else self._usual_bytes()
        return self._max_bytes

    def __str__(self) -> str:
        if self.refused:
            return f"not kept: {self.refused}"
        return f"kept in {self._folder}, {format_bytes(self.max_bytes)} at most"

    def _usual_bytes(self) -> int:
        with contextlib.suppress(OSError):
            there = next(each for each in (self._folder, *self._folder.parents) if each.exists())
            return min(_MOST_BYTES, int(_MOST_OF_FREE * (shutil.disk_usage(there).free + self._taken())))
        return 0

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name[2:]}{_SUFFIX}"

    def _read(self, file: int, name: str) -> KeptObject | None:
        found = os.fstat(file)
        if found.st_uid not in (0, os.geteuid()):  # another user's: what it holds is theirs to change
            return None
        first = os.pread(file, _FIRST_READ, 0)
        magic, number, checksum, note_bytes, data_bytes = _START.unpack_from(first)
        begin = _START.size + note_bytes
        if magic != _MAGIC or found.st_size != begin + data_bytes or found.st_size > _LARGEST:
            return None
        note = first[_START.size : begin] if begin <= len(first) else os.pread(file, note_bytes, _START.size)
        data = os.pread(file, data_bytes, begin)
        if number not in self._checked:
            if zlib.crc32(data, zlib.crc32(note)) != checksum:
                return None
            self._checked.add(number)
        told, identity = json.loads(note)
        if told != name:
            return None
        now = time.time()
        if now - max(found.st_atime, found.st_mtime) > _USED_AGAIN_S and not in_a_copy():
            with contextlib.suppress(OSError):
                os.utime(file, ns=(int(now * 1e9), found.st_mtime_ns))
        return KeptObject(data, identity, found.st_mtime)

    def _made(self, path: str) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o666)

    # -- room ---------------------------------------------------------------------------------------------------

    def _has_room(self, size: int) -> bool:
        """Take room for a file out of this process's share, or out of a new one."""
        if self._pid != os.getpid():  # a forked process has a share of its own
            self._pid, self._left, self._lock = os.getpid(), 0, threading.Lock()
        with self._lock:
            if size > self._left:
                share = max(size, min(_SHARE_BYTES, self.max_bytes // _FEWEST_SHARES))
                if size > self.max_bytes:
                    return False
                self._left += self._granted(min(share, self.max_bytes))
            if size > self._left:
                return False
            self._left -= size
            return True

    def _granted(self, share: int) -> int:
        """Return a share, after what is unused for longest was removed where there is no room for it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            taken = self._taken()
            if taken + share > self.max_bytes:
                taken = _removed(self._folder, int(_LEFT_AFTER_REMOVAL * self.max_bytes) - share)
            if taken + share > self.max_bytes:
                return 0
            (self._folder / ".taken").write_text(str(taken + share))
            return share

    def _taken(self) -> int:
        try:
            return int((self._folder / ".taken").read_text())
        except (OSError, ValueError):
            return sum(size for _, _, size in _files(self._folder))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        file = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | _OPEN, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile holds a copy of the descriptor
            os.close(file)


def _files(folder: Path) -> Iterator[tuple[float, str, int]]:
    """Give last use, path and size of every file that is kept; remove what was never finished."""
    with contextlib.suppress(OSError):
        for inner in [each for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]:
            for each in os.scandir(inner):
                with contextlib.suppress(OSError):
                    found = each.stat(follow_symlinks=False)
                    if each.name.endswith(_SUFFIX):
                        yield max(found.st_atime, found.st_mtime), each.path, found.st_size
                    elif each.name.endswith(_PARTIAL) and time.time() - found.st_mtime > _UNFINISHED_S:
                        os.unlink(each.path)


def _removed(folder: Path, most_bytes: int) -> int:
    """Remove the files unused for longest until the others take `most_bytes`; return what these take."""
    files = sorted(_files(folder))
    taken = sum(size for *_, size in files)
    for _, path, size in files:
        if taken <= most_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            taken -= size
    return taken
