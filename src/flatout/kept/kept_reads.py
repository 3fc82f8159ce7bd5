"""Files that are read again and again by functions that do nothing else: what they returned, kept.

A file is known by its device, number, size and times. What was read is handed out as a copy for as long as these are
what they were when it was read, provided that the file had not been written for some seconds then: a second write in
one tick of the file system's clock shows in none of them. What runs code while it reads, or warns, is never kept.
"""

import os
import sys
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
from flatout.kept.library_functions import is_open_plain
from flatout.kept.reports import Reports
from flatout.kept.row_outputs import Fits
from flatout.kept.torch_loads import load_settings
from flatout.kept.warned_calls import Warnings

__all__ = ["KeptReads"]

_MOST_KNOWN = 1_000_000  # files
_PATHS = (str, type(Path()))
_MEMBER = "numpy.load()[key]"
_KINDS = (bool, int, float, complex, str, bytes)
_ENCODINGS = (None, "bytes", "ascii", "latin1", "latin-1", "utf-8", "utf8")  # others may be the script's own
_NPY = b"\x93NUMPY"


@dataclass(eq=False)
class _Read:
    """A file that was read one way: as it was, and what came of it."""

    signature: FileIdentity
    kinds: list[type]  # that were given as arguments, by identity
    result: KeptResult


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is read: by what, its path, how it is asked for its state, and that state.

    Attributes:
        is_npy: whether it has to be one of NumPy's, for a pickle would be read, too.
    """

    name: str
    path: str
    opened: str | int
    before: FileIdentity
    is_npy: bool = False


class KeptReads:
    """Answers functions that read a file where the file is as it was."""

    def __init__(self, reports: Reports, acted: Callable[[], None], fits: Fits) -> None:
        """Keep nothing yet; `acted` is told of each answer, `fits` says whether there is memory for so many bytes."""
        self.off = False
        self._reports, self._acted, self._fits = reports, acted, fits
        self._read: OrderedDict[object, _Read] = OrderedDict()
        self._files = KnownFiles(reports.left)
        self._warned: set[str] = set()  # names of functions
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (known := forked()) and known())

    def _forked(self) -> None:
        self.off = True  # each worker would keep as much once more

    def reading(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for a function that reads a file, the first argument, and is called `name`."""
        is_torchs, is_numpys = name == "torch.load", name == "numpy.load"

        def read(*args: Any, **kwargs: Any) -> Any:
            if not args or type(args[0]) not in _PATHS or not self._may_answer(name, kwargs):
                return original(*args, **kwargs)
            path = os.fspath(args[0])
            what = given(args[1:], kwargs)
            before = identity_of(path)
            settings = load_settings(kwargs) if is_torchs else ()
            if what is None or before is None or settings is None or not all(map(_is_kind, what.objects)):
                return original(*args, **kwargs)
            may_unpickle = is_numpys and bool(kwargs.get("allow_pickle") or args[2:3] not in ((), (False,)))
            file = _File(name, path, path, before, may_unpickle)
            key = (name, path, what.key, settings, os.geteuid())
            return self._answer(file, key, what.objects, lambda: original(*args, **kwargs))

        return read

    def _may_answer(self, name: str, asked: Mapping[str, Any]) -> bool:
        """Return whether a function may be answered at all just now."""
        if self.off or name in self._warned or asked.get("mmap_mode") or asked.get("mmap"):
            return False
        return asked.get("encoding") in _ENCODINGS and is_open_plain() and not self._files.is_heard()

    def members(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for `NpzFile.__getitem__`, which reads and unpacks an array of an archive each time."""

        def read(archive: Any, key: Any) -> Any:
            opened = getattr(archive.zip, "fp", None)
            if type(key) is not str or opened is None or not is_plain_file(opened) or not self._may_answer(_MEMBER, {}):
                return original(archive, key)
            before, entry = identity_of(opened.fileno()), _entry(archive.zip, key)
            if before is None or entry is None:
                return original(archive, key)
            file = _File(_MEMBER, str(opened.name), opened.fileno(), before)
            known = ("npz", before[:2], key, entry, archive.allow_pickle, getattr(archive, "max_header_size", 0))
            return self._answer(file, known, [], lambda: original(archive, key))

        return read

    def _answer(self, file: "_File", key: object, kinds: list[Any], read: Callable[[], Any]) -> Any:
        """Return what was read from a file that is as it was, or read it, by `read()`."""
        known = self._read.get(key)
        if known is None or known.signature != file.before:
            with Warnings() as warned:
                result = read()
            archive = isinstance(result, Mapping) and not isinstance(result, dict)  # of NumPy's: see `members`
            if warned.seen:
                self._warned.add(file.name)  # the next file's warning may have the same words, and not come by
                self._reports.left(f"{file.name} warns of what it reads")
            elif not archive and self._files.may_keep(file.opened, file.path, file.before) and _is_of_kind(file):
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


def _is_kind(value: Any) -> bool:
    """Return whether something is a type of numbers or strings, of Python's or NumPy's."""
    numpy = sys.modules.get("numpy")
    if not isinstance(value, type) or numpy is None:
        return False
    return value in _KINDS or (issubclass(value, numpy.generic) and getattr(numpy, value.__name__, None) is value)


def _is_of_kind(file: _File) -> bool:
    if not file.is_npy:
        return True
    with open(file.opened, "rb") as opened:
        return opened.read(len(_NPY)) == _NPY


def _entry(archive: Any, key: str) -> tuple[Any, ...] | None:
    """Return where a member of an archive lies, and what its directory says of it, as it was when it was opened."""
    for name in (key, f"{key}.npy"):
        try:
            found = archive.getinfo(name)
        except KeyError:
            continue
        return found.header_offset, found.CRC, found.compress_size, found.file_size, found.compress_type
    return None
