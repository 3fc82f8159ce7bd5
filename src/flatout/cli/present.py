"""Show a report to a person and hand it to a program: text on the terminal, JSON in files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.cli.options import STDOUT
from flatout.errors import UsageError
from flatout.schema.report import Report

if TYPE_CHECKING:
    from flatout.report.staircase import Handover

__all__ = ["present", "store"]


def present(
    report: Report,
    *,
    json_file: Path | None = None,
    verbose: bool = False,
    handover: "Handover | None" = None,
    price_h: float = 0.0,
) -> None:
    """Print `report`, and write it to `json_file`; with JSON on stdout the text goes to stderr.

    A `handover` makes it the page of a tune, a price of an hour adds what an epoch costs.
    """
    from rich.console import Console

    from flatout.report.json import dumps
    from flatout.report.text import show
    from flatout.rules.catalog import catalog

    preview = {rule.code for rule in catalog() if rule.preview}
    console = Console(stderr=json_file == STDOUT, highlight=False, markup=False, emoji=False)
    show(report, console, preview=preview, verbose=verbose, handover=handover, price_h=price_h)
    if json_file == STDOUT:
        sys.stdout.write(dumps(report))
    elif json_file is not None:
        _write(json_file, dumps(report))


def store(report: Report) -> None:
    """Write `report.json` beside the recording; a full disk costs a note, not the report on the screen."""
    from flatout.report.json import REPORT_FILE, dumps

    if not report.folder:
        return
    file = Path(report.folder) / REPORT_FILE
    try:
        file.write_text(dumps(report), encoding="utf-8")
    except OSError as error:
        click.echo(f"note: {REPORT_FILE} could not be written: {error.strerror}", err=True)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{file} could not be written: {error.strerror}.",
            "The report above is complete.",
            "`flatout report DIR --json FILE` writes it again without measuring.",
        ) from None
