"""A whole training of a script that knows one process, on several: started, waited for, and accounted for."""

import contextlib
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.engine.placement import Placement
from flatout.engine.process.rank_start import ERRORS_FILE, REFUSED_FILE
from flatout.engine.process.target import Target
from flatout.engine.ranked_target import ranked
from flatout.engine.train import ORDER_FILE, train_observed
from flatout.schema.codec import write_order
from flatout.schema.order import Order
from flatout.schema.ranks import END_FILE, FailureKind, LaunchEnd, RankFailure, read_end

__all__ = ["RanksTrained", "train_on_ranks"]

_ASKED_FOR = (signal.SIGINT,)  # Ctrl-C
_MOST_SHOWN = 8000  # bytes of what a rank has written to stderr


@dataclass(slots=True)
class RanksTrained:
    """How a training on several ranks has ended."""

    exit_code: int
    accounts: list[dict[str, Any]] = field(default_factory=list)  # of the ranks of this machine, by rank
    failed_rank: int = -1  # the first one that failed, where another one has not said why
    said: str = ""  # what that rank has written to stderr
    killed: RankFailure | None = None  # the first rank of this machine that failed, where that was by a signal
    elsewhere: tuple[RankFailure, ...] = ()  # what ended the training on other machines
    not_begun: str = ""  # why the launcher could not start the ranks
    refused: str = ""  # why ranks cannot write to a private copy


def train_on_ranks(target: Target, placement: Placement) -> RanksTrained:
    """Run `target` to its end on the ranks of `placement`.

    Raises:
        UsageError: the command line is not that of a Python script or module.
        NothingMeasured: it could not be started.
    """
    with ranked(target, placement) as (there, folder):
        order = Order(
            mode="run",
            folder=str(folder),
            script=target.name,
            protect_files=False,
            ranks=True,
            shard=placement.shard,
        )
        write_order(order, folder / ORDER_FILE)
        return _trained(train_observed(there, folder / ORDER_FILE), folder)


def _trained(code: int, folder: Path) -> RanksTrained:
    trained = RanksTrained(code)
    for path in folder.glob("rank-*.json"):
        with contextlib.suppress(OSError, ValueError):
            trained.accounts.append(json.loads(path.read_text(encoding="utf-8")))
    trained.accounts.sort(key=lambda account: int(account["rank"]))
    with contextlib.suppress(OSError):
        trained.refused = (folder / REFUSED_FILE).read_text(encoding="utf-8")
    with contextlib.suppress(OSError):  # the launcher was killed
        _add_failures(trained, read_end(folder / END_FILE))
    if trained.failed_rank > 0:
        with contextlib.suppress(OSError):
            trained.said = _end_of(folder / ERRORS_FILE.format(rank=trained.failed_rank))
    return trained


def _add_failures(trained: RanksTrained, end: LaunchEnd) -> None:
    """Add what the launcher has seen, where no rank has told it already."""
    trained.not_begun = end.error
    told = any("stopped" in one for one in trained.accounts)
    trained.elsewhere = () if told else end.elsewhere
    code = end.exit_codes.get(end.first, 0)
    if code < 0 and -code not in _ASKED_FOR:
        trained.killed = RankFailure(kind=FailureKind.RANK, rank=end.first, code=code)
    told = told or any(one["rank"] == 0 and one.get("failed") for one in trained.accounts)
    if not told and end.exit_codes.get(0, -1) <= 0:  # else rank 0 has written why to the terminal
        trained.failed_rank = end.first


def _end_of(path: Path) -> str:
    return path.read_bytes()[-_MOST_SHOWN:].decode(errors="replace")
