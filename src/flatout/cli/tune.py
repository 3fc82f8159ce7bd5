"""`flatout tune`: try the cures on a script, keep what is faster and leaves results equal, write the recipe."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flatout.cli.options import budget_option, json_option, out_option, ranks_option, recipe_option, verbose_option
from flatout.cli.script_command import ScriptCommand
from flatout.errors import FlatoutError, UsageError
from flatout.schema.files import read_whole
from flatout.schema.report import Report
from flatout.schema.secrets import masked_words
from flatout.schema.trial import EDITED_SOURCE

if TYPE_CHECKING:
    from flatout.engine.process.target import Target
    from flatout.engine.trial.edit_candidates import ProposedEdit
    from flatout.engine.tune import TuneLimits
    from flatout.report.tune_summary import HandoverStair

__all__ = ["PATIENCE", "tune", "tune_and_present"]

CLASSES = ("bitwise", "rounding", "precision")
PATIENCE = 2.0
"""Times as long as the budget a tune may take beside other programs, where nobody has given the budget."""

OURS = ("schema", "script", "proven")
"""What every flatout recipe holds, whichever version wrote it."""


@click.command(
    cls=ScriptCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
)
@budget_option
@click.option(
    "--only",
    multiple=True,
    metavar="FIX|DIFF",
    help="Try this fix or edit only, or those for this finding; may be given again.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="FIX",
    help="Also try this fix or the one for this finding, tried only on request (such as larger-batch or CO024);"
    " may be given again.",
)
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="DIFF",
    help="Also try this edit of the source, a file with a diff; may be given again.",
)
@ranks_option("Try N ranks of this machine, or one for each GPU, in place of fixes.")
@click.option(
    "--equal",
    type=click.Choice(CLASSES, case_sensitive=False),
    default="precision",
    show_default=True,
    metavar="CLASS",
    help="How equal results must stay: bitwise, rounding or precision.",
)
@recipe_option
@json_option
@out_option
@verbose_option("Show the script's own output, and every trial and finding with its numbers.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def tune(
    words: tuple[str, ...],
    budget_s: float,
    only: tuple[str, ...],
    also: tuple[str, ...],
    edits: tuple[str, ...],
    ranks: str | None,
    equal: str,
    recipe_file: Path,
    json_file: Path | None,
    out: Path | None,
    verbose: bool,
) -> None:
    """Try cures on a script; keep what is faster with equal results.

    SCRIPT is as for `flatout diagnose`. What is kept is written to flatout.toml, and `flatout run` trains under it.
    A fix that changes the training itself is tried only when --also or --only names it. An edit is tried as a fix is:
    its text is served in place of the files, which stay as they are.
    """
    from flatout.cli.given_edits import named_alone, named_besides
    from flatout.cli.names import fix_names

    if ranks is not None:
        _check_on_ranks((*only, *also, *edits), equal)
        _tune_on_ranks(words, ranks, budget_s, recipe_file, json_file, out, verbose)
        return
    (only, alone), (also, edits) = named_alone(only), named_besides(also, edits)
    tune_and_present(
        words,
        budget_s=budget_s,
        patience=_patience(),
        only=fix_names(only) | ({EDITED_SOURCE} if alone else set()),
        also=fix_names(also),
        edits=(*alone, *edits),
        equal=equal,
        recipe_file=recipe_file,
        json_file=json_file,
        out=out,
        verbose=verbose,
    )


def _patience() -> float:
    """Return how many times the budget the tune may take: that of the command line is kept."""
    source = click.get_current_context().get_parameter_source("budget_s")
    return 1.0 if source is click.core.ParameterSource.COMMANDLINE else PATIENCE


def tune_and_present(
    words: Sequence[str],
    *,
    recipe_file: Path,
    json_file: Path | None = None,
    out: Path | None = None,
    verbose: bool = False,
    **asked: Any,
) -> Report | None:
    """Tune what `words` start, write the recipe, show and store the report, also when the tune ended half-way.

    What is `asked` for goes into the limits of the tune: see `_limits`.

    Raises:
        FlatoutError: what the engine says went wrong, after what was measured has been shown.
    """
    from flatout.engine.process.target import parse_target

    _require_ours(recipe_file)
    target = parse_target(words)
    limits = _limits(target, **asked)
    return _shown(lambda: _tune(target, limits, out, verbose), words, recipe_file, json_file, verbose=verbose)


def _shown(
    tried: Callable[[], Report], words: Sequence[str], recipe_file: Path, json_file: Path | None, *, verbose: bool
) -> Report | None:
    """Return what `tried()` gives, with its recipe written and its report shown and stored, also of a failure."""
    from flatout.cli.present import present, store, store_page

    failure: FlatoutError | None = None
    handover: HandoverStair | None = None
    try:
        found: Report | None = tried()
    except FlatoutError as error:
        failure, found = error, getattr(error, "report", None)
    if found is not None:
        store(found)
        if failure is None:
            handover, failure = _hand_over(found, words, recipe_file)
        store_page(found, handover=handover)
        present(found, json_file=json_file, verbose=verbose, handover=handover)
    if failure is not None:
        raise failure
    return found


def _check_on_ranks(others: Sequence[str], equal: str) -> None:
    """Refuse what does not go together with ranks: names of fixes and edits, and results equal to the last bit."""
    if others:
        raise click.UsageError("--nproc-per-node tries ranks, and no fix: leave out --only, --also and --edit.")
    if equal == "bitwise":
        raise UsageError(
            "--equal bitwise cannot be held on ranks: sums have another order, and results are equal up to rounding.",
            advice="Leave --equal out, or try: flatout tune --nproc-per-node 2 --equal rounding train.py",
        )


def _tune_on_ranks(
    words: Sequence[str],
    ranks: str,
    budget_s: float,
    recipe_file: Path,
    json_file: Path | None,
    out: Path | None,
    verbose: bool,
) -> None:
    """Try the script on ranks; keep that in the recipe, where it holds nothing that gives more.

    Raises:
        UsageError: there is nothing to compare, or more than one machine.
    """
    from flatout.cli.progress import Watcher, echo_bytes
    from flatout.engine.placement import place_here
    from flatout.engine.process.target import parse_target
    from flatout.engine.tune_ranks import tune_on_ranks
    from flatout.report.ranks import ranks_in_words

    _require_ours(recipe_file)
    target, placement = parse_target(words), place_here(ranks, "A recipe for ranks is proven on one machine")
    if placement.size < 2:
        raise UsageError("One rank is one process.", advice="Try: flatout tune --nproc-per-node 2 train.py")

    def tried() -> Report:
        with Watcher(bar=not verbose) as watcher:
            echo = echo_bytes if verbose else None
            return tune_on_ranks(
                target, placement, budget_s=budget_s, out=out, watch=watcher.watch, echo=echo, in_words=ranks_in_words
            )

    _shown(tried, words, recipe_file, json_file, verbose=verbose)


def _limits(
    target: "Target",
    *,
    budget_s: float,
    patience: float = 1.0,
    only: frozenset[str] = frozenset(),
    also: frozenset[str] = frozenset(),
    edits: Sequence[str] = (),
    equal: str = "precision",
) -> "TuneLimits":
    """Return what bounds a tune; `edits` are files that hold diffs.

    Raises:
        UsageError: one of them does not fit.
    """
    from flatout.cli.given_edits import read_edits
    from flatout.engine.tune import TuneLimits
    from flatout.schema.trial import Equivalence

    return TuneLimits(
        budget_s=budget_s,
        patience=patience,
        only=only,
        also=also,
        equal=Equivalence(equal.upper()),
        edits=read_edits(edits, target),
    )


def _tune(target: "Target", limits: "TuneLimits", out: Path | None, verbose: bool) -> Report:
    """Call the engine, with somebody watching."""
    from flatout.cli.given_edits import proposed_edits
    from flatout.cli.progress import Watcher, echo_bytes
    from flatout.engine.tune import tune as search

    def propose(report: Report) -> "Sequence[ProposedEdit]":
        return proposed_edits(report, target, limits.only)

    echo = echo_bytes if verbose else None
    with Watcher(bar=not verbose) as watcher:
        return search(target, limits=limits, out=out, watch=watcher.watch, echo=echo, propose=propose)


def _hand_over(report: Report, words: Sequence[str], file: Path) -> "tuple[HandoverStair, FlatoutError | None]":
    """Write the recipe; return what the page says of it, and why it could not be written."""
    from flatout.engine.recipe import write_recipe
    from flatout.report.tune_summary import HandoverStair

    if report.recipe is None or not (report.recipe.fixes or report.recipe.ranks):
        if file.exists():
            click.echo(f"note: {file}, written by an earlier tune, is unchanged", err=True)
        return HandoverStair(), None
    better = _holds_more(file, report) if report.recipe.ranks is not None else ""
    if better:
        click.echo(f"note: {better}", err=True)
        return HandoverStair(), None
    try:
        write_recipe(report.recipe, file)
    except FlatoutError as error:
        return HandoverStair(), error
    return HandoverStair(file=str(file), command=_command(words, file)), None


def _holds_more(file: Path, report: Report) -> str:
    """Return why a recipe for ranks does not take the place of the one in `file`, "" where it does."""
    from flatout.engine.recipe import read_recipe

    try:
        there = read_recipe(file)
    except FlatoutError:
        return ""
    new = report.recipe
    if new is None or not there.fixes or there.script != new.script or there.proof.speedup <= new.proof.speedup:
        return ""
    return (
        f"{file} is unchanged: its fixes gave {there.proof.speedup:.2f}x, ranks {new.proof.speedup:.2f}x, and a"
        " training has one or the other. Train on ranks with flatout run --nproc-per-node, or name another file"
        " with --recipe."
    )


def _command(words: Sequence[str], file: Path) -> tuple[str, ...]:
    """Return the command that trains under `file`; it is named only where `flatout run` would find another one."""
    from flatout.engine.process.target import parse_target
    from flatout.engine.recipe import find_recipe

    try:
        found: Path | None = find_recipe(parse_target(words), None)
    except FlatoutError:
        found = None
    same = found is not None and found.absolute() == file.absolute()
    return ("flatout", "run", *(() if same else ("--recipe", str(file))), *masked_words(words))


def _require_ours(file: Path) -> None:
    """Refuse to overwrite what is no recipe of flatout's, before anything is measured.

    Raises:
        UsageError: `file` holds something else.
    """
    try:
        text = read_whole(file).decode()
        ours = not text.strip() or all(key in tomllib.loads(text) for key in OURS)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError):
        ours = False
    if not ours:
        raise UsageError(
            f"{file} exists and was not written by flatout.",
            "It would be overwritten.",
            "Name another file with --recipe, or move this one away.",
        )
