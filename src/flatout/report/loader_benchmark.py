"""The measurement of a script's loaders as text and as JSON.

The JSON has the keys `schema`, `script`, `loaders` and `notes`; a row of `loaders` has the fields of `LoaderFigures`,
of which those that were not measured are null, and beside them `best`, the row of `settings` to use.
"""

import json
from typing import Any

from flatout.report.json import SCHEMA
from flatout.report.visible import visible
from flatout.schema.loader_figures import LoaderFigures
from flatout.schema.plain import to_plain
from flatout.schema.secrets import masked_plain

__all__ = ["loader_dumps", "loader_text"]


def loader_text(script: str, loaders: tuple[LoaderFigures, ...], notes: tuple[str, ...]) -> str:
    """Return what a person is shown."""
    head = [f"{visible(script)}: {len(loaders)} training loader{'s' if len(loaders) != 1 else ''}, without training"]
    blocks = ["\n".join(visible(line) for line in str(each).splitlines()) for each in loaders]
    return "\n\n".join([*head, *blocks, *(f"note: {visible(note)}" for note in notes)]) + "\n"


def loader_dumps(script: str, loaders: tuple[LoaderFigures, ...], notes: tuple[str, ...]) -> str:
    """Return the same as JSON text in ASCII."""
    rows = [_row(each) for each in loaders]
    document = {"schema": SCHEMA, "script": script, "loaders": rows, "notes": list(notes)}
    return json.dumps(masked_plain(document), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _row(figures: LoaderFigures) -> dict[str, Any]:
    row = to_plain(figures)
    assert isinstance(row, dict)
    return {**row, "best": None if figures.best is None else to_plain(figures.best)}
