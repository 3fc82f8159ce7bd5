"""The files of a table: found by path, pattern or URL, told apart by what their file systems know of them."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote

from flatout.errors import BadTable

__all__ = ["FORMATS", "FileStorage", "Paths", "TableFile", "found_files", "is_told_apart", "of_each"]

_Result = TypeVar("_Result")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

FORMATS = {
    "parquet": (".parquet", ".pq", ".parq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
}
"""The suffixes of each format."""

_SUFFIXES = tuple(suffix for suffixes in FORMATS.values() for suffix in suffixes)
_TOLD = ("size", "mtime", "LastModified", "last_modified", "updated", "created", "ETag", "etag", "generation", "ino")
_CHANGING = set(_TOLD) - {"size", "ino"}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SIGNS = "*?["  # of a pattern
_AT_ONCE = 32  # files of a remote storage that are asked about at the same time


class FileStorage:
    """A file system of fsspec's, made anew in a forked process: its loop and its connections are the parent's.

    Attributes:
        inner: the path that it was found by, as the file system has it.
    """

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        """Find the file system of a path or URL.

        Raises:
            BadTable: fsspec knows none.
        """
        self._path, self._options = path, options
        self._pid = os.getpid()
        self._system, self.inner = _system(path, options)

    @property
    def system(self) -> Any:
        """Return the file system of this process."""
        if self._pid != os.getpid():
            self._system, _ = _system(self._path, self._options)
            self._pid = os.getpid()
        return self._system


@dataclass(frozen=True)
class TableFile:
    """One file.

    Attributes:
        path: as its file system has it.
        storage: where it lies.
        partition: what the names of its folders below the given one say (`year=2024`), as text.
    """

    path: str
    storage: FileStorage
    partition: tuple[tuple[str, str | None], ...] = ()

    @property
    def system(self) -> Any:
        """Return its file system, one of fsspec's."""
        return self.storage.system

    def identity(self) -> tuple[str, ...]:
        """Return what is another one where the file was written again: size, time, ETag.

        Raises:
            BadTable: it is not there any more.
        """
        try:
            self.system.invalidate_cache()
            info = self.system.info(self.path)
        except OSError as error:
            raise _missing(self.path, error) from error
        return tuple(f"{name}={info[name]}" for name in _TOLD if info.get(name) is not None)

    @property
    def is_local(self) -> bool:
        """Return whether it lies on a disk of this machine."""
        return "file" in (self.system.protocol if isinstance(self.system.protocol, tuple) else (self.system.protocol,))


def is_told_apart(identity: tuple[str, ...]) -> bool:
    """Return whether an identity says when a file was written, or which version of it this is."""
    return any(part.partition("=")[0] in _CHANGING for part in identity)


def of_each(function: Callable[[TableFile], _Result], files: Sequence[TableFile]) -> list[_Result]:
    """Return what a function says of each file; of many at the same time where their storage waits, and allows it."""
    if len(files) < 2 or not all(getattr(file.system, "async_impl", False) for file in files):
        return [function(file) for file in files]
    with ThreadPoolExecutor(min(_AT_ONCE, len(files)), "flatout-table-files") as threads:
        return list(threads.map(function, files))


def found_files(paths: Paths, options: dict[str, Any] | None) -> list[TableFile]:
    """Return the files that `paths` name, in the order of the names, those of a folder sorted.

    Raises:
        BadTable: there is none, or no way to them.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found = [file for each in listed for file in _of_path(os.fspath(each), options or {})]
    if not found:
        named = ", ".join(map(str, listed[:3])) or "an empty list"
        raise BadTable(
            f"0 files of a table found: {named}.",
            "A folder or a pattern matches no file whose name ends with one of " + ", ".join(_SUFFIXES) + ".",
            "Check the path, or name the files themselves.",
        )
    return found


def _of_path(path: str, options: dict[str, Any]) -> list[TableFile]:
    storage = FileStorage(path, options)
    system, inner = storage.system, storage.inner
    try:
        if any(sign in inner for sign in _SIGNS):
            first = min(at for at in map(inner.find, _SIGNS) if at >= 0)
            above = inner[:first].rpartition("/")[0]
            found = system.glob(inner, detail=True)
            names = [name for name in sorted(found) if found[name].get("type") == "file" or system.isfile(name)]
            return [TableFile(name, storage, _partition(name, above)) for name in names]
        if system.isdir(inner):
            names = [name for name in sorted(system.find(inner)) if _is_of_table(name, inner)]
            return [TableFile(name, storage, _partition(name, inner)) for name in names]
        system.info(inner)
    except OSError as error:
        raise _missing(path, error) from error
    return [TableFile(inner, storage)]


def _system(path: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the file system of a path or URL, and how that calls it."""
    import fsspec

    path = path if "://" in path else os.path.abspath(os.path.expanduser(path))
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(path, **options)
    except ImportError as error:
        raise BadTable(
            f"{path} needs a package that is missing: {error}.",
            "flatout reads URLs through fsspec, which has a package of its own for each kind of storage.",
            "Install it (pip install s3fs, gcsfs, adlfs ...), or copy the files to a disk.",
        ) from error
    except ValueError as error:
        raise BadTable(f"{path} is no URL that fsspec knows: {error}.", "", "Check the part before ://.") from error
    return found


def _is_of_table(name: str, folder: str) -> bool:
    hidden = any(part.startswith((".", "_")) and "=" not in part for part in _below(name, folder))
    return name.lower().endswith(_SUFFIXES) and not hidden


def _partition(name: str, folder: str) -> tuple[tuple[str, str | None], ...]:
    pairs = [part.partition("=") for part in _below(name, folder)[:-1] if "=" in part]
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, _, value in pairs)


def _below(name: str, folder: str) -> tuple[str, ...]:
    """Return the parts of a file's path below a folder; its name alone where it does not lie there."""
    parts, above = PurePosixPath(name).parts, PurePosixPath(folder).parts
    return parts[len(above) :] if parts[: len(above)] == above else parts[-1:]


def _missing(path: str, error: OSError) -> BadTable:
    return BadTable(
        f"{path} cannot be read ({getattr(error, 'strerror', None) or type(error).__name__}).",
        "A table is read from all of its files.",
        "Check the path, and that it may be read from here.",
    )
