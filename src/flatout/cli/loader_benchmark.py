"""`flatout diagnose --only loader`: how fast the script's loaders are by themselves."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from flatout.cli.options import STDOUT

__all__ = ["LOADER", "benchmark_loaders", "wants_loader"]

LOADER = "loader"
"""What stands behind --only in place of codes."""


def wants_loader(words: Sequence[str]) -> bool:
    """Return whether `--only loader` was given.

    Raises:
        click.UsageError: together with something that does not go with it.
    """
    if LOADER not in (word.strip().lower() for word in words):
        return False
    context = click.get_current_context()
    given = [name for name in ("steps", "whole", "ranks", "price_h") if _is_given(context, name)]
    if len(words) > 1 or given:
        raise click.UsageError(
            "--only loader measures the loaders and nothing else: leave out other codes, --nproc-per-node, --steps, "
            "--whole and --price."
        )
    return True


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def benchmark_loaders(
    words: Sequence[str], *, budget_s: float, out: Path | None, json_file: Path | None, verbose: bool
) -> None:
    """Measure the loaders of the script that `words` start, and show what was found.

    Raises:
        FlatoutError: what the engine says went wrong.
    """
    from flatout.cli.present import write_text
    from flatout.cli.progress import Watcher, echo_bytes
    from flatout.engine.loader_benchmark import measure_loaders
    from flatout.engine.process.target import parse_target
    from flatout.report.loader_benchmark import loader_dumps, loader_text

    with Watcher(bar=not verbose) as watcher:
        echo = echo_bytes if verbose else None
        found = measure_loaders(parse_target(words), budget_s=budget_s, out=out, watch=watcher.watch, echo=echo)
    shown = (found.script, found.loaders, found.notes)
    click.echo(loader_text(*shown), nl=False, err=json_file == STDOUT)
    if json_file == STDOUT:
        sys.stdout.write(loader_dumps(*shown))
    elif json_file is not None:
        write_text(json_file, loader_dumps(*shown), again="The same command")
