"""`flatout diagnose`: run a script for a bounded number of steps and say where its time goes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from flatout.cli.options import (
    STDOUT,
    budget_option,
    json_option,
    only_codes_option,
    out_option,
    price_option,
    ranks_option,
    verbose_option,
)
from flatout.cli.script_command import ScriptCommand
from flatout.errors import FlatoutError
from flatout.schema.report import Report

__all__ = ["diagnose", "diagnose_and_present"]

DEFAULT_BUDGET_S = 300.0


@click.command(
    cls=ScriptCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
)
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Training steps to measure.")
@click.option(
    "--whole",
    is_flag=True,
    help="Let the script train to its end, unchanged, and record every step with the light probes.",
)
@budget_option
@only_codes_option
@ranks_option("Diagnose a script of one process as it trains on N ranks of this machine, or on one for each GPU.")
@json_option
@out_option
@price_option
@verbose_option("Show the script's own output, and every finding with its numbers.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def diagnose(
    words: tuple[str, ...],
    steps: int | None,
    whole: bool,
    budget_s: float,
    only: tuple[str, ...],
    ranks: str | None,
    json_file: Path | None,
    out: Path | None,
    price_h: float,
    verbose: bool,
) -> None:
    """Run a script for a while; show where its time goes, and why.

    SCRIPT is `train.py ARGS`, `-m package.module ARGS`, or, after `--`, any launcher line
    (`-- torchrun --nproc-per-node 2 train.py`). Options of flatout stand before it.
    """
    from flatout.cli.loader_benchmark import benchmark_loaders, wants_loader
    from flatout.cli.names import rule_codes
    from flatout.cli.ranks import require_names

    if wants_loader(only):
        return benchmark_loaders(words, budget_s=budget_s, out=out, json_file=json_file, verbose=verbose)
    require_names("--only", only)
    codes = rule_codes(only)
    _check_whole(whole, steps, json_file)
    if whole and ranks is not None:
        raise click.UsageError("--whole records one process: leave out --nproc-per-node.")
    diagnose_and_present(
        words,
        whole=whole,
        steps=steps,
        budget_s=budget_s,
        codes=codes,
        ranks=ranks,
        json_file=json_file,
        out=out,
        price_h=price_h,
        verbose=verbose,
    )


def _check_whole(whole: bool, steps: int | None, json_file: Path | None) -> None:
    """Refuse what does not go together with a whole training."""
    source = click.get_current_context().get_parameter_source("budget_s")
    if whole and steps is not None:
        raise click.UsageError("--whole records every step: leave out --steps.")
    if whole and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--whole lasts as long as the training: leave out --budget.")
    if whole and json_file == STDOUT:
        raise click.UsageError("with --whole stdout is the script's own: name a file, --json FILE.")


def diagnose_and_present(
    words: Sequence[str],
    *,
    whole: bool = False,
    steps: int | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    codes: frozenset[str] = frozenset(),
    ranks: str | None = None,
    json_file: Path | None = None,
    out: Path | None = None,
    price_h: float = 0.0,
    verbose: bool = False,
) -> None:
    """Diagnose what `words` start, then show and store the report, also when the script failed half-way.

    Raises:
        FlatoutError: what the engine says went wrong, after what was measured has been shown.
    """
    from flatout.cli.present import present, store, store_page

    failure: FlatoutError | None = None
    try:
        found: Report | None = _whole(words, out) if whole else _diagnose(words, steps, budget_s, out, verbose, ranks)
    except FlatoutError as error:
        failure, found = error, getattr(error, "report", None)
    if found is not None:
        store(found)
        store_page(found, price_h=price_h)
        shown = replace(found, findings=tuple(f for f in found.findings if f.code in codes)) if codes else found
        present(shown, json_file=json_file, verbose=verbose, price_h=price_h)
    if failure is not None:
        raise failure


def _whole(words: Sequence[str], out: Path | None) -> Report:
    """Let the script train to its end under light probes."""
    from flatout.engine.process.target import parse_target
    from flatout.engine.whole_training import record_whole

    return record_whole(parse_target(words), out)


def _diagnose(
    words: Sequence[str], steps: int | None, budget_s: float, out: Path | None, verbose: bool, ranks: str | None = None
) -> Report:
    """Call the engine, with somebody watching."""
    from flatout.cli.progress import Watcher, echo_bytes
    from flatout.engine.diagnose import Limits
    from flatout.engine.diagnose import diagnose as measure
    from flatout.engine.process.target import parse_target

    target = parse_target(words)
    limits = Limits(steps=steps, budget_s=budget_s, headroom=True)
    if ranks is not None:
        from flatout.engine.placement import place_here
        from flatout.engine.tune_ranks import diagnose_on_ranks
        from flatout.report.ranks import ranks_in_words

        placement = place_here(ranks, "A diagnosis on ranks is that of one machine")
        with Watcher(bar=not verbose) as watcher:
            echo = echo_bytes if verbose else None
            return diagnose_on_ranks(
                target, placement, limits=limits, out=out, watch=watcher.watch, echo=echo, in_words=ranks_in_words
            )
    with Watcher(bar=not verbose) as watcher:
        return measure(target, limits=limits, out=out, watch=watcher.watch, echo=echo_bytes if verbose else None)
