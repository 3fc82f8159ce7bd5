"""A table as pyarrow reads it: files of one schema, columns and a condition, batches of rows in order."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flatout.errors import BadTable
from flatout.pipeline.read.tables.column_kinds import kind_of
from flatout.pipeline.read.tables.table_files import FORMATS, TableFile
from flatout.watch.script_signals import any_but_signals

__all__ = ["Columns", "TableScan", "arrow_types"]

Columns = Sequence[str] | Mapping[str, Any] | None

_MAGIC = {b"PAR1": "parquet", b"ARRO": "arrow"}
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
    """A file with its part of the schema."""

    file: TableFile
    fragment: Any
    schema: Any


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

        self.types = arrow_types(columns)
        self._format = _format_of(files, kind, self.types)
        partitions = _partition_types(files)
        self._fragments = [self._inspected(file, partitions) for file in files]
        names = self._chosen(columns)
        self._where = where
        self._check(names)
        first = self._fragments[0].schema
        self._whole = first
        self.schema = pa.schema([pa.field(name, self.types.get(name, first.field(name).type)) for name in names])

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of some rows after the other.

        Raises:
            BadTable: a file is damaged, or holds what a column's type has no room for.
        """
        scanner = self._scanner([each.fragment for each in self._fragments])
        try:
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
        for each in self._fragments:
            split = getattr(each.fragment, "split_by_row_group", None)
            inner = [each.fragment] if split is None else split()
            found += [TablePiece(self, each.file, fragment, number) for number, fragment in enumerate(inner)]
        return found

    @property
    def num_rows(self) -> int:
        """Return how many rows there are, 0 where no file says that without being read."""
        if self._where is not None or self._format.default_extname != "parquet":
            return 0
        return sum(int(each.fragment.metadata.num_rows) for each in self._fragments)

    @property
    def least_bytes(self) -> int:
        """Return what all rows take at least, as far as files tell without being read."""
        return self.num_rows * sum(kind_of(field.type).row_bytes for field in self.schema)

    def _scanner(self, fragments: list[Any], names: Sequence[str] | None = None) -> Any:
        import pyarrow.dataset as ds

        options = _scan_options(self._format)
        whole = ds.FileSystemDataset(fragments, self._whole, self._format)
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
                f"Its columns are {', '.join(map(repr, self._whole.names[:20]))}.",
                "Check the names and types in where=.",
            ) from error

    @property
    def _batch_rows(self) -> int:
        """Return how many rows are read at a time."""
        if self._format.default_extname != "parquet":
            return _BATCH_ROWS
        rows = num_bytes = 0
        for each in self._fragments:
            metadata = each.fragment.metadata
            for group in (metadata.row_group(number) for number in range(min(1, metadata.num_row_groups))):
                columns = (group.column(number) for number in range(group.num_columns))
                chosen = (one for one in columns if one.path_in_schema.partition(".")[0] in self.schema.names)
                num_bytes += sum(one.total_uncompressed_size for one in chosen)
                rows += group.num_rows
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

    def _inspected(self, file: TableFile, partitions: dict[str, Any]) -> _Fragment:
        import pyarrow.compute as pc
        import pyarrow.fs as fs

        system = fs.LocalFileSystem() if file.is_local else fs.PyFileSystem(fs.FSSpecHandler(file.system))
        condition = None
        for name, value in file.partition:
            scalar = _typed_value(value, partitions[name])
            equal = pc.field(name).is_null() if value is None else pc.field(name) == scalar
            condition = equal if condition is None else condition & equal
        try:
            fragment = self._format.make_fragment(file.path, filesystem=system, partition_expression=condition)
            schema = fragment.physical_schema
        except any_but_signals() as error:
            raise _damaged(file, "", error) from error
        for name, kind in partitions.items():
            if name not in schema.names:
                schema = schema.append(_field(name, kind))
        return _Fragment(file, fragment, schema)

    def _chosen(self, columns: Columns) -> list[str]:
        there = self._fragments[0].schema.names
        names = list(there) if columns is None else list(columns)
        missing = [name for name in names if name not in there]
        if missing:
            raise BadTable(
                f"{len(missing)} of {len(names)} columns are missing in {self._fragments[0].file.path}: {missing[:5]}.",
                f"It has {', '.join(map(repr, there[:20]))}{' ...' if len(there) > 20 else ''}.",
                "Check the names in columns=.",
            )
        twice = [name for name in names if names.count(name) > 1 or there.count(name) > 1]
        if twice or not names:
            fact = f"Column {twice[0]!r} is there more than once." if twice else "0 columns are chosen."
            raise BadTable(fact, "A sample has each column once, by its name.", "Choose others by columns=.")
        return names

    def _check(self, names: list[str]) -> None:
        """Raise where a file has another type for a column that is read, or does not have it."""
        first = self._fragments[0]
        asked = str(self._where) if self._where is not None else ""
        every = dict.fromkeys(itertools.chain.from_iterable(each.schema.names for each in self._fragments))
        read = {*names, *(name for name in every if name in asked)}
        for each in self._fragments:
            for name in (name for name in every if name in read):
                here, there = (_type_in(one.schema, name) for one in (first, each))
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
    """Rows that are read together: a row group of Parquet, another file whole."""

    scan: TableScan
    file: TableFile
    fragment: Any
    number: int

    def num_rows(self) -> int:
        """Return how many rows the condition leaves.

        Raises:
            BadTable: the file is damaged.
        """
        try:
            if not self.scan.num_rows:
                return sum(batch.num_rows for batch in self.scan._scanner([self.fragment], []).to_batches())
            return sum(int(group.num_rows) for group in self.fragment.row_groups)
        except any_but_signals() as error:
            raise _damaged(self.file, f", row group {self.number}", error) from error

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of its rows.

        Raises:
            BadTable: the file is damaged.
        """
        try:
            for batch in self.scan._scanner([self.fragment]).to_batches():
                yield self.scan._typed(batch)
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


def _type_in(schema: Any, name: str) -> Any:
    return schema.field(name).type if name in schema.names else None


def _format_of(files: Sequence[TableFile], kind: str | None, types: Mapping[str, Any]) -> Any:
    import pyarrow.csv
    import pyarrow.dataset as ds

    kinds = {kind or _kind_of(file) for file in files}
    if len(kinds) > 1 or not kinds <= FORMATS.keys():
        raise BadTable(
            f"{len(files)} files are of {len(kinds)} formats: {', '.join(sorted(kinds))}.",
            f"A table has one, of {', '.join(FORMATS)}.",
            "Name files of one format, or say which it is by format=.",
        )
    (known,) = kinds
    if known == "parquet":
        return ds.ParquetFileFormat()
    if known == "arrow":
        return ds.IpcFileFormat()
    tabs = any(file.path.lower().endswith((".tsv", ".tsv.gz")) for file in files)
    parse = pyarrow.csv.ParseOptions(delimiter="\t" if tabs else ",")
    return ds.CsvFileFormat(parse, convert_options=pyarrow.csv.ConvertOptions(column_types=dict(types)))


def _scan_options(kind: Any) -> Any:
    import pyarrow.dataset as ds

    if kind.default_extname != "parquet":
        return None
    return ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)


def _kind_of(file: TableFile) -> str:
    name = file.path.lower()
    for kind, suffixes in FORMATS.items():
        if name.endswith(suffixes):
            return kind
    with file.system.open(file.path, "rb") as opened:
        return _MAGIC.get(opened.read(4), f"unknown ({file.path})")


# -- partitions by the names of folders -------------------------------------------------------------------------------


def _partition_types(files: Sequence[TableFile]) -> dict[str, Any]:
    """Return the types of what the names of folders say: whole numbers where all are, else text."""
    import pyarrow as pa

    values: dict[str, list[str | None]] = {}
    for file in files:
        for name, value in file.partition:
            values.setdefault(name, []).append(value)
    uneven = [file.path for file in files if {name for name, _ in file.partition} != values.keys()]
    if uneven:
        raise BadTable(
            f"{len(uneven)} of {len(files)} files lie in folders that do not name {', '.join(values)} "
            f"(the first: {uneven[0]}).",
            "Folders such as year=2024 give all files of a table the same columns.",
            "Name the folder below which all files lie alike.",
        )
    return {
        name: pa.int64() if all(one is None or _is_number(one) for one in given) else pa.string()
        for name, given in values.items()
    }


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and str(int(text)) == text


def _typed_value(value: str | None, kind: Any) -> Any:
    import pyarrow as pa

    if value is None:
        return None
    return pa.scalar(int(value) if pa.types.is_integer(kind) else value, kind)


def _field(name: str, kind: Any) -> Any:
    import pyarrow as pa

    return pa.field(name, kind)
