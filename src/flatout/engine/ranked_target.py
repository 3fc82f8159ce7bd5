"""A script that knows one process, as the command line that starts it on several ranks."""

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flatout.engine.placement import Placement
from flatout.engine.process.private_folders import MEMORY, Room, make_room, remove_left_over_rooms
from flatout.engine.process.rank_start import REFUSED_FILE
from flatout.engine.process.target import Target
from flatout.errors import UsageError
from flatout.schema.ranks import MEMORY_LINK, RankLaunch, write_launch

__all__ = ["is_script", "ranked", "require_script", "why_no_private_copy"]

_LAUNCHER = "import os; from flatout.ranks.launcher import main; os._exit(main())"  # threads may still wait
_LAUNCH_FILE = "launch.json"


@contextlib.contextmanager
def ranked(target: Target, placement: Placement) -> Iterator[tuple[Target, Path]]:
    """Return what starts `target` on the ranks of `placement`, as often as one likes, and the folder that they share.

    The folder goes at the end, with all that ranks have left.

    Raises:
        UsageError: the command line is not that of a Python script or module.
    """
    require_script(target)
    remove_left_over_rooms()
    with _room(tempfile.gettempdir()) as name, _in_memory() as memory:
        folder = Path(name)
        for inner in ("parts", "batches"):
            (folder / inner).mkdir()
        if memory:
            (folder / MEMORY_LINK).symlink_to(memory)
        start = (sys.executable, "-m", "flatout.engine.process.rank_start", str(folder), *target.command)
        launch = RankLaunch(
            ranks=placement.ranks, nodes=placement.nodes, endpoint=placement.endpoint, job=placement.job, command=start
        )
        write_launch(launch, folder / _LAUNCH_FILE)
        command = (sys.executable, "-c", _LAUNCHER, str(folder / _LAUNCH_FILE))
        try:
            with _same_hashes(placement):
                yield dataclasses.replace(target, command=command), folder
        finally:
            _remove_rooms(folder)


def is_script(target: Target) -> bool:
    """Return whether a command line is that of a Python script or module, which flatout can start as ranks."""
    return Path(target.command[0]) == Path(sys.executable)


def require_script(target: Target) -> None:
    """Refuse a command line that flatout cannot start as ranks.

    Raises:
        UsageError: it is not that of a Python script or module.
    """
    if not is_script(target):
        raise UsageError(
            f"--nproc-per-node starts a Python script or module, and {target.command[0]} is neither.",
            advice="Leave the launcher out: flatout run --nproc-per-node 2 train.py",
        )


def why_no_private_copy(target: Target) -> str:
    """Return why ranks of `target` cannot write to private copies here, "" where they can: one tries it, and ends."""
    with ranked(target, Placement(2)) as (_, folder):
        names = {"RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
        start = (sys.executable, "-m", "flatout.engine.process.rank_start", str(folder), "true")
        with contextlib.suppress(OSError):
            subprocess.run(start, env={**os.environ, **names}, stdin=subprocess.DEVNULL, check=False)
        with contextlib.suppress(OSError):
            return (folder / REFUSED_FILE).read_text(encoding="utf-8")
    return ""


@contextlib.contextmanager
def _in_memory() -> Iterator[str]:
    """Make a folder in memory that no other user can write to; "" where there is none. It goes with all that is in it.

    What lies in it is unpickled, so its name must not be one that somebody can make before.
    """
    with contextlib.ExitStack() as stack:
        folder = ""
        with contextlib.suppress(OSError):
            folder = stack.enter_context(_room(MEMORY))
        yield folder


@contextlib.contextmanager
def _room(top: str) -> Iterator[str]:
    """Make a folder in `top` that goes at the end, or with the next command of this user where this one is killed."""
    room = make_room(top)
    try:
        yield room.path
    finally:
        room.remove()


@contextlib.contextmanager
def _same_hashes(placement: Placement) -> Iterator[None]:
    """Let sets of strings have the same order in all ranks: Python draws it anew for each process."""
    before = os.environ.get("PYTHONHASHSEED")
    if before not in (None, "", "random"):
        yield
        return
    seed = random.Random(placement.job).randrange(1, 2**32)
    os.environ["PYTHONHASHSEED"] = str(seed)
    try:
        yield
    finally:
        os.environ.pop("PYTHONHASHSEED", None)
        if before is not None:
            os.environ["PYTHONHASHSEED"] = before


def _remove_rooms(folder: Path) -> None:
    for listed in folder.glob("rooms-*.json"):
        with contextlib.suppress(OSError, ValueError):
            for path in json.loads(listed.read_text(encoding="utf-8")):
                Room(path, -1).remove()
