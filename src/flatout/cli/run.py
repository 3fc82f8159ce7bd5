"""`flatout run`: the whole training under the recipe that `flatout tune` has made."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from flatout.cli.options import given_recipe_option, verbose_option
from flatout.cli.script_command import ScriptCommand
from flatout.cli.word_order import advice_on_order
from flatout.errors import UsageError
from flatout.fixes.core.catalog import find_fix
from flatout.schema.recipe import Kept, Recipe
from flatout.schema.trial import Equivalence, Selection

if TYPE_CHECKING:
    from flatout.engine.process.target import Target
    from flatout.engine.train import Trained
    from flatout.schema.order import EditedFile

__all__ = ["chosen", "run"]

_USAGE = 2  # the exit code of argparse and click for arguments that they do not know
_KILLED = 128  # what a shell adds to the number of the signal that ended a program


class RunCommand(ScriptCommand):
    """`flatout run`, whose `--shard` needs no value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give `--shard` the value that it has without one; what comes after the script's name is the script's."""
        flags = {name for one in self.params if getattr(one, "is_flag", False) for name in one.opts}
        read, rest = list[str](), list(args)
        while rest and rest[0].startswith("-") and rest[0] not in ("--", "-m"):
            word = rest.pop(0)
            alone = word == "--shard" and rest[:1] != ["node"]
            read.append("--shard=all" if alone else word)
            if not alone and word not in flags and "=" not in word and rest:
                read.append(rest.pop(0))
        return super().parse_args(ctx, [*read, *rest])


@click.command(
    "run",
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
)
@given_recipe_option
@click.option("--only", multiple=True, metavar="FIX", help="Apply only this fix of the recipe; may be given again.")
@click.option(
    "--on-change",
    type=click.Choice(["stop", "warn"]),
    default="stop",
    show_default=True,
    help="If kept samples changed after batches of them were served: stop the training, or warn and continue.",
)
@click.option(
    "--allow-edits",
    is_flag=True,
    help="Run edits of the source in this recipe that your own tune did not make, now and later. Read them first.",
)
@click.option(
    "--nproc-per-node",
    "ranks",
    metavar="N|gpu",
    help="Train a script of one process on N ranks of this machine, or on one for each GPU.",
)
@click.option(
    "--nnodes",
    "--rdzv-endpoint",
    "--shard",
    "machines",
    multiple=True,
    metavar="M|HOST:PORT|[node]",
    help="With --nproc-per-node: the number of machines, and where they meet (start it on each); --shard: each rank"
    " keeps a share of parameters, gradients and optimizer state, of all ranks or (node) of those of its machine.",
)
@click.option(
    "--live/--print-sbatch",
    "shown",
    default=None,
    help="Show the live state of the training below its own output; or print a batch file for SLURM that trains on"
    " the ranks asked for, and train nothing.",
)
@verbose_option("Show where the recipe was proven and what each fix did in each process.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def run(
    words: tuple[str, ...],
    recipe_file: Path | None,
    only: tuple[str, ...],
    on_change: str,
    allow_edits: bool,
    ranks: str | None,
    machines: tuple[str, ...],
    shown: bool | None,
    verbose: bool,
) -> int:
    """Train under flatout.toml, the recipe that `flatout tune` has made.

    SCRIPT is as for `flatout diagnose`. Its input, output, signals and exit code are its own; what flatout has to say
    it says on stderr, before and after.
    """
    from flatout.cli.trusted_edits import served_edits
    from flatout.engine.process.target import parse_target
    from flatout.engine.provenance import here, warnings
    from flatout.engine.recipe import find_recipe

    target = parse_target(words)
    if ranks is not None or machines or shown is False:
        return _on_ranks(target, ranks, machines, recipe_file, shown=shown, verbose=verbose)
    path = find_recipe(target, recipe_file)
    recipe = _read(path, target)
    if recipe.ranks is not None and not only:
        return _as_proven_on_ranks(target, recipe, path, shown=shown, verbose=verbose)
    served = served_edits(chosen(recipe, only, path), target, path, allow_edits=allow_edits)
    kept = served.kept
    known = warnings(recipe, target, here(target)) if kept else []
    _announce(target.name, path, recipe, kept, [*served.left, *known], verbose=verbose)
    trained = _train(target, [_with(each.selection, on_change) for each in kept], served.files, live=bool(shown))
    _advise(trained, words)
    later = [each for each in warnings(recipe, target, trained.found) if each not in known] if kept or shown else []
    if kept or shown:
        _account(trained, later, verbose=verbose)
    if kept and len(kept) == len(recipe.fixes):
        _compare(recipe, trained, comparable=not (known or later))
    return trained.exit_code


def _advise(trained: "Trained", words: Sequence[str]) -> None:
    """Say so where the script did not know its arguments and options of ours are among them."""
    advice = advice_on_order(click.get_current_context().command, words) if trained.exit_code == _USAGE else ""
    if advice and not trained.ranks:
        _say(advice)


def _read(path: Path, target: "Target") -> Recipe:
    """Return the recipe in `path`, which must be the script's, with what it says of the arguments that are given."""
    from flatout.engine.process.target import arguments_digests
    from flatout.engine.provenance import require_same_script
    from flatout.engine.recipe import read_recipe

    recipe = read_recipe(path)
    require_same_script(recipe, path, target)
    if recipe.whole is None:
        return recipe
    return replace(recipe, whole=recipe.whole.asked_with(*arguments_digests(target)))


