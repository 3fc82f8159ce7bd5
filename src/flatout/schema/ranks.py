"""What the launcher of ranks is asked to do, and the variables by which it, a rank and its start know each other."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "CANNOT_BEGIN",
    "FOLDER_VARIABLE",
    "LAUNCHER_VARIABLE",
    "MEMORY_LINK",
    "OUTPUT_VARIABLE",
    "RankLaunch",
    "is_rank",
    "read_launch",
    "write_launch",
]

LAUNCHER_VARIABLE = "FLATOUT_RANKS_LAUNCHER"
"""Internal: the process that starts ranks; those whose parent it is are ranks."""

FOLDER_VARIABLE = "FLATOUT_RANKS_FOLDER"
"""Internal: the folder that ranks of one machine share."""

MEMORY_LINK = "memory"
"""In that folder: leads to one in memory in which ranks hand each other batches."""

OUTPUT_VARIABLE = "FLATOUT_RANKS_OUTPUT"
"""Internal: under which numbers a rank that prints nothing keeps the streams that it was given."""


CANNOT_BEGIN = 70
"""Exit code of a process that was to be a rank, and of an error of flatout's own in it."""


def is_rank() -> bool:
    """Return whether the launcher has started this process itself; children of ranks are none."""
    return os.environ.get(LAUNCHER_VARIABLE) == str(os.getppid())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLaunch:
    """The ranks of one machine."""

    ranks: int  # on this machine
    nodes: int
    endpoint: str  # host:port where machines meet, "" for one machine
    job: str  # the same on all machines
    command: tuple[str, ...]


def write_launch(launch: RankLaunch, path: Path) -> None:
    """Write it where the launcher is told to look."""
    path.write_text(json.dumps(asdict(launch)), encoding="utf-8")


def read_launch(path: Path) -> RankLaunch:
    """Return what `write_launch` has written."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return RankLaunch(**{**found, "command": tuple(found["command"])})
