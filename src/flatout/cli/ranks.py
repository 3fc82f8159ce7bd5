"""`flatout run --nproc-per-node`: a script of one process on several ranks, and what is said of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.errors import NothingMeasured, UsageError

if TYPE_CHECKING:
    from flatout.engine.process.target import Target
    from flatout.engine.train_ranks import RanksTrained

__all__ = ["run_on_ranks", "without_ranks"]


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


def _tell_failure(trained: "RanksTrained") -> None:
    if trained.failed_rank > 0:
        _say(f"rank {trained.failed_rank} has failed:")
        click.echo(trained.said, err=True, nl=not trained.said.endswith("\n"))


def _say(text: str) -> None:
    from flatout.report.visible import visible

    click.echo(f"flatout: {visible(text)}", err=True)
