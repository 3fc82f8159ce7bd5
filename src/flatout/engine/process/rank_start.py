"""The start of one rank, before it becomes the script: where it prints, which files it writes, which device it sees.

Rank 0 is the script as the user knows it. All others print nothing, and what they write goes to a private copy of the
file system, in which they find again what they have written themselves.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from flatout.engine.process.launch import TRACKERS_OFF, session_folder
from flatout.engine.process.private_world import Refused, World
from flatout.schema.order import ORDER_VARIABLE
from flatout.schema.ranks import FOLDER_VARIABLE, GROUP_FILE, OUTPUT_VARIABLE, SESSION_VARIABLE

__all__ = ["ERRORS_FILE", "REFUSED_FILE", "ROOMS_FILE", "main"]

ERRORS_FILE = "rank-{rank}.err"
"""In the ranks' folder: what a rank that prints nothing has written to stderr."""

REFUSED_FILE = "no-private-copy.txt"
"""In the ranks' folder: why a rank cannot have a private copy of the file system."""

ROOMS_FILE = "rooms-{start}-{rank}.json"
"""In the ranks' folder: the folders that hold what a rank has written, by the process that has started it."""

_PR_SET_PDEATHSIG = 1
_NO_COPY = 71  # exit code


def main() -> None:
    """Become the command line behind the ranks' folder, as the rank that the launcher's variables name."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    rank = int(os.environ["RANK"])
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ[SESSION_VARIABLE] = str(os.getsid(0))
    (folder / GROUP_FILE).write_text(os.environ["GROUP_RANK"], encoding="ascii")
    _choose_device(int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    if rank:
        _step_back(folder, rank)
    if sys.platform == "linux":  # last: another user namespace forgets it
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.execvp(command[0], command)


def _choose_device(local_rank: int, local_ranks: int) -> None:
    """Let this rank see one device of its own where there is one for each, so that `cuda` is right in the script."""
    devices = _visible_devices()
    if len(devices) >= local_ranks:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[local_rank]
        os.environ["FLATOUT_OWN_DEVICE"] = "1"


def _visible_devices() -> list[str]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [each.strip() for each in listed.split(",") if each.strip() not in ("", "-1")]
    import pynvml

    try:
        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def _step_back(folder: Path, rank: int) -> None:
    """Print nothing, read no input, track no experiment, and write to a private copy."""
    os.environ.update(TRACKERS_OFF)
    kept = [os.dup(1), os.dup(2)]
    for number in kept:
        os.set_inheritable(number, True)
    os.environ[OUTPUT_VARIABLE] = ",".join(map(str, kept))
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(folder / ERRORS_FILE.format(rank=rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, number in ((nothing, 0), (nothing, 1), (errors, 2)):
        os.dup2(source, number)
    journal = folder / f"world-{os.getppid()}-{rank}"
    journal.mkdir()
    try:
        world = World(os.getcwd(), str(folder), str(journal), _session())
        paths = [room.path for room in world.rooms]
        (folder / ROOMS_FILE.format(start=os.getppid(), rank=rank)).write_text(json.dumps(paths), encoding="utf-8")
        for room in world.rooms:
            os.set_inheritable(room.lock, True)  # held for as long as the rank lives
        world.enter()
    except (Refused, OSError) as error:
        (folder / REFUSED_FILE).write_text(str(error), encoding="utf-8")
        os._exit(_NO_COPY)


def _session() -> list[str]:
    """Return the folder of the diagnosis or tune that this start is part of, which is to hear of every rank."""
    order = os.environ.get(ORDER_VARIABLE)
    return [str(session_folder(Path(order).parent))] if order else []


if __name__ == "__main__":
    main()
