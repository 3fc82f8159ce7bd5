"""`flatout run --nproc-per-node`: a script of one process on several ranks, and what is said of it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.errors import NothingMeasured, UsageError

if TYPE_CHECKING:
    from flatout.engine.process.target import Target
    from flatout.engine.train_ranks import RanksTrained

__all__ = ["print_batch_file", "run_on_ranks", "without_ranks"]


def without_ranks(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Return `words` without what `--nproc-per-node` was given, which shares its option with them, and that.

    Raises:
        UsageError: it was given more than once.
    """
    ranks = [word for word in words if word.strip().isdecimal() or word.strip().lower() == "gpu"]
    if len(ranks) > 1:
        raise UsageError(f"--nproc-per-node is given as {' and '.join(ranks)}.", advice="Give one number, or gpu.")
    return tuple(word for word in words if word not in ranks), (ranks[0] if ranks else None)


def run_on_ranks(target: "Target", ranks: str, machines: Sequence[str], *, recipe: Path | None, verbose: bool) -> int:
    """Train on the ranks that are asked for; return the script's exit code."""
    from flatout.engine.placement import place
    from flatout.engine.train_ranks import train_on_ranks
    from flatout.report.ranks import ranks_in_words

    placement = place(ranks, machines)
    where = f" on {placement.nodes} machines" if placement.nodes > 1 else ""
    _say(f"{target.name} trains on {placement.size} ranks{where}, with the batches and results of one process")
    if placement.shard:
        within = "of its machine " if placement.shard == "node" and placement.nodes > 1 else ""
        _say(f"each rank {within}keeps a share of parameters, gradients and optimizer state")
    if placement.note:
        _say(placement.note)
    if recipe is not None:
        _say(f"the fixes of {recipe} were proven in one process, and are left out")
    trained = train_on_ranks(target, placement)
    if trained.refused:
        raise NothingMeasured(
            "Only rank 0 may write files, and the others cannot have a private copy of the file system here"
            f" ({trained.refused}).",
            "Nothing was trained.",
            "`flatout run` without --nproc-per-node trains in one process.",
        )
    _tell_failure(trained)
    for sentence in ranks_in_words(trained.accounts, size=placement.size):
        _say(sentence)
    if verbose:
        for account in trained.accounts:
            times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in account.get("seconds", {}).items())
            _say(f"rank {account['rank']}: {times or 'nothing was measured'}")
    return trained.exit_code


def print_batch_file(target: "Target", ranks: str, machines: Sequence[str]) -> int:
    """Print a batch file for SLURM: what is asked for, with what SLURM says of its machines.

    Raises:
        UsageError: the numbers of ranks or machines make no sense, or nobody knows how many GPUs there are.
    """
    from flatout.engine.placement import number_of_machines, number_of_ranks
    from flatout.engine.ranked_target import require_script
    from flatout.engine.slurm import default_partition
    from flatout.report.batch_file import batch_file

    require_script(target)
    nodes, _ = number_of_machines(machines)
    there = default_partition()
    gpus = there.gpus if there is not None else 0
    on_gpus = ranks.strip().lower() == "gpu"
    number = gpus if on_gpus and gpus else number_of_ranks(ranks)
    command = [sys.executable, "-m", "flatout", "run", "--nproc-per-node", "gpu" if on_gpus else str(number)]
    command += [f"--shard={one}" for one in machines if one in ("all", "node")]
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