def _on_ranks(
    target: "Target",
    ranks: str | None,
    machines: Sequence[str],
    given: Path | None,
    *,
    shown: bool | None,
    verbose: bool,
) -> int:
    """Train on several ranks; a recipe is not needed for it.

    Raises:
        UsageError: options do not go together.
    """
    from flatout.cli.ranks import print_batch_file, run_on_ranks
    from flatout.engine.recipe import find_recipe

    if ranks is None and not machines:
        raise UsageError(
            "--print-sbatch needs the number of ranks on each machine.",
            advice="Try: flatout run --nproc-per-node gpu --nnodes 2 --print-sbatch train.py > train.sbatch",
        )
    if ranks is None:
        _refuse_without_ranks(machines)
    if shown is False:
        return print_batch_file(target, ranks, machines)
    if shown:
        raise UsageError("--live shows one process, and --nproc-per-node starts several.", advice="Leave one out.")
    try:
        recipe = find_recipe(target, given)
    except UsageError:
        recipe = None
    return run_on_ranks(target, ranks, machines, recipe=recipe, verbose=verbose)


def _refuse_without_ranks(machines: Sequence[str]) -> NoReturn:
    """Say what a value of `--nnodes`, `--rdzv-endpoint` or `--shard` needs."""
    if any(one in ("all", "node") for one in machines):
        raise UsageError(
            "--shard shares parameters among the ranks of --nproc-per-node, and that is not given.",
            advice="Try: flatout run --nproc-per-node 2 --shard train.py",
        )
    raise UsageError(
        "--nnodes and --rdzv-endpoint say where the ranks of --nproc-per-node run, and that is not given.",
        advice="Try: flatout run --nproc-per-node gpu --nnodes 2 --rdzv-endpoint HOST:29400 train.py",
    )


def _as_proven_on_ranks(target: "Target", recipe: Recipe, path: Path, *, shown: bool | None, verbose: bool) -> int:
    """Train on the ranks of a recipe."""
    from flatout.engine.provenance import here, warnings

    assert recipe.ranks is not None
    kept = recipe.ranks.as_kept
    _say(
        f"{path}: {kept.selection.label}, proven {kept.speedup:.2f}x as fast ({kept.low:.2f} to {kept.high:.2f}) with"
        f" results equal by {kept.equivalence} over {recipe.ranks.steps} steps"
    )
    for sentence in warnings(recipe, target, here(target)):
        _say(f"warning: {sentence}")
    return _on_ranks(target, str(recipe.ranks.number), (), path, shown=shown, verbose=verbose)


def _with(selection: Selection, on_change: str) -> Selection:
    """Return a fix with what it is to do where it sees a change too late, if it is one that may."""
    fix = find_fix(selection.fix)
    if on_change == "stop" or fix is None or "on_change" not in fix.bounds:
        return selection
    return replace(selection, settings={**selection.settings, "on_change": on_change})


def _train(
    target: "Target", selections: Sequence[Selection], edited: "Sequence[EditedFile]", *, live: bool
) -> "Trained":
    """Train, and show how it goes where that is asked for and stderr is a terminal."""
    from flatout.engine.train import train

    if not live:
        return train(target, selections, edited=edited)
    from flatout.cli.live import Panel, can_show

    if not can_show():
        _say("--live needs a terminal, and stderr is not one: the training runs without the panel")
        return train(target, selections, edited=edited)
    with Panel() as panel:
        trained = train(target, selections, panel, edited=edited)
    for sentence in panel.last_words:
        _say(sentence)
    return trained


