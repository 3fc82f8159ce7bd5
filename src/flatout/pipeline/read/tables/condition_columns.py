"""The columns that a condition of pyarrow's reads, which an expression does not tell by itself."""

from collections.abc import Sequence
from typing import Any

from flatout.watch.script_signals import any_but_signals

__all__ = ["columns_of"]


def columns_of(condition: Any, schema: Any) -> list[str]:
    """Return the columns without which a condition has no meaning; none where it has none with all of them.

    A condition may name columns by their places: then it is taken to read all.
    """
    names = list(dict.fromkeys(schema.names))
    if condition is None or not _has_meaning(condition, schema, ()):
        return []
    return names if "FieldPath(" in str(condition) else _read(condition, schema, names)


def _read(condition: Any, schema: Any, names: Sequence[str]) -> list[str]:
    """Return which of `names` it reads: halves of them are asked about, as most columns are not read."""
    if not names or _has_meaning(condition, schema, names):
        return []
    if len(names) == 1:
        return [*names]
    half = len(names) // 2
    return [*_read(condition, schema, names[:half]), *_read(condition, schema, names[half:])]


def _has_meaning(condition: Any, schema: Any, without: Sequence[str]) -> bool:
    """Return whether pyarrow takes the condition for a table that has no columns of some names."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    left_out = set(without)
    fields = [field for field in schema if field.name not in left_out]
    try:
        ds.FileSystemDataset([], pa.schema(fields), ds.IpcFileFormat()).scanner(columns=[], filter=condition)
    except any_but_signals():
        return False
    return True
