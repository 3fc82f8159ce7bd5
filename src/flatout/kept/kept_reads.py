"""Files that are read again and again by functions that do nothing else: what they returned, kept.

A file is known by its device, number, size and times. What was read is handed out as a copy for as long as these are
what they were when it was read, provided that the file had not been written for some seconds then: a second write in
one tick of the file system's clock shows in none of them.
"""

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.kept.archive_directories import is_plain_file
from flatout.kept.call_key import given
from flatout.kept.kept_result import KeptResult, Unkeepable
from flatout.kept.known_files import FileIdentity, KnownFiles, identity_of
from flatout.kept.reports import Reports
from flatout.kept.row_outputs import Fits

__all__ = ["KeptReads"]

_MOST_KNOWN = 1_000_000  # files
_PATHS = (str, type(Path()))


@dataclass(eq=False)
class _Read:
    """A file that was read one way: as it was, and what came of it."""

    signature: FileIdentity
    kinds: list[type]  # that were given as arguments, by identity
    result: KeptResult


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is read: by what, its path, how it is asked for its state, and that state."""

    name: str
    path: str
    opened: str | int
    before: FileIdentity


class KeptReads:
    """Answers functions that read a file where the file is as it was."""

    def __init__(self, reports: Reports, acted: Callable[[], None], fits: Fits) -> None:
        """Keep nothing yet; `acted` is told of each answer, `fits` says whether there is memory for so many bytes."""
        self.off = False
        self._reports, self._acted, self._fits = reports, acted, fits
        self._read: OrderedDict[object, _Read] = OrderedDict()
        self._files = KnownFiles(reports.left)
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
            before = identity_of(path)
            if what is None or before is None or not all(isinstance(each, type) for each in what.objects):
                return original(*args, **kwargs)
            file = _File(name, path, path, before)
            return self._answer(file, (name, path, what.key), what.objects, lambda: original(*args, **kwargs))

        return read

    def members(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for `NpzFile.__getitem__`, which reads and unpacks an array of an archive each time."""

        def read(archive: Any, key: Any) -> Any:
            opened = getattr(archive.zip, "fp", None)
            if self.off or type(key) is not str or opened is None or not is_plain_file(opened):
                return original(archive, key)
            before = identity_of(opened.fileno())
            if before is None:
                return original(archive, key)
            file = _File("numpy.load", str(opened.name), opened.fileno(), before)
            known = ("npz", before[:2], key, archive.allow_pickle, getattr(archive, "max_header_size", 0))
            return self._answer(file, known, [], lambda: original(archive, key))

        return read

    def _answer(self, file: "_File", key: object, kinds: list[Any], read: Callable[[], Any]) -> Any:
        """Return what was read from a file that is as it was, or read it, by `read()`."""
        known = self._read.get(key)
        if known is None or known.signature != file.before:
            result = read()
            archive = isinstance(result, Mapping) and not isinstance(result, dict)  # of NumPy's: see `members`
            if not archive and self._files.may_keep(file.opened, file.path, file.before):
                self._keep(key, file.before, kinds, file.path, result)
            return result
        if self._files.is_mapped(file.before):
            return read()
        if self._reports.pace.due:
            return self._proven(file, known, read)
        self._acted()
        return known.result.make()

    def _keep(self, key: object, before: FileIdentity, kinds: list[type], path: str, result: Any) -> None:
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

    def _proven(self, file: "_File", known: _Read, read: Callable[[], Any]) -> Any:
        """Read the file all the same, and hold what was kept against that.

        Raises:
            ChangedTooLate: it was written to without a trace, and the training is not to go on after that.
        """
        with self._reports.pace.proving():
            result = read()
            same = known.result.is_same(result)
        if same or identity_of(file.opened) != known.signature:
            return result
        self.off = True
        self._read.clear()
        reason = f"{file.name} read other values from {os.path.basename(file.path)} than were kept of it"
        why = "Something writes to the file and leaves its size and times as they are."
        self._reports.wrong(reason, why, "kept-reads")
        return result
