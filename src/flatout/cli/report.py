"""`flatout report`: show a recording again, with the rules of today and the trials of then."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.cli.options import json_option, price_option, verbose_option, writable
from flatout.errors import UsageError

if TYPE_CHECKING:
    from flatout.report.exports import Tracker
    from flatout.schema.report import Report

__all__ = ["report"]


def _targets(ctx: click.Context, param: click.Parameter, targets: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a file whose name does not say what it is for, a folder that does not exist, a package that is missing."""
    from flatout.report.exports import EXPORTS

    for target in targets:
        if _tracker(target) is not None:
            continue
        file = Path(target)
        if not file.name.endswith(tuple(EXPORTS)):
            known = ", ".join([*EXPORTS, "or begins with tensorboard: or mlflow:"])
            raise click.BadParameter(f"{target!r} does not end with any of {known}.", ctx, param)
        if file.is_dir():
            raise click.BadParameter(f"{target!r} is a folder.", ctx, param)
        writable(ctx, param, file)
    return targets


def _tracker(target: str) -> "tuple[Tracker, str] | None":
    """Return what writes `tensorboard:FOLDER` and where to, None for a file.

    Raises:
        UsageError: the package that writes it is not installed, or no place is named.
    """
    from importlib.util import find_spec

    from flatout.report.exports import TRACKERS

    name, _, place = target.partition(":")
    tracker = TRACKERS.get(name)
    if tracker is None or target == name:
        return None
    if not place:
        raise UsageError(
            f"{target} does not say where to write.", advice=f"Name a folder after the colon: {target}runs"
        )
    if find_spec(tracker.package) is None:
        raise UsageError(
            f"{tracker.package} is needed for {name}:{place} and is not installed.",
            advice=f"pip install 'flatout[{name}]'",
        )
    return tracker, place


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--export",
    "exports",
    callback=_targets,
    multiple=True,
    metavar="TARGET",
    help="Write it for another program: a file *.html, *.trace.json (Perfetto), *.speedscope.json or *.md; "
    "tensorboard:FOLDER; mlflow:URI.",
)
@json_option
@price_option
@verbose_option("Show every finding with its numbers.")
def report(folder: Path, exports: tuple[str, ...], json_file: Path | None, price_h: float, verbose: bool) -> None:
    """Show a recording again; of several below DIR, the newest."""
    from flatout.cli.present import present
    from flatout.cli.recordings import find_recording, read_report, recorded

    file = find_recording(folder)
    shown = read_report(file)
    with recorded(file):
        present(shown, json_file=json_file, verbose=verbose, price_h=price_h)
        _export(shown, exports)


def _export(shown: "Report", exports: tuple[str, ...]) -> None:
    """Write a report for other programs."""
    from flatout.cli.present import write_text
    from flatout.cli.source_changes import changes_of
    from flatout.report.exports import EXPORTS
    from flatout.report.html.page import page
    from flatout.report.visible import visible

    for target in exports:
        tracker = _tracker(target)
        if tracker is not None:
            told = tracker[0].write(shown, tracker[1])
            click.echo(f"{visible(target)}: run {visible(told)}", err=True)
            continue
        make = next(make for ending, make in EXPORTS.items() if target.endswith(ending))
        text = page(shown, changes=changes_of(shown)) if make is page else make(shown)
        write_text(Path(target), text, again="`flatout report DIR --export FILE`")
