"""`flatout run --nproc-per-node`: a script of one process on several ranks, and what is said of it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.errors import NothingMeasured, UsageError

if TYPE_CHECKING:
    from flatout.engine.placement import Placement, RanksAsked
    from flatout.engine.process.target import Target
    from flatout.engine.train_ranks import RanksTrained
    from flatout.schema.recipe import Recipe

__all__ = ["require_names", "train_as_asked", "train_as_proven"]

_LAUNCHED = {"RANK": "WORLD_SIZE", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE"}
"""Variables of launchers: which process this is, and of how many."""


def require_names(option: str, words: Sequence[str]) -> None:
    """Refuse a number of ranks where `option` takes names.

    Raises:
        UsageError: one of `words` is one.
    """
    for word in words:
        if word.strip().isdecimal() or word.strip().lower() == "gpu":
            raise UsageError(
                f"{option} {word}: this option takes names, and no number of ranks.",
                advice=f"For ranks: --nproc-per-node {word}",
            )


def train_as_asked(
    target: "Target",
    asked: "RanksAsked",
    recipe_file: Path | None,
    refused: Sequence[str],
    *,
    print_sbatch: bool,
    verbose: bool,
) -> int:
    """Train on the ranks that options ask for, or print a batch file that does so; return the exit code.

    `refused` are other options that were given and mean nothing on ranks.

    Raises:
        UsageError: options do not go together, or the recipe that was given does not exist.
    """
    from flatout.engine.placement import place
    from flatout.engine.recipe import find_recipe

    _require_number(asked, print_sbatch=print_sbatch)
    if "--live" in refused:
        raise UsageError("--live shows one process, and --nproc-per-node starts several.", advice="Leave one out.")
    if refused:
        raise UsageError(
            f"{' and '.join(refused)} {'is' if len(refused) == 1 else 'are'} about the fixes of a recipe, and"
            " --nproc-per-node trains without them.",
            advice=f"Leave out {' and '.join(refused)}, or --nproc-per-node.",
        )
    if print_sbatch:
        return _print_batch_file(target, asked, verbose=verbose)
    try:
        recipe = find_recipe(target, recipe_file)
    except UsageError:
        if recipe_file is not None:
            raise
        recipe = None
    left_out = f"the fixes of {recipe} were proven in one process, and are left out" if recipe is not None else ""
    alone = "`flatout run` without --nproc-per-node trains in one process."
    return _run_on_ranks(target, place(asked), left_out, alone, verbose=verbose)


def _require_number(asked: "RanksAsked", *, print_sbatch: bool) -> None:
    """Say what an option needs that says more of ranks whose number is not given."""
    if asked.ranks is not None:
        return
    if asked.shard is not None:
        raise UsageError(
            "--shard shares parameters among the ranks of --nproc-per-node, and that is not given.",
            advice="Try: flatout run --nproc-per-node 2 --shard train.py",
        )
    if (asked.nodes, asked.endpoint) != (None, None):
        raise UsageError(
            "--nnodes and --rdzv-endpoint say where the ranks of --nproc-per-node run, and that is not given.",
            advice="Try: flatout run --nproc-per-node gpu --nnodes 2 --rdzv-endpoint HOST:29400 train.py",
        )
    if print_sbatch:
        raise UsageError(
            "--print-sbatch needs the number of ranks on each machine.",
            advice="Try: flatout run --nproc-per-node gpu --nnodes 2 --print-sbatch train.py > train.sbatch",
        )


def train_as_proven(
    target: "Target", recipe: "Recipe", path: Path, options: Sequence[str], *, live: bool, verbose: bool
) -> int | None:
    """Train on the ranks of a recipe; return the exit code, None where it has to be one process, which is said.

    `options` were given, and are about fixes.

    Raises:
        UsageError: it was proven for one machine, and this is started on several; or its ranks cannot be shown.
    """
    from flatout.engine.placement import place_here
    from flatout.engine.provenance import here, warnings
    from flatout.engine.ranked_target import why_no_private_copy

    assert recipe.ranks is not None
    number = recipe.ranks.number
    table, without = f"[ranks] of {path}", f"delete the table [ranks] in {path}"
    why = _why_in_one_process(target)
    if live and not why:
        raise UsageError(
            f"--live shows one process, and {table} starts {number}.",
            advice=f"Leave --live out. To train in one process, {without}.",
        )
    placement = None if why else place_here(str(number), f"{path} was proven on {number} ranks of one machine")
    refused = why_no_private_copy(target) if placement is not None else ""
    if placement is None or refused:
        why = why or f"ranks cannot have a private copy of the file system here ({refused})"
        _say(f"{table}, {number} ranks, is left out: {why}")
        return None
    kept = recipe.ranks.as_kept
    _say(
        f"{path}: {kept.selection.label}, proven {kept.speedup:.2f}x as fast ({kept.low:.2f} to {kept.high:.2f}) with"
        f" results equal by {kept.equivalence} over {recipe.ranks.steps} steps"
    )
    for sentence in warnings(recipe, target, here(target)):
        _say(f"warning: {sentence}")
    about = [*options, *([f"the fixes of {path}"] if recipe.fixes else [])]
    left_out = f"on ranks no fix is applied, so {' and '.join(about)} mean nothing" if about else ""
    return _run_on_ranks(target, placement, left_out, f"To train in one process, {without}.", verbose=verbose)


def _why_in_one_process(target: "Target") -> str:
    """Return why a command line is not one that the ranks of a recipe take the place of, "" where it is."""
    from flatout.engine.ranked_target import is_script

    if not is_script(target):
        return f"ranks are started of a script or module alone, and the command line begins with {target.command[0]}"
    for own, number in _LAUNCHED.items():
        others = os.environ.get(number, "").strip()
        if own in os.environ and others.isdecimal() and int(others) > 1:
            return f"{number} says that this is one of {others} processes already"
    return ""


def _run_on_ranks(target: "Target", placement: "Placement", left_out: str, alone: str, *, verbose: bool) -> int:
    """Train on ranks; return the script's exit code. `left_out`: what is not applied; `alone`: how to do without."""
    from flatout.engine.train_ranks import train_on_ranks
    from flatout.report.ranks import ranks_in_words

    where = f" on {placement.nodes} machines" if placement.nodes > 1 else ""
    _say(f"{target.name} trains on {placement.size} ranks{where}, with the batches and results of one process")
    if placement.shard:
        within = "of its machine " if placement.shard == "node" and placement.nodes > 1 else ""
        _say(f"each rank {within}keeps a share of parameters, gradients and optimizer state")
    for sentence in (placement.note, left_out):
        if sentence:
            _say(sentence)
    trained = train_on_ranks(target, placement)
    if trained.refused:
        raise NothingMeasured(
            "Only rank 0 may write files, and the others cannot have a private copy of the file system here"
            f" ({trained.refused}).",
            "Nothing was trained.",
            alone,
        )
    _tell_failure(trained)
    for sentence in ranks_in_words(trained.accounts, size=placement.size):
        _say(sentence)
    if verbose:
        for account in trained.accounts:
            times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in account.get("seconds", {}).items())
            _say(f"rank {account['rank']}: {times or 'nothing was measured'}")
    return trained.exit_code


