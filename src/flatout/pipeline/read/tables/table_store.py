"""Columns of a table on disk: converted once, under a key of all that they depend on, and mapped by who needs them."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flatout.errors import BadTable
from flatout.pipeline.cache.disk.entries import load, save
from flatout.pipeline.read.tables.collected_columns import KnownColumn
from flatout.pipeline.read.tables.column_kinds import ColumnKind
from flatout.pipeline.read.tables.table_columns import TableColumns
from flatout.units import format_bytes
from flatout.watch.script_signals import any_but_signals

__all__ = ["KnownTable", "TableStore", "key_of", "usual_folder"]

_FORM = 2  # of what is kept of a table
_MOST_OF_FREE = 0.9
_POLL_S = 0.05
_MOST_TRIES = 1000  # to lock a file that others remove; a file system may number one file anew at each look


@dataclass(frozen=True)
class KnownTable:
    """A table that was read: how many rows, its columns, and their arrays by place and part."""

    num_rows: int
    columns: tuple[KnownColumn, ...]
    arrays: Mapping[str, torch.Tensor]

    @property
    def num_bytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def usual_folder() -> Path:
    """Return where tables are kept for whom nobody names a folder: below `XDG_CACHE_HOME`, or `~/.cache`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    top = Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~")) / ".cache"
    return top / "flatout" / "tables"


class TableStore:
    """A folder of tables, one file each."""

    def __init__(self, folder: Path) -> None:
        """Make nothing yet."""
        self.folder = folder

    def make(self) -> None:
        """Make the folder.

        Raises:
            BadTable: it cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except any_but_signals(OSError) as error:
            raise self.refused(error) from error

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Let one process at a time look for a table and convert it; who is killed meanwhile holds nobody up.

        Raises:
            BadTable: the folder cannot be written.
        """
        self.make()
        path = self.folder / f".{key}.lock"
        try:
            file = _held_lock(path)
        except any_but_signals(OSError) as error:
            raise self.refused(error) from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if _is_at(file, path):
                    os.unlink(path)  # who waits for it sees that, and makes another one
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile holds a copy of the descriptor
            os.close(file)

    def find(self, key: str) -> KnownTable | None:
        """Return the table that is kept under a key, every byte of it checked; None where there is none."""
        stored = load(self.folder, key)
        if stored is None:
            return None
        try:
            return _known(stored.facts, stored.arrays)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError):  # pyarrow's own among them
            return None

    def has(self, key: str) -> bool:
        """Return whether there is a table under a key; `find` says whether it is whole."""
        return (self.folder / f"{key}.samples").exists()

    def keep(self, key: str, table: KnownTable) -> str:
        """Keep a table; return why not, an empty string where it is kept."""
        return save(self.folder, key, table.arrays, _facts(table), max_bytes=self._max_bytes())

    def refused(self, error: OSError, num_bytes: int = 0) -> BadTable:
        """Return what to say where the folder does not take a table."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = format_bytes(shutil.disk_usage(self.folder).free)
            return BadTable(
                f"The disk of {self.folder} is full: {free} are left, after {format_bytes(num_bytes)} of the table.",
                "A table that does not fit into the memory that it may use (max_bytes=) is kept there, and mapped.",
                "Name a folder on a larger disk by folder=, choose fewer columns=, or allow more memory by max_bytes=.",
            )
        return BadTable(
            f"{self.folder} cannot be written ({error.strerror or type(error).__name__}).",
            "A table is kept there where it does not fit into memory, or where several processes share it.",
            "Name another folder by folder=.",
        )

    def _max_bytes(self) -> int:
        """Return what all tables may take: nine tenths of what would be free without them."""
        with contextlib.suppress(OSError):
            taken = sum(each.stat().st_size for each in self.folder.glob("*.samples"))
            return int(_MOST_OF_FREE * (shutil.disk_usage(self.folder).free + taken))
        return 0


def _held_lock(path: Path) -> int:
    """Return a descriptor that has the lock of the file at `path`, once nobody else has it."""
    for tries_left in reversed(range(_MOST_TRIES)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            while not _locked(file):
                time.sleep(_POLL_S)
            if _is_at(file, path) or not tries_left:
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # it was removed by who had it before
    raise AssertionError("the last try returns")


def _is_at(file: int, path: Path) -> bool:
    """Return whether a descriptor is of the file that lies at `path` now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def key_of(*parts: Any) -> str:
    """Return a name for what these parts say."""
    mark = hashlib.blake2b(digest_size=16)
    for part in (_FORM, *parts):
        mark.update(repr(part).encode("utf-8", "surrogatepass") + b"\0")
    return mark.hexdigest()


def _facts(table: KnownTable) -> dict[str, object]:
    columns = [
        [one.name, one.kind.form, str(one.kind.dtype), list(one.kind.shape), list(one.parts), one.start]
        for one in table.columns
    ]
    return {"rows": table.num_rows, "columns": columns}


def _known(facts: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> KnownTable:
    columns = []
    for name, form, dtype, shape, parts, start in facts["columns"]:
        kind = ColumnKind(form, getattr(torch, dtype.removeprefix("torch.")), tuple(shape))
        columns.append(KnownColumn(name, kind, tuple(parts), start))
    TableColumns(facts["rows"], columns, arrays)  # which fit each other
    return KnownTable(facts["rows"], tuple(columns), arrays)
