"""A table as pyarrow reads it: files of one schema, columns and a condition, batches of rows in order."""

import contextlib
import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flatout.errors import BadTable
from flatout.pipeline.read.tables.column_kinds import kind_of
from flatout.pipeline.read.tables.condition_columns import columns_of
from flatout.pipeline.read.tables.folder_columns import folder_types, folder_value
from flatout.pipeline.read.tables.table_files import TableFile, of_each
from flatout.pipeline.read.tables.table_formats import format_of, scan_options
from flatout.watch.script_signals import any_but_signals

__all__ = ["Columns", "TablePiece", "TableScan", "arrow_types"]

Columns = Sequence[str] | Mapping[str, Any] | None

_BATCH_ROWS, _FEWEST_ROWS = 1 << 17, 64
_BATCH_BYTES = 32 * 1024**2  # of a batch: several are read ahead, and a row may be a large image
_AHEAD = {"batch_readahead": 8, "fragment_readahead": 4}


def arrow_types(columns: Columns) -> dict[str, Any]:
    """Return the types that columns are to have, by name, where some are asked for."""
    import pyarrow as pa

    if not isinstance(columns, Mapping):
        return {}
    wanted = {}
    for name, each in columns.items():
        if each is None:
            continue
        try:
            wanted[name] = (
                each if isinstance(each, pa.DataType) else pa.type_for_alias(str(each).removeprefix("torch."))
            )
        except ValueError as error:
            raise BadTable(
                f"Column {name!r} cannot be {each!r}: {error}.", "", "Name a type of Arrow: float32, int64, string."
            ) from error
    return wanted


@dataclass(frozen=True)
class _Fragment:
    """A file as pyarrow has it, with what the names of its folders say, and the type of each of its columns."""

    file: TableFile
    fragment: Any
    condition: Any
    schema: Any

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        return dict(zip(self.schema.names, self.schema.types, strict=True))


