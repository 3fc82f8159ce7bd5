"""`flatout report`: show a recording again, with the rules of today and the trials of then."""

from pathlib import Path

import click

from flatout.cli.options import json_option, price_option, verbose_option, writable

__all__ = ["report"]


def _endings(ctx: click.Context, param: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Refuse a file whose name does not say what it is for, and one in a folder that does not exist."""
    from flatout.report.exports import EXPORTS

    for file in files:
        if not file.name.endswith(tuple(EXPORTS)):
            raise click.BadParameter(f"{str(file)!r} ends with none of {', '.join(EXPORTS)}.", ctx, param)
        writable(ctx, param, file)
    return files


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--export",
    "exports",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_endings,
    multiple=True,
    metavar="FILE",
    help="Write it for another program: *.html, *.trace.json (Perfetto), *.speedscope.json, *.md.",
)
@json_option
@price_option
@verbose_option("Show every finding with its numbers.")
def report(folder: Path, exports: tuple[Path, ...], json_file: Path | None, price_h: float, verbose: bool) -> None:
    """Show a recording again; of several below DIR, the newest."""
    from flatout.cli.present import present, write_text
    from flatout.cli.recordings import find_recording, read_report
    from flatout.report.exports import EXPORTS

    shown = read_report(find_recording(folder))
    present(shown, json_file=json_file, verbose=verbose, price_h=price_h)
    for file in exports:
        text = next(make(shown) for ending, make in EXPORTS.items() if file.name.endswith(ending))
        write_text(file, text, again="`flatout report DIR --export FILE`")
