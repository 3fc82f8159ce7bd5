"""The formats of a table's files, as pyarrow has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.errors import BadTable
from flatout.pipeline.read.tables.table_files import FORMATS, TableFile

__all__ = ["format_of", "scan_options"]

_MAGIC = {b"PAR1": "parquet", b"ARRO": "arrow"}


def format_of(files: Sequence[TableFile], kind: str | None, types: Mapping[str, Any]) -> Any:
    """Return the format of all files; `kind`: its name where it is known; `types`: those that CSV is read as.

    Raises:
        BadTable: they are of several, or of an unknown one.
    """
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


def scan_options(kind: Any) -> Any:
    """Return how files of a format are read; None where there is nothing to say."""
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