class TableScan:
    """Reads the chosen columns of all rows that a condition leaves.

    Attributes:
        schema: of what is read.
        types: of the columns that are turned into another type while they are read.
    """

    def __init__(self, files: Sequence[TableFile], columns: Columns, where: Any, kind: str | None) -> None:
        """Look at the schema of each file.

        Raises:
            BadTable: files are of several schemas or formats, or damaged; there is no such column.
        """
        import pyarrow as pa

        self.types, self._where, self._pid = arrow_types(columns), where, os.getpid()
        self._format = format_of(files, kind, self.types)
        folders = folder_types(files)
        self._fragments = of_each(functools.partial(self._inspected, folders=folders), files)
        self._whole = self._fragments[0].schema
        names = self._chosen(columns)
        self._read = dict.fromkeys([*names, *columns_of(where, self._all_columns())])
        self._check()
        types = self._fragments[0].types
        self.schema = pa.schema([pa.field(name, self.types.get(name, types[name])) for name in names])

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of some rows after the other.

        Raises:
            BadTable: a file is damaged, or holds what a column's type has no room for.
        """
        try:
            for schema, alike in itertools.groupby(self._fragments, self._schema_of):
                scanner = self._scanner(schema, [each.fragment for each in alike])
                for batch in scanner.to_batches():
                    yield self._typed(batch)
        except BadTable:
            raise
        except any_but_signals() as error:
            raise self._located(error) from error

    @property
    def pieces(self) -> list["TablePiece"]:
        """Return the row groups of all files, and other files whole."""
        found = []
        for at, each in enumerate(self._fragments):
            split = getattr(each.fragment, "split_by_row_group", None)
            inner = [each.fragment] if split is None else split()
            schema = self._schema_of(each)
            found += [TablePiece(self, each, at, fragment, number, schema) for number, fragment in enumerate(inner)]
        return found

    @functools.cached_property
    def num_rows(self) -> int:
        """Return how many rows there are, 0 where no file says that without being read."""
        if self._where is not None or self._format.default_extname != "parquet":
            return 0
        return sum(int(each.fragment.metadata.num_rows) for each in self._fragments)

    @functools.cached_property
    def least_bytes(self) -> int:
        """Return what all rows take at least, as far as files tell without being read."""
        return self.num_rows * sum(kind_of(field.type).row_bytes for field in self.schema)

    def _scanner(self, schema: Any, fragments: list[Any], names: Sequence[str] | None = None) -> Any:
        import pyarrow.dataset as ds

        options = scan_options(self._format)
        whole = ds.FileSystemDataset(fragments, schema, self._format)
        more = {} if options is None else {"fragment_scan_options": options}
        try:
            return whole.scanner(
                columns=self.schema.names if names is None else names,
                filter=self._where,
                batch_size=self._batch_rows,
                **_AHEAD,
                **more,
            )
        except any_but_signals() as error:
            raise BadTable(
                f"where= does not suit the table: {str(error).splitlines()[0][:300]}.",
                f"Its columns are {', '.join(map(repr, schema.names[:20]))}.",
                "Check the names and types in where=.",
            ) from error

    def _schema_of(self, fragment: _Fragment) -> Any:
        """Return the schema that a file is read by: columns are of the type that they have there, and cast later.

        A value that goes through the type of another file could be rounded on its way.
        """
        import pyarrow as pa

        types = fragment.types
        own = {name: types[name] for name in self._read if name in types}
        fields = [field.with_type(own.get(field.name, field.type)) for field in self._whole]
        if self._where is not None:  # which goes through all of them, those that are not read as nulls
            fields = [field.with_type(_filterable(field.type)) for field in fields]
        found = pa.schema(fields)
        return self._whole if found == self._whole else found

    def _all_columns(self) -> Any:
        """Return a schema of all columns that any file has."""
        import pyarrow as pa

        added = {name: kind for each in self._fragments for name, kind in each.types.items()}
        fields = [pa.field(name, kind) for name, kind in added.items() if name not in self._types]
        return pa.schema([*self._whole, *fields])

    @property
    def _types(self) -> dict[str, Any]:
        return self._fragments[0].types

    @functools.cached_property
    def _batch_rows(self) -> int:
        """Return how many rows are read at a time."""
        if self._format.default_extname != "parquet":
            return _BATCH_ROWS
        rows = num_bytes = 0
        for each in self._fragments:
            metadata = each.fragment.metadata
            if metadata.num_row_groups:
                num_bytes += _num_bytes(metadata.row_group(0), self.schema.names)
                rows += metadata.row_group(0).num_rows
        return min(_BATCH_ROWS, max(_FEWEST_ROWS, _BATCH_BYTES * rows // max(1, num_bytes)))

    def _typed(self, batch: Any) -> list[Any]:
        import pyarrow as pa

        arrays = []
        for field, array in zip(self.schema, batch.columns, strict=True):
            try:
                arrays.append(array if array.type == field.type else array.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise BadTable(
                    f"Column {field.name!r} ({array.type}) cannot be {field.type}: {error}.",
                    "Values are never rounded or cut off without being asked for.",
                    "Choose a type that has room for all of them.",
                ) from error
        return arrays

    def _inspected(self, file: TableFile, folders: dict[str, Any]) -> _Fragment:
        import pyarrow.compute as pc

        condition = None
        for name, value in file.partition:
            equal = pc.field(name).is_null() if value is None else pc.field(name) == folder_value(value, folders[name])
            condition = equal if condition is None else condition & equal
        try:
            fragment = self._fragment_of(file, condition)
            schema = fragment.physical_schema
        except any_but_signals() as error:
            raise _damaged(file, "", error) from error
        for name, kind in folders.items():
            if name not in schema.names:
                schema = schema.append(_field(name, kind))
        return _Fragment(file, fragment, condition, schema)

    def _fragment_of(self, file: TableFile, condition: Any, **more: Any) -> Any:
        import pyarrow.fs as fs

        system = fs.LocalFileSystem() if file.is_local else fs.PyFileSystem(fs.FSSpecHandler(file.system))
        return self._format.make_fragment(file.path, filesystem=system, partition_expression=condition, **more)

    def _here(self, piece: "TablePiece") -> Any:
        """Return the fragment of a piece for this process: a forked one opens files by a file system of its own."""
        if piece.file.is_local or self._pid == os.getpid():
            return piece.fragment
        more = {"row_groups": [piece.number]} if hasattr(piece.fragment, "split_by_row_group") else {}
        return self._fragment_of(piece.file, piece.source.condition, **more)

    def _chosen(self, columns: Columns) -> list[str]:
        there = Counter(self._whole.names)
        names = list(there) if columns is None else list(columns)
        missing = [name for name in names if name not in there]
        if missing:
            raise BadTable(
                f"{len(missing)} of {len(names)} columns are missing in {self._fragments[0].file.path}: {missing[:5]}.",
                f"It has {', '.join(map(repr, [*there][:20]))}{' ...' if len(there) > 20 else ''}.",
                "Check the names in columns=.",
            )
        chosen = Counter(names)
        twice = [name for name in names if chosen[name] > 1 or there[name] > 1]
        if twice or not names:
            fact = f"Column {twice[0]!r} is there more than once." if twice else "0 columns are chosen."
            raise BadTable(fact, "A sample has each column once, by its name.", "Choose others by columns=.")
        return names

    def _check(self) -> None:
        """Raise where a file has another type for a column that is read, or does not have it."""
        first = self._fragments[0]
        for each in self._fragments:
            for name in self._read:
                here, there = first.types.get(name), each.types.get(name)
                if here != there and not (name in self.types and here is not None and there is not None):
                    raise BadTable(
                        f"Column {name!r} is {there or 'missing'} in {each.file.path}, and {here or 'missing'} in "
                        f"{first.file.path}.",
                        f"A table of {len(self._fragments)} files has one schema.",
                        "Write the files alike, leave the column out by columns=, or give its type: "
                        f'columns={{"{name}": "float64", ...}}.',
                    )

    def _located(self, error: Exception) -> BadTable:
        """Return an error that names the file, and the row group, which cannot be read."""
        for piece in self.pieces:
            try:
                for _ in piece.batches():
                    pass
            except BadTable as found:
                return found
        return _damaged(self._fragments[0].file, "", error)


@dataclass(frozen=True)
class TablePiece:
    """Rows that are read together: a row group of Parquet, another file whole.

    Attributes:
        at: the place of its file among all.
        number: of the row group in its file.
        schema: that it is read by.
    """

    scan: TableScan
    source: _Fragment
    at: int
    fragment: Any
    number: int
    schema: Any

    @property
    def file(self) -> TableFile:
        """Return the file that it lies in."""
        return self.source.file

    @property
    def row_bytes(self) -> float:
        """Return what its file says that a row takes; 1 where it says nothing."""
        if not hasattr(self.fragment, "row_groups"):
            return 1.0
        group = self.fragment.metadata.row_group(self.number)
        return max(1.0, _num_bytes(group, self.scan.schema.names) / max(1, int(group.num_rows)))

    def num_rows(self) -> int:
        """Return how many rows the condition leaves.

        Raises:
            BadTable: the file is damaged.
        """
        with self._named():
            if not self.scan.num_rows:
                scanner = self.scan._scanner(self.schema, [self.scan._here(self)], [])
                return sum(batch.num_rows for batch in scanner.to_batches())
            return sum(int(group.num_rows) for group in self.fragment.row_groups)

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of its rows.

        Raises:
            BadTable: the file is damaged.
        """
        with self._named():
            for batch in self.scan._scanner(self.schema, [self.scan._here(self)]).to_batches():
                yield self.scan._typed(batch)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BadTable:
            raise
        except any_but_signals() as error:
            raise _damaged(self.file, f", row group {self.number}", error) from error


def _damaged(file: TableFile, where: str, error: Exception) -> BadTable:
    said = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
    return BadTable(
        f"{file.path}{where} cannot be read: {said}.",
        "The file is damaged, cut off, or of another format, and a table is read from all of its files.",
        "Write or copy the file again, or leave it out.",
    )


def _num_bytes(group: Any, names: Sequence[str]) -> int:
    """Return what a row group takes of some columns, not compressed."""
    paths = ((column.path_in_schema, column) for column in map(group.column, range(group.num_columns)))
    chosen = set(names)
    return sum(
        int(column.total_uncompressed_size)
        for path, column in paths
        if path in chosen or path.partition(".")[0] in chosen
    )


def _field(name: str, kind: Any) -> Any:
    import pyarrow as pa

    return pa.field(name, kind)


def _filterable(kind: Any) -> Any:
    """Return a type of the same values whose rows Arrow can filter: it cannot those of views (pyarrow 26)."""
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.list_(_filterable(kind.value_type)) if pa.types.is_list(kind) else kind
