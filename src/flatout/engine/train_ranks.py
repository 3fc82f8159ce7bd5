"""A whole training of a script that knows one process, on several: started, waited for, and accounted for."""

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.engine.placement import Placement
from flatout.engine.process.private_folders import Room
from flatout.engine.process.rank_start import ERRORS_FILE, REFUSED_FILE
from flatout.engine.process.target import Target
from flatout.engine.train import ORDER_FILE, train_observed
from flatout.errors import UsageError
from flatout.schema.codec import write_order
from flatout.schema.order import Order
from flatout.schema.ranks import RankLaunch, write_launch

__all__ = ["RanksTrained", "train_on_ranks"]

_LAUNCHER = "import sys; from flatout.ranks.launcher import main; sys.exit(main())"
_LAUNCH_FILE = "launch.json"
_MOST_SHOWN = 8000  # bytes of what a rank has written to stderr


@dataclass(slots=True)
class RanksTrained:
    """How a training on several ranks has ended."""

    exit_code: int
    accounts: list[dict[str, Any]] = field(default_factory=list)  # of the ranks of this machine, by rank
    failed_rank: int = -1  # the first one that failed, where another one has not said why
    said: str = ""  # what that rank has written to stderr
    refused: str = ""  # why ranks cannot write to a private copy


def train_on_ranks(target: Target, placement: Placement) -> RanksTrained:
    """Run `target` to its end on the ranks of `placement`.

    Raises:
        UsageError: the command line is not that of a Python script or module.
        NothingMeasured: it could not be started.
    """
    if Path(target.command[0]) != Path(sys.executable):
        raise UsageError(
            f"--nproc-per-node starts a Python script or module, and {target.command[0]} is neither.",
            advice="Leave the launcher out: flatout run --nproc-per-node 2 train.py",
        )
    with tempfile.TemporaryDirectory(prefix="flatout-", ignore_cleanup_errors=True) as name, _in_memory() as memory:
        folder = Path(name)
        (folder / "parts").mkdir()
        (folder / "batches").mkdir()
        order = Order(
            mode="run",
            folder=str(folder),
            script=target.name,
            protect_files=False,
            ranks=True,
            shard=placement.shard,
            ranks_memory=memory,
        )
        write_order(order, folder / ORDER_FILE)
        start = (sys.executable, "-m", "flatout.engine.process.rank_start", str(folder), *target.command)
        launch = RankLaunch(
            ranks=placement.ranks, nodes=placement.nodes, endpoint=placement.endpoint, job=placement.job, command=start
        )
        write_launch(launch, folder / _LAUNCH_FILE)
        command = (sys.executable, "-c", _LAUNCHER, str(folder / _LAUNCH_FILE))
        with _same_hashes(placement):
            code = train_observed(Target(target.name, command), folder / ORDER_FILE)
        _remove_rooms(folder)
        return _trained(code, folder)


@contextlib.contextmanager
def _in_memory() -> Iterator[str]:
    """Make a folder in memory that no other user can write to; "" where there is none. It goes with all that is in it.

    What lies in it is unpickled, so its name must not be one that somebody can make before.
    """
    try:
        folder = tempfile.mkdtemp(prefix="flatout-", dir="/dev/shm")
    except OSError:
        folder = ""
    try:
        yield folder
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _same_hashes(placement: Placement) -> Any:
    """Let sets of strings have the same order in all ranks: Python draws it anew for each process."""
    if os.environ.get("PYTHONHASHSEED", "random") != "random":
        yield
        return
    seed = random.Random(placement.job).randrange(1, 2**32)
    os.environ["PYTHONHASHSEED"] = str(seed)
    try:
        yield
    finally:
        del os.environ["PYTHONHASHSEED"]


def _remove_rooms(folder: Path) -> None:
    for listed in folder.glob("rooms-*.json"):
        with contextlib.suppress(OSError, ValueError):
            for path in json.loads(listed.read_text(encoding="utf-8")):
                Room(path, -1).remove()


def _trained(code: int, folder: Path) -> RanksTrained:
    trained = RanksTrained(code)
    for path in folder.glob("rank-*.json"):
        with contextlib.suppress(OSError, ValueError):
            trained.accounts.append(json.loads(path.read_text(encoding="utf-8")))
    trained.accounts.sort(key=lambda account: int(account["rank"]))
    with contextlib.suppress(OSError):
        trained.refused = (folder / REFUSED_FILE).read_text(encoding="utf-8")
    with contextlib.suppress(OSError, ValueError):
        ended = json.loads((folder / "ended.json").read_text(encoding="utf-8"))
        trained.failed_rank = int(ended["first"])
        said = any("stopped" in one or (one["rank"] == 0 and one.get("failed")) for one in trained.accounts)
        if said or int(ended["exit_codes"].get("0", -1)) > 0:
            trained.failed_rank = -1  # rank 0 has written why to the terminal, or all know it
    if trained.failed_rank > 0:
        with contextlib.suppress(OSError):
            trained.said = _end_of(folder / ERRORS_FILE.format(rank=trained.failed_rank))
    return trained


def _end_of(path: Path) -> str:
    return path.read_bytes()[-_MOST_SHOWN:].decode(errors="replace")
