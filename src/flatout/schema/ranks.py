"""What the launcher of ranks is asked to do, how it ended, and the variables by which processes know each other."""

import json
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = [
    "CANNOT_BEGIN",
    "END_FILE",
    "FOLDER_VARIABLE",
    "GROUP_FILE",
    "LAUNCHER_VARIABLE",
    "LEAVE_FILE",
    "MEMORY_LINK",
    "OUTPUT_VARIABLE",
    "SESSION_VARIABLE",
    "FailureKind",
    "LaunchEnd",
    "RankFailure",
    "RankLaunch",
    "is_rank",
    "read_end",
    "read_launch",
    "write_end",
    "write_launch",
]

END_FILE = "ended.json"
"""Beside the file that asks for a launch: how it ended."""

GROUP_FILE = "group-rank"
"""In the order's folder: which of the machines this one is, once all have met and a rank begins here."""

LEAVE_FILE = "leave"
"""In the order's folder, once the training cannot go on: a rank ends when it waits for others."""

LAUNCHER_VARIABLE = "FLATOUT_RANKS_LAUNCHER"
"""Internal: the process that starts ranks; those whose parent it is are ranks."""

FOLDER_VARIABLE = "FLATOUT_RANKS_FOLDER"
"""Internal: the folder that ranks of one machine share."""

MEMORY_LINK = "memory"
"""In that folder: leads to one in memory in which ranks hand each other batches."""

OUTPUT_VARIABLE = "FLATOUT_RANKS_OUTPUT"
"""Internal: under which numbers a rank that prints nothing keeps the streams that it was given."""


SESSION_VARIABLE = "FLATOUT_RANKS_SESSION"
"""Internal: the session of a rank, in which what it starts stays unless it goes on purpose."""

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


class FailureKind(StrEnum):
    """What a machine tells the others of its end, or what they see of it."""

    RANK = "rank"  # a rank has ended with an exit code, or by a signal
    SIGNAL = "signal"  # flatout was ended by a signal there
    GONE = "gone"  # flatout has ended there without a word
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """Why a training of several ranks cannot go on, seen from one machine."""

    kind: FailureKind
    host: str = ""  # "" for this machine, where it is the only one
    rank: int = -1
    code: int = 0  # exit code, negative for a signal


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnd:
    """How the ranks of one machine have ended."""

    exit_code: int
    first: int = -1  # the rank of this machine that failed first
    exit_codes: dict[int, int] = field(default_factory=dict)  # of the ranks of this machine that failed
    elsewhere: tuple[RankFailure, ...] = ()  # what ended the training on other machines
    error: str = ""  # why the ranks could not be started


def write_launch(launch: RankLaunch, path: Path) -> None:
    """Write it where the launcher is told to look."""
    path.write_text(json.dumps(asdict(launch)), encoding="utf-8")


def read_launch(path: Path) -> RankLaunch:
    """Return what `write_launch` has written."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return RankLaunch(**{**found, "command": tuple(found["command"])})


def write_end(end: LaunchEnd, path: Path) -> None:
    """Write it where the process that started the launcher looks."""
    path.write_text(json.dumps(asdict(end)), encoding="utf-8")


def read_end(path: Path) -> LaunchEnd:
    """Return what `write_end` has written.

    Raises:
        OSError: the launcher was ended before.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    codes = {int(rank): code for rank, code in found["exit_codes"].items()}
    elsewhere = tuple(RankFailure(**{**one, "kind": FailureKind(one["kind"])}) for one in found["elsewhere"])
    return LaunchEnd(**{**found, "exit_codes": codes, "elsewhere": elsewhere})
