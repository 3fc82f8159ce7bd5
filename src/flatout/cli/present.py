"""Show a report to a person and hand it to a program: text on the terminal, JSON in files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.cli.options import STDOUT
from flatout.errors import UsageError
from flatout.schema.files import keep_private, private_opener, write_whole
from flatout.schema.report import Report

if TYPE_CHECKING:
    from flatout.report.tune_summary import HandoverStair

__all__ = ["present", "store", "store_page", "write_text"]


def present(
    report: Report,
    *,
    json_file: Path | None = None,
    verbose: bool = False,
    handover: "HandoverStair | None" = None,
    price_h: float = 0.0,
) -> None:
    """Print `report`, name the page beside the recording, and write the report to `json_file`.

    With JSON on stdout the text goes to stderr. A `handover` makes it the page of a tune, a price of an hour adds what
    an epoch costs.
    """
    from rich.console import Console
    from rich.text import Text

    from flatout.report.html.page import REPORT_PAGE
    from flatout.report.json import dumps
    from flatout.report.text import show
    from flatout.report.visible import visible

    console = Console(stderr=json_file == STDOUT, highlight=False, markup=False, emoji=False)
    show(report, console, preview=_preview(), verbose=verbose, handover=handover, price_h=price_h)
    page = Path(report.folder) / REPORT_PAGE
    if report.folder and page.exists():
        console.print(Text.assemble("Report: ", visible(str(page))), soft_wrap=True)
    if json_file == STDOUT:
        sys.stdout.write(dumps(report))
    elif json_file is not None:
        write_text(json_file, dumps(report), again="`flatout report DIR --json FILE`")


def store(report: Report) -> None:
    """Write `report.json` beside the recording; a full disk costs a note, not the report on the screen."""
    from flatout.report.json import REPORT_FILE, dumps

    if report.folder:
        _beside(report, REPORT_FILE, dumps(report))
        keep_private(Path(report.folder))


def store_page(report: Report, *, handover: "HandoverStair | None" = None, price_h: float = 0.0) -> None:
    """Write `report.html` beside the recording, for a browser; a full disk costs a note."""
    from flatout.cli.source_changes import changes_of
    from flatout.report.html.page import REPORT_PAGE, page

    if report.folder:
        changes = changes_of(report)
        text = page(report, preview=_preview(), handover=handover, price_h=price_h, changes=changes)
        _beside(report, REPORT_PAGE, text)


def _preview() -> frozenset[str]:
    """Return the codes of the rules that no real recording has confirmed yet."""
    from flatout.rules.core.catalog import catalog

    return frozenset(rule.code for rule in catalog() if rule.preview)


def _beside(report: Report, name: str, text: str) -> None:
    try:
        write_whole(Path(report.folder) / name, text.encode())
    except OSError as error:
        click.echo(f"note: {name} could not be written: {error.strerror}", err=True)


def write_text(file: Path, text: str, *, again: str) -> None:
    """Write a file that was asked for, a new one for its owner alone; `again` does so without measuring.

    Raises:
        UsageError: the file cannot be written; what was found has been shown.
    """
    try:
        with open(file, "w", encoding="utf-8", opener=private_opener) as opened:
            opened.write(text)
    except OSError as error:
        raise UsageError(
            f"{file} could not be written: {error.strerror}.",
            "The report above is complete.",
            f"{again} writes it again without measuring.",
        ) from None