def _print_batch_file(target: "Target", asked: "RanksAsked", *, verbose: bool) -> int:
    """Print a batch file for SLURM: what is asked for, with what SLURM says of its machines.

    Raises:
        UsageError: the numbers of ranks or machines make no sense, or nobody knows how many GPUs there are.
    """
    from flatout.engine.placement import number_of_machines, number_of_ranks
    from flatout.engine.ranked_target import require_script
    from flatout.engine.slurm import default_partition
    from flatout.report.batch_file import batch_file

    require_script(target)
    if asked.endpoint is not None:
        raise UsageError(
            "--print-sbatch does not go together with --rdzv-endpoint: the machines of a job meet where SLURM says.",
            advice="Leave --rdzv-endpoint out.",
        )
    nodes = 1 if asked.nodes is None else number_of_machines(asked.nodes)
    there = default_partition()
    gpus = there.gpus if there is not None else 0
    ranks = asked.ranks or ""
    on_gpus = ranks.strip().lower() == "gpu"
    number = gpus if on_gpus and gpus else number_of_ranks(ranks)
    command = [sys.executable, "-m", "flatout", "run", "--nproc-per-node", "gpu" if on_gpus else str(number)]
    command += [f"--shard={asked.shard}"] if asked.shard is not None else []
    command += ["--verbose"] if verbose else []
    text = batch_file(
        Path(target.name).stem,
        [*command, *target.command[1:]],
        nodes=nodes,
        cpus=there.cpus if there is not None else 0,
        gpus=number if on_gpus or gpus else 0,
        partition=there.name if there is not None else "",
        limit=there.limit if there is not None else "",
    )
    click.echo(text, nl=False)
    return 0


def _tell_failure(trained: "RanksTrained") -> None:
    """Say why it has ended, here and on other machines, as far as no rank has said it."""
    from flatout.report.rank_failures import failure_in_words

    for failure in [trained.killed] if trained.killed is not None else []:
        _say(failure_in_words(failure))
    if trained.failed_rank > 0 and (trained.killed is None or trained.said.strip()):
        _say(f"rank {trained.failed_rank} has {'written' if trained.killed is not None else 'failed'}:")
        click.echo(trained.said, err=True, nl=not trained.said.endswith("\n"))
    for failure in trained.elsewhere:
        _say(failure_in_words(failure))
    if trained.not_begun:
        _say(f"the machines have not met, and nothing was trained: {trained.not_begun}")


def _say(text: str) -> None:
    from flatout.report.visible import visible

    click.echo(f"flatout: {visible(text)}", err=True)
