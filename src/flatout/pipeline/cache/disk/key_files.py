"""What is told of files that a data set names: their sizes and times, not their content.

A file is told by size, time of change of content and of entry (`mtime`, `ctime`), and number (`inode`): what rewrites
it in place and sets its time back still moves `ctime`. A folder is told by all files below it, links followed,
and a name that is none in a folder that is one by the files beside.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from flatout.watch.script_signals import any_but_signals

__all__ = ["Allowance", "Files", "KeyLimits", "Untold", "digest"]

_PASSED_BY = {".flatout", ".git", "__pycache__"}  # change without the data changing
_REMOTE = re.compile(r"(?!file:)[a-zA-Z][a-zA-Z0-9+.-]+://")
_LONGEST_PATH = 4096
_TICK_NS = 20_000_000
"""A file written again within one tick of the kernel's clock shows the same times; a tick is 1 to 10 ms."""


class Untold(Exception):
    """Something that a sample depends on cannot be told: what, and through which names it is reached."""

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact
        self.names: list[str] = []  # innermost first

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.names))}: {self.fact}" if self.names else self.fact


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """How much may be looked at for one key; more than that is a reason to have none."""

    files: int = 2_000_000
    num_bytes: int = 16 * 1024**3  # of tensors and arrays
    seconds: float = 60.0


class Allowance:
    """What is left of the limits while one key is made."""

    def __init__(self, limits: KeyLimits) -> None:
        """Start the clock."""
        self._limits = limits
        self._files, self._bytes, self._steps = limits.files, limits.num_bytes, 0
        self._until = time.monotonic() + limits.seconds

    def step(self) -> None:
        """Count one object; look at the clock now and then.

        Raises:
            Untold: time is over.
        """
        self._steps += 1
        if not self._steps % 256 and time.monotonic() > self._until:
            raise Untold(f"there is more than can be read in {self._limits.seconds:.0f} s")

    def file(self, where: str) -> None:
        """Count one file below `where`.

        Raises:
            Untold: there are too many, or time is over.
        """
        self._files -= 1
        if self._files < 0:
            raise Untold(f"there are more than {self._limits.files} files, the last in {where}")
        self.step()

    def content(self, num_bytes: int) -> None:
        """Count bytes that are about to be read.

        Raises:
            Untold: there are too many.
        """
        self._bytes -= num_bytes
        if self._bytes < 0:
            raise Untold(f"there are more than {self._limits.num_bytes} bytes of arrays")


def digest(kind: str, *pieces: bytes) -> bytes:
    """Return 16 bytes that stand for `pieces`, in this order, as something of this kind."""
    whole = b"".join([b"%d:%b" % (len(piece), piece) for piece in (kind.encode(), *pieces)])
    return blake2b(whole, digest_size=16).digest()


class Files:
    """The files and folders named in one key, each looked at once."""

    def __init__(self, allowance: Allowance) -> None:
        """Count against `allowance`."""
        self._allowance = allowance
        self._folders: dict[str, bytes] = {}
        self._around: dict[str, bytes] = {}

    def encode(self, text: str) -> bytes:
        """Return what is there under the name `text`, nothing where it is no name of a file.

        Raises:
            Untold: it is a remote address, a device, or a folder with too many files.
        """
        self._allowance.step()
        if _REMOTE.match(text):
            raise Untold(f"names the remote address {text[:60]}")
        if not 0 < len(text) <= _LONGEST_PATH or not text.strip("/") or "\n" in text:
            return b""
        try:
            found = _settled(text)
        except any_but_signals(OSError, ValueError):
            return self._beside(os.path.dirname(text))
        self._allowance.file(text)
        if stat.S_ISREG(found.st_mode):
            return _facts(found)
        if not stat.S_ISDIR(found.st_mode):
            raise Untold(f"{text} is neither a file nor a folder")
        if text not in self._folders:
            self._folders[text] = self._folder(text)
        return self._folders[text]

    def _beside(self, folder: str) -> bytes:
        """Tell the files of a folder in which a name is none: `images/%05d.png` and a number make one."""
        if not folder.strip("/"):
            return b""
        if folder not in self._around:
            there = self._inside(folder) if "\0" not in folder and os.path.isdir(folder) else ()
            told = [os.fsencode(path) + b" " + _facts(found) for path, found in there if stat.S_ISREG(found.st_mode)]
            self._around[folder] = digest("beside", *told) if told else b""
        return self._around[folder]

    def _folder(self, top: str) -> bytes:
        told = blake2b(digest_size=16)
        seen: set[tuple[int, int]] = set()
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            told.update(b"/%s\0" % os.fsencode(os.path.relpath(folder, top)))
            for path, found in self._inside(folder):
                if not stat.S_ISDIR(found.st_mode):
                    told.update(b"%s\0%s\0" % (os.fsencode(os.path.basename(path)), _facts(found)))
                elif (found.st_dev, found.st_ino) not in seen:  # a link may lead back up
                    seen.add((found.st_dev, found.st_ino))
                    waiting.append(path)
        return told.digest()

    def _inside(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with os.scandir(folder) as found:
                names = sorted(one.name for one in found if one.name not in _PASSED_BY)
        except any_but_signals(OSError) as error:
            raise Untold(f"{folder} cannot be read ({error.strerror})") from None
        for name in names:
            self._allowance.file(folder)
            path = os.path.join(folder, name)
            try:
                yield path, _settled(path)
            except any_but_signals(OSError):  # a link to nowhere
                yield path, os.lstat(path)


def _facts(found: os.stat_result) -> bytes:
    return b"%d %d %d %d" % (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _settled(path: str) -> os.stat_result:
    """Return the facts on a file once they are such that writing it again would change them."""
    found = os.stat(path)
    if abs(time.time_ns() - found.st_ctime_ns) < _TICK_NS and stat.S_ISREG(found.st_mode):
        time.sleep(_TICK_NS / 1e9)
        found = os.stat(path)
    return found
