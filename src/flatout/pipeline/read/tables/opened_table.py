"""A table as it is opened: found on disk, or read, and kept where it is too large or where others need it, too."""

import contextlib
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.errors import BadTable
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.ranks import local_ranks
from flatout.pipeline.read.tables.collected_columns import CollectedColumns
from flatout.pipeline.read.tables.column_kinds import kind_of
from flatout.pipeline.read.tables.table_files import Paths, TableFile, found_files, is_told_apart, of_each
from flatout.pipeline.read.tables.table_scan import Columns, TableScan
from flatout.pipeline.read.tables.table_store import KnownTable, TableStore, key_of, usual_folder
from flatout.watch.script_signals import any_but_signals

__all__ = ["MAPPED", "FilesOfTable", "OpenedTable", "Reopened", "TableRequest", "keep", "opened_table"]

MAPPED = "mapped from"
_TICK_S, _WHOLE_SECONDS_S = 0.05, 2.0
"""How long a file has rested by when its time tells it from a later one: file systems count in ticks, or in seconds."""


@dataclass(frozen=True)
class TableRequest:
    """What a table is asked for: everything that its rows depend on, and where they may be kept."""

    paths: Paths
    columns: Columns = None
    where: Any = None
    format: str | None = None
    folder: Path | None = None
    max_bytes: int | None = None
    storage_options: dict[str, Any] | None = field(default=None, repr=False)

    def files(self) -> list[TableFile]:
        """Return the files there are now."""
        return found_files(self.paths, self.storage_options)

    def scan(self, files: Sequence[TableFile]) -> TableScan:
        """Return what reads them."""
        return TableScan(files, self.columns, self.condition, self.format)

    @property
    def condition(self) -> Any:
        """Return `where` as an expression of pyarrow's."""
        if not isinstance(self.where, list | tuple):
            return self.where
        import pyarrow.parquet

        try:
            return pyarrow.parquet.filters_to_expression(list(self.where))
        except any_but_signals() as error:
            raise BadTable(
                f"where={self.where!r} is no condition: {error}.",
                "A list of tuples is read as pyarrow.parquet.filters_to_expression does.",
                'Write it like [("year", ">=", 2024)], or as an expression of pyarrow.',
            ) from error

    @property
    def store(self) -> TableStore:
        """Return where the table may be kept."""
        return TableStore(self.folder or usual_folder())


@dataclass(frozen=True)
class Reopened:
    """What another process has: the key of its rows, and whether they are kept on disk."""

    key: str
    kept: bool


@dataclass(frozen=True)
class OpenedTable:
    """A table that was opened.

    Attributes:
        key: stands for its rows; None where files cannot be told from later ones.
        place: where it lies, in words.
    """

    known: KnownTable
    key: str | None
    place: str


@dataclass(frozen=True)
class FilesOfTable:
    """The files of a table, and what each is known by when it is opened."""

    files: list[TableFile]
    identities: list[tuple[str, ...]]

    @classmethod
    def now(cls, request: TableRequest) -> "FilesOfTable":
        """Look at the files."""
        files = request.files()
        _rest(files)
        return cls(files, of_each(TableFile.identity, files))

    @property
    def changed(self) -> list[str]:
        """Return the files that are others by now."""
        now = of_each(TableFile.identity, self.files)
        return [file.path for file, was, one in zip(self.files, self.identities, now, strict=True) if one != was]

    def key(self, request: TableRequest) -> str | None:
        """Return what stands for the rows; None where files cannot be told from later ones."""
        import pyarrow as pa

        if not all(map(is_told_apart, self.identities)):
            return None
        named = request.columns
        columns = [(name, str(each)) for name, each in named.items()] if isinstance(named, Mapping) else named
        asked = None if request.where is None else pickle.dumps(request.condition, protocol=4)
        paths = [(file.path, str(file.system.protocol), file.partition) for file in self.files]
        return key_of(paths, self.identities, columns and list(columns), asked, request.format, pa.__version__)


