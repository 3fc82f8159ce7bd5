"""`flatout run`: the whole training under the recipe that `flatout tune` has made."""

import signal
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.cli.options import given_recipe_option, ranks_option, verbose_option
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
        flags = {
            name
            for one in self.get_params(ctx)
            if getattr(one, "is_flag", False)
            for name in (*one.opts, *one.secondary_opts)
        }
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
@ranks_option("Train a script of one process on N ranks of this machine, or on one for each GPU.")
@click.option("--nnodes", "nodes", metavar="M", help="With --nproc-per-node: on M machines; start it on each.")
@click.option(
    "--rdzv-endpoint",
    "endpoint",
    metavar="HOST:PORT",
    help="With --nnodes: where the machines meet, one of them and a free port of it.",
)
@click.option(
    "--shard",
    type=click.Choice(["all", "node"]),
    metavar="[node]",
    help="With --nproc-per-node: each rank keeps a share of parameters, gradients and optimizer state, of all ranks or"
    " (node) of those of its machine.",
)
@click.option("--live", is_flag=True, help="Show the live state of the training below its own output.")
@click.option(
    "--print-sbatch",
    is_flag=True,
    help="With --nproc-per-node: print a batch file for SLURM that trains on these ranks, and train nothing.",
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
    nodes: str | None,
    endpoint: str | None,
    shard: str | None,
    live: bool,
    print_sbatch: bool,
    verbose: bool,
) -> int:
    """Train under flatout.toml, the recipe that `flatout tune` has made.

    SCRIPT is as for `flatout diagnose`. Its input, output, signals and exit code are its own; what flatout has to say
    it says on stderr, before and after.
    """
    from flatout.engine.placement import RanksAsked
    from flatout.engine.process.target import parse_target
    from flatout.engine.recipe import find_recipe

    target = parse_target(words)
    asked = RanksAsked(ranks, nodes, endpoint, shard)
    if asked != RanksAsked() or print_sbatch:
        from flatout.cli.ranks import train_as_asked

        refused = [*_given("only", "on_change", "allow_edits"), *(["--live"] if live else [])]
        return train_as_asked(target, asked, recipe_file, refused, print_sbatch=print_sbatch, verbose=verbose)
    path = find_recipe(target, recipe_file)
    recipe = _read(path, target)
    if recipe.ranks is not None and not only:
        from flatout.cli.ranks import train_as_proven

        code = train_as_proven(target, recipe, path, _given("on_change", "allow_edits"), live=live, verbose=verbose)
        if code is not None:
            return code
    under = _Asked(words, only, on_change, allow_edits=allow_edits, live=live, verbose=verbose)
    return _under_recipe(target, recipe, path, under)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says of a training under fixes."""

    words: tuple[str, ...]
    only: tuple[str, ...]
    on_change: str
    _: KW_ONLY
    allow_edits: bool
    live: bool
    verbose: bool


def _given(*names: str) -> list[str]:
    """Return those options of these names that are on the command line, as they are written there."""
    context = click.get_current_context()
    written = click.core.ParameterSource.COMMANDLINE
    return [f"--{name.replace('_', '-')}" for name in names if context.get_parameter_source(name) is written]


def _under_recipe(target: "Target", recipe: Recipe, path: Path, asked: _Asked) -> int:
    """Train under the fixes of a recipe; return the script's exit code."""
    from flatout.cli.trusted_edits import served_edits
    from flatout.engine.provenance import here, warnings

    served = served_edits(chosen(recipe, asked.only, path), target, path, allow_edits=asked.allow_edits)
    kept = served.kept
    known = warnings(recipe, target, here(target)) if kept else []
    _announce(target.name, path, recipe, kept, [*served.left, *known], verbose=asked.verbose)
    selections = [_with(each.selection, asked.on_change) for each in kept]
    trained = _train(target, selections, served.files, live=asked.live)
    _advise(trained, asked.words)
    told = bool(kept or asked.live)
    later = [each for each in warnings(recipe, target, trained.found) if each not in known] if told else []
    if told:
        _account(trained, later, verbose=asked.verbose)
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
    between = recipe.whole is not None and recipe.whole.tuned.between_s < recipe.whole.plain.between_s
    what = "an epoch" if between else "a step"
    expected = f"expected to be {gain_in_words(recipe)}; {what} was " if recipe.whole is not None else ""
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
