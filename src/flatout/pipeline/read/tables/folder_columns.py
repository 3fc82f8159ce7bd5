"""Columns that the names of folders give (`year=2024/`): of which type they are, and their values."""

from collections.abc import Sequence
from typing import Any

from flatout.errors import BadTable
from flatout.pipeline.read.tables.table_files import TableFile

__all__ = ["folder_types", "folder_value"]

_LOW, _HIGH = -(2**63), 2**63 - 1
_MOST_DIGITS = 19


def folder_types(files: Sequence[TableFile]) -> dict[str, Any]:
    """Return Arrow's types of these columns by name: whole numbers of 64 bits where all are, else text.

    Raises:
        BadTable: some files lie in folders that do not name them all.
    """
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


def folder_value(value: str | None, kind: Any) -> Any:
    """Return a value as Arrow has it; None for null."""
    import pyarrow as pa

    if value is None:
        return None
    return pa.scalar(int(value) if pa.types.is_integer(kind) else value, kind)


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        return False
    return str(int(text)) == text and _LOW <= int(text) <= _HIGH