def opened_table(request: TableRequest, again: Reopened | None) -> OpenedTable:
    """Find a table on disk, or read it; `again`: the rows that are wanted.

    Raises:
        BadTable: it cannot be read, or is another one by now.
    """
    store = request.store
    if again is not None and again.kept and (found := store.find(again.key)) is not None:
        return OpenedTable(found, again.key, f"{MAPPED} {store.folder}")
    files = FilesOfTable.now(request)
    key = files.key(request)
    if again is not None and key != again.key:
        raise _changed([file.path for file in files.files], "since the table was opened in the process that sent it")
    if key is None or not (request.folder or local_ranks() > 1 or store.has(key)):
        return _read(request, files, key)
    with store.alone(key):
        found = store.find(key)
        return _read(request, files, key, keep_it=True) if found is None else _mapped(found, key, store)


def keep(request: TableRequest, key: str, known: KnownTable) -> bool:
    """Keep a table for other processes; return whether that is so."""
    try:
        with request.store.alone(key):
            return request.store.has(key) or not request.store.keep(key, known)
    except BadTable:
        return False


def _read(request: TableRequest, files: FilesOfTable, key: str | None, *, keep_it: bool = False) -> OpenedTable:
    """Read the files; `keep_it`: keep the table on disk, nobody else does so meanwhile."""
    scan, store, left = request.scan(files.files), request.store, MemoryBudget(request.max_bytes).left
    kinds = [kind_of(each.type) for each in scan.schema]
    collected = CollectedColumns(scan.schema.names, kinds, scan.num_rows, left)
    with contextlib.ExitStack() as until_kept:

        def too_large() -> KnownTable | None:
            """Go on in files, alone; return the table where another process has kept it by then."""
            if key is not None and not keep_it:
                until_kept.enter_context(store.alone(key))
                if (found := store.find(key)) is not None:
                    return found
            with _on_disk(store, collected):
                store.make()
                collected.to_files(store.folder)
            return None

        if scan.least_bytes > left and (found := too_large()) is not None:
            return _mapped(found, key, store)
        for arrays in scan.batches():
            with _on_disk(store, collected):
                collected.add(arrays)
            if collected.in_memory and not collected.fits and (found := too_large()) is not None:
                return _mapped(found, key, store)
        if changed := files.changed:
            raise _changed(changed, "while the table was read")
        num_rows, in_memory = collected.num_rows, collected.in_memory
        known = KnownTable(num_rows, *collected.finish())
        if in_memory and not keep_it:
            return OpenedTable(known, key, "in memory")
        return _kept(known, key, store, in_memory)


def _kept(known: KnownTable, key: str | None, store: TableStore, in_memory: bool) -> OpenedTable:
    """Return a table that is kept under its key where that can be; else it stays where it is."""
    reason = "its files cannot be told from later ones" if key is None else store.keep(key, known)
    if key is not None and not reason and (found := store.find(key)) is not None:
        return _mapped(found, key, store)
    place = "in memory" if in_memory else f"in files of {store.folder} that end with the process"
    return OpenedTable(known, key, f"{place} (not kept: {reason or 'it could not be read again'})")


def _mapped(known: KnownTable, key: str | None, store: TableStore) -> OpenedTable:
    return OpenedTable(known, key, f"{MAPPED} {store.folder}")


@contextlib.contextmanager
def _on_disk(store: TableStore, collected: CollectedColumns) -> Iterator[None]:
    try:
        yield
    except any_but_signals(OSError) as error:
        raise store.refused(error, collected.num_bytes) from error


def _rest(files: Sequence[TableFile]) -> None:
    """Wait until a file that was just written would have another time if it were written again."""
    for path in (file.path for file in files if file.is_local):
        with contextlib.suppress(OSError):
            written_ns = os.stat(path).st_mtime_ns
            tick_s = _TICK_S if written_ns % 10**9 else _WHOLE_SECONDS_S
            time.sleep(min(tick_s, max(0.0, tick_s - (time.time() - written_ns / 1e9))))


def _changed(paths: list[str], when: str) -> BadTable:
    return BadTable(
        f"{len(paths)} files changed {when} (the first: {paths[0]}).",
        "Its rows may be of two versions.",
        "Open the table once they are written.",
    )
