"""`flatout compare`: two sets of recordings, or two versions of the code; with a limit, a gate for every change."""

import json
import math
import re
import sys
from pathlib import Path

import click

from flatout.cli.options import STDOUT, budget_option, json_option, writable
from flatout.errors import NothingMeasured, UsageError
from flatout.schema.difference import Difference
from flatout.schema.report import Report
from flatout.schema.secrets import masked_plain

__all__ = ["compare"]

SLOWER = 1
CANNOT_TELL = 3
LEAST_LIMIT = 0.01
"""A limit below 1 % is finer than any number of recordings on one machine can tell."""


def _limit(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return `5%` or `5` as 0.05."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d*\.?\d+)\s*%?", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a limit. Write by how much B may be slower: 5%.", ctx, param)
    limit = float(match[1]) / 100
    if not LEAST_LIMIT <= limit < math.inf:
        raise click.BadParameter(f"{value} is too small to measure. The smallest limit is 1%.", ctx, param)
    return limit


def _page(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Refuse a file whose name does not say what it is for, and one in a folder that does not exist."""
    if file is not None and file.suffix != ".html":
        raise click.BadParameter(f"{str(file)!r} does not end with .html.", ctx, param)
    return writable(ctx, param, file)


@click.command()
@click.argument("before", metavar="A", type=click.Path(exists=True, path_type=Path))
@click.argument("after", metavar="B", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--limit",
    callback=_limit,
    metavar="SHARE",
    help="How much slower B may be, such as 5%: exit code 1 if it is slower beyond noise, 3 if noise hides the answer.",
)
@budget_option
@click.option(
    "--export",
    "page_file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_page,
    metavar="FILE",
    help="Write it for a browser: *.html.",
)
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT [ARGS]...]")
def compare(
    before: Path,
    after: Path,
    limit: float | None,
    budget_s: float,
    page_file: Path | None,
    json_file: Path | None,
    words: tuple[str, ...],
) -> int:
    """Compare recordings or code: is B slower than A, and why.

    A and B are recordings, or folders with several of the same script: more of them tell smaller differences.
    With a script after `--`, A and B are two checkouts of the code: the script trains in both, side by side, in turns,
    so that a drift of the machine falls on both.
    """
    from rich.console import Console

    from flatout.analysis.difference import judge_limit
    from flatout.cli.present import write_text
    from flatout.report.difference import difference_row, difference_text
    from flatout.report.html.difference import difference_page
    from flatout.report.layout import Look

    found = _by_training(before, after, words, limit, budget_s) if words else _by_recordings(before, after)
    gate = None if limit is None else judge_limit(found, limit)
    console = Console(stderr=json_file == STDOUT, highlight=False, markup=False, emoji=False)
    console.print(difference_text(found, Look.of(console), limit=limit, gate=gate), soft_wrap=True)
    row = masked_plain(difference_row(found, limit=limit, gate=gate))
    text = json.dumps(row, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    if json_file == STDOUT:
        sys.stdout.write(text)
    elif json_file is not None:
        write_text(json_file, text, again="`flatout compare A B --json FILE`")
    if page_file is not None:
        write_text(
            page_file, difference_page(found, limit=limit, gate=gate), again="`flatout compare A B --export FILE`"
        )
    return 0 if gate is None or gate.passed else SLOWER if gate.passed is False else CANNOT_TELL


def _by_training(before: Path, after: Path, words: tuple[str, ...], limit: float | None, budget_s: float) -> Difference:
    """Train both, with somebody watching."""
    from flatout.cli.progress import Watcher
    from flatout.engine.compare_versions import compare_checkouts

    with Watcher(bar=True) as watcher:
        return compare_checkouts(before, after, words, limit=limit, budget_s=budget_s, watch=watcher.watch)


def _by_recordings(before: Path, after: Path) -> Difference:
    """Compare what was recorded; how long it may take is of no matter there.

    Raises:
        UsageError: a budget was given, or the recordings cannot be compared.
    """
    from flatout.analysis.difference import difference

    source = click.get_current_context().get_parameter_source("budget_s")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--budget limits the trainings of A and B: name the script after --.")
    return difference(*_sides(before, after))


def _sides(before: Path, after: Path) -> tuple[list[Report], list[Report]]:
    """Return the reports of both sides.

    Raises:
        UsageError: a side holds several scripts, or both hold the same recording.
        NothingMeasured: a recording has too few steady steps.
    """
    from flatout.cli.recordings import find_recordings, read_report

    files = find_recordings(before), find_recordings(after)
    same = {file.resolve() for file in files[0]} & {file.resolve() for file in files[1]}
    if same:
        raise UsageError(
            f"A and B share {len(same)} recording{'s' if len(same) > 1 else ''}: {min(same).parent}.",
            "A recording cannot be compared with itself.",
            "Name two recordings, or two folders of them: `flatout diagnose --out A SCRIPT` makes one below A.",
        )
    reports = [read_report(file) for file in files[0]], [read_report(file) for file in files[1]]
    for name, folder, side in zip("AB", (before, after), reports, strict=True):
        _check_side(name, folder, side)
    return reports


def _check_side(name: str, folder: Path, side: list[Report]) -> None:
    from flatout.analysis.difference import FEWEST_STEPS

    scripts = sorted({report.run.header.script for report in side})
    if len(scripts) > 1:
        raise UsageError(
            f"{name} holds recordings of {len(scripts)} scripts: {', '.join(scripts)}.",
            "Steps of different scripts cannot be compared.",
            f"Name the folder of one of them, below {folder}.",
        )
    short = [report for report in side if len(report.breakdown.step_ms) < FEWEST_STEPS]
    if short:
        raise NothingMeasured(
            f"{name} holds {len(short)} recording{'s' if len(short) > 1 else ''} with fewer than {FEWEST_STEPS} steady "
            f"steps: {short[0].folder} has {len(short[0].breakdown.step_ms)}.",
            "So few steps do not show how much they scatter.",
            "Remove it, or record the script for longer.",
        )
