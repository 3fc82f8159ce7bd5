"""Files that are read again and again by functions that do nothing else: what they returned, kept.

A file is known by its device, number, size and times. What was read is handed out as a copy for as long as these are
what they were when it was read, provided that the file had not been written for some seconds then: a second write in
one tick of the file system's clock shows in none of them.
"""

import os
import stat
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.kept.call_key import given
from flatout.kept.kept_result import KeptResult, Unkeepable
from flatout.kept.reports import Reports
from flatout.kept.row_outputs import Fits

__all__ = ["KeptReads"]

_MOST_KNOWN = 1_000_000  # files
_RESTED_NS = 3_000_000_000  # since a file was written, before what is read is kept
_TELLING = frozenset(  # file systems of this machine: others may change elsewhere, and tell late
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "squashfs", "erofs")
)
_PATHS = (str, type(Path()))

Signature = tuple[int, ...]


@dataclass(eq=False)
class _Read:
    """A file that was read one way: as it was, and what came of it."""

    signature: Signature
    kinds: list[type]  # that were given as arguments, by identity
    result: KeptResult


class KeptReads:
    """Answers functions that read a file where the file is as it was."""

    def __init__(self, reports: Reports, acted: Callable[[], None], fits: Fits) -> None:
        """Keep nothing yet; `acted` is told of each answer, `fits` says whether there is memory for so many bytes."""
        self.off = False
        self._reports, self._acted, self._fits = reports, acted, fits
        self._read: OrderedDict[object, _Read] = OrderedDict()
        self._mapped: set[tuple[int, int]] = set()  # files that somebody may write to without a trace
        self._telling: dict[int, bool] = {}  # by device
        weak = weakref.ref(self)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            kept = weak() if event == "mmap.__new__" else None
            if kept is not None and args:
                kept._is_mapped(args[0])

        sys.addaudithook(hook)
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (known := forked()) and known())

    def _forked(self) -> None:
        self.off = True  # each worker would keep as much once more

    def reading(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for a function that reads a file, the first argument, and is called `name`."""

        def read(*args: Any, **kwargs: Any) -> Any:
            if self.off or not args or type(args[0]) not in _PATHS or kwargs.get("mmap_mode") or kwargs.get("mmap"):
                return original(*args, **kwargs)
            path = os.fspath(args[0])
            what = given(args[1:], kwargs)
            before = _signature(path)
            if what is None or before is None or not all(isinstance(each, type) for each in what.objects):
                return original(*args, **kwargs)
            key = (name, path, what.key)
            known = self._read.get(key)
            if known is None or known.signature != before:
                result = original(*args, **kwargs)
                if self._may_keep(path, before):
                    self._keep(key, before, what.objects, path, result)
                return result
            if before[:2] in self._mapped:
                return original(*args, **kwargs)
            if self._reports.pace.due:
                return self._proven(name, known, path, original, args, kwargs)
            self._acted()
            return known.result.make()

        return read

    def _may_keep(self, path: str, before: Signature) -> bool:
        """Return whether a file that was read just now is as it was, and whether a later write would show."""
        rested = abs(time.time_ns() - max(before[3:])) > _RESTED_NS and before[:2] not in self._mapped
        return rested and _signature(path) == before and self._tells(path, before[0])

    def _keep(self, key: object, before: Signature, kinds: list[type], path: str, result: Any) -> None:
        try:
            kept = KeptResult(result)
        except Unkeepable as error:
            self._reports.left(f"what is read from {os.path.basename(path)} is not kept: {error}")
            return
        if not self._fits(kept.num_bytes, kept):
            self._reports.left("what is read from files does not fit into memory")
            return
        if len(self._read) >= _MOST_KNOWN:
            self._read.popitem(last=False)
        self._read[key] = _Read(before, kinds, kept)

    def _proven(
        self,
        name: str,
        known: _Read,
        path: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Read the file all the same, and hold what was kept against that.

        Raises:
            ChangedTooLate: it was written to without a trace, and the training is not to go on after that.
        """
        with self._reports.pace.proving():
            result = original(*args, **kwargs)
            same = known.result.is_same(result)
        if same or _signature(path) != known.signature:
            return result
        self.off = True
        self._read.clear()
        reason = f"{name} read other values from {os.path.basename(path)} than were kept of it"
        why = "Something writes to the file and leaves its size and times as they are."
        self._reports.wrong(reason, why, "kept-reads")
        return result

    def _is_mapped(self, number: Any) -> None:
        """Note a file that is mapped into memory: writes to that need not show in its times."""
        try:
            found = os.fstat(number)
        except (OSError, TypeError):
            return
        self._mapped.add((found.st_dev, found.st_ino))

    def _tells(self, path: str, device: int) -> bool:
        """Return whether a file lies on a file system of this machine, which tells of each write in good time."""
        if device not in self._telling:
            kind = _kind_of(device)
            self._telling[device] = kind in _TELLING
            if kind not in _TELLING:
                self._reports.left(f"{os.path.basename(path)} lies on a file system that may tell late ({kind})")
        return self._telling[device]


def _signature(path: str) -> Signature | None:
    """Return what tells whether a file was written or replaced, None for what is no plain file with contents."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _kind_of(device: int) -> str:
    """Return the kind of the file system on a device, "unknown" where the system does not tell."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split()
                if words[2] == wanted:
                    return words[words.index("-") + 1]
    except (OSError, ValueError, IndexError):
        pass
    return "unknown"