def chosen(recipe: Recipe, only: Sequence[str], path: Path) -> tuple[Kept, ...]:
    """Return the fixes to apply.

    Raises:
        UsageError: `only` names one that is not in the recipe.
    """
    wanted = [word.strip().lower().replace("_", "-") for word in only]
    known = list(dict.fromkeys(kept.selection.fix for kept in recipe.fixes))
    for word, name in zip(only, wanted, strict=True):
        if name not in known:
            close = get_close_matches(name, known)
            advice = f"Did you mean {' or '.join(close)}?" if close else f"It holds: {', '.join(known) or 'no fix'}."
            raise UsageError(f"There is no fix {word!r} in {path}.", advice=advice)
    return tuple(kept for kept in recipe.fixes if not only or kept.selection.fix in wanted)


def _say(text: str) -> None:
    from flatout.report.visible import visible

    click.echo(f"flatout: {visible(text)}", err=True)


def _announce(
    script: str, path: Path, recipe: Recipe, kept: Sequence[Kept], known: Sequence[str], *, verbose: bool
) -> None:
    """Say what will be applied, and what is not as it was where that was proven."""
    if not kept:
        none = f"no fix of {path} acts" if recipe.fixes else f"{path} holds no fix"
        _say(f"{none}: {script} trains unchanged")
        for sentence in known if recipe.fixes else ():
            _say(f"warning: {sentence}")
        return
    from flatout.report.expected import gain_in_words

    whole = len(kept) == len(recipe.fixes)
    proof = recipe.proof
    expected = f"expected to be {gain_in_words(recipe)}; a step was " if recipe.whole is not None else ""
    told = f", {expected}proven {proof.speedup:.2f}x as fast ({proof.low:.2f} to {proof.high:.2f})"
    _say(f"{script} trains under {path}{told if whole else ''}")
    for each in kept:
        _say(f"  {each.selection.label} ({each.equivalence}, {each.speedup:.2f}x)")
    if verbose:
        _say(
            f"  proven {proof.date} with flatout {proof.flatout}, torch {proof.torch}, Python {proof.python}"
            f" on {proof.device}, {proof.num_cpus} cores, {proof.num_pairs} pairs"
        )
    for sentence in known:
        _say(f"warning: {sentence}")


def _compare(recipe: Recipe, trained: "Trained", *, comparable: bool) -> None:
    """Say how long the training took, and what the untouched script takes where that was measured of the same."""
    from flatout.report.expected import outcome_in_words

    same = comparable and not trained.exit_code and recipe.equivalence is not Equivalence.SEMANTIC
    told = outcome_in_words(
        recipe if same else replace(recipe, whole=None),
        trained.took_s,
        trained.ranks.get(0, 0),
        stepped_s=trained.stepped_s,
        foreign_share=trained.foreign_share,
    )
    if told:
        _say(told)


def _nothing_done(exit_code: int, *, walked: bool) -> str:
    """Return why a fix is not known to have done anything: there was nothing to do, or the script ended before.

    `walked`: it was asked to serve loaders.
    """
    if not exit_code:
        return "no batch came from memory" if walked else "found nothing to act on"
    number = exit_code - _KILLED
    if number == signal.SIGINT:
        return "had not acted when the script was interrupted (Ctrl-C)"
    if number in set(signal.Signals):
        memory = "; memory may have run out: see the system log" if number == signal.SIGKILL else ""
        return f"may not have acted: the script was killed by {signal.Signals(number).name}{memory}"
    return f"had not acted when the script ended with exit code {exit_code}"


def _account(trained: "Trained", later: Sequence[str], *, verbose: bool) -> None:
    """Say what each fix did, and which could not act."""
    for sentence in later:
        _say(f"warning: {sentence}")
    for act in trained.acts:
        if act.hits or not act.failures:
            told = ", ".join(f"{name} {count}" for name, count in act.hits.items())
            nothing = act.stood_back or _nothing_done(trained.exit_code, walked=bool(act.loaders))
            _say(f"{act.selection.label}: {told or nothing}")
            for account in act.loaders.values():
                _say(f"  {account}")
        for reason, processes in act.failures.items():
            where = f" in {processes} processes" if processes > 1 else ""
            _say(f"{act.selection.label} could not act{where} and was left out: {reason}")
    for note in trained.notes:
        _say(f"warning: {note}")
    if verbose:
        for rank, steps in sorted(trained.ranks.items()):
            _say(f"rank {rank}: {steps} optimizer steps")
