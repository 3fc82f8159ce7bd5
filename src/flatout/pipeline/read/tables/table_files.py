"""The files of a table: found by path, pattern or URL, told apart by what their file systems know of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

from flatout.errors import BadTable

__all__ = ["FORMATS", "Paths", "TableFile", "found_files"]

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


@dataclass(frozen=True)
class TableFile:
    """One file.

    Attributes:
        path: as its file system has it.
        system: the file system, one of fsspec's.
        partition: what the names of its folders below the given one say (`year=2024`), as text.
    """

    path: str
    system: Any
    partition: tuple[tuple[str, str | None], ...] = ()

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
    def is_told_apart(self) -> bool:
        """Return whether the file system says when a file was written, or which version of it this is."""
        return any(part.partition("=")[0] in _CHANGING for part in self.identity())

    @property
    def is_local(self) -> bool:
        """Return whether it lies on a disk of this machine."""
        return "file" in (self.system.protocol if isinstance(self.system.protocol, tuple) else (self.system.protocol,))


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
    system, inner = _system(path, options)
    try:
        if any(sign in inner for sign in "*?["):
            names = [name for name in sorted(system.glob(inner)) if system.isfile(name)]
            above = os.path.commonpath([inner.split("*")[0].rpartition("/")[0] or "/"])
            return [TableFile(name, system, _partition(name, above)) for name in names]
        if system.isdir(inner):
            names = [name for name in sorted(system.find(inner)) if _is_of_table(name, inner)]
            return [TableFile(name, system, _partition(name, inner)) for name in names]
        system.info(inner)
    except OSError as error:
        raise _missing(path, error) from error
    return [TableFile(inner, system)]


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
    inner = PurePath(name.removeprefix(folder)).parts
    hidden = any(part.startswith((".", "_")) and "=" not in part for part in inner)
    return name.lower().endswith(_SUFFIXES) and not hidden


def _partition(name: str, folder: str) -> tuple[tuple[str, str | None], ...]:
    folders = PurePath(name.removeprefix(folder)).parts[:-1]
    pairs = [part.partition("=") for part in folders if "=" in part]
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, _, value in pairs)


def _missing(path: str, error: OSError) -> BadTable:
    return BadTable(
        f"{path} cannot be read ({getattr(error, 'strerror', None) or type(error).__name__}).",
        "A table is read from all of its files.",
        "Check the path, and that it may be read from here.",
    )
