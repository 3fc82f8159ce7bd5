"""Rooms for what a measured run writes: folders of one execution, outside of all that it gets a copy of.

An overlay keeps what is written in a folder that must not lie in what it covers, on a file system of the ordinary
kind. So there are two, in different places, each for the places that the other lies in; both are gone afterwards. One
whose guard was killed is removed by the next flatout of its user.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.engine.process.mounts import Mount
from flatout.state_folder import state_folder

__all__ = ["MEMORY", "Room", "make_room", "make_rooms", "remove_left_over_rooms"]

MEMORY = "/dev/shm"
"""Where folders lie in memory, on systems that have it."""

_REFUSED = frozenset(
    (
        "9p",
        "afs",
        "ceph",
        "cifs",
        "ecryptfs",
        "nfs",
        "nfs4",
        "overlay",
        "smb3",
        "smbfs",
        "squashfs",
        "vboxsf",
        "virtiofs",
    )
)
_LEAST_BYTES = 256 * 1024 * 1024
_YOUNG_S = 10.0  # a room is locked within milliseconds of being made


@dataclass(slots=True)
class Room:
    """One folder for copies; its lock is held as long as it is used."""

    path: str
    lock: int

    def remove(self) -> None:
        """Remove it with all that is in it: its parts at once, as some disks take 3 ms for each folder."""
        with contextlib.suppress(OSError):
            parts = [entry.path for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
            threads = [threading.Thread(target=_remove_tree, args=(part,)) for part in parts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        _remove_tree(self.path)
        with contextlib.suppress(OSError):
            os.close(self.lock)


def make_rooms(found: Sequence[Mount]) -> list[Room]:
    """Make and return up to two rooms where there are at least 256 MiB; none where no disk is fit for them."""
    rooms: list[Room] = []
    for top in _tops():
        if len(rooms) < 2 and _is_fit(top, found):
            with contextlib.suppress(OSError):
                rooms.append(make_room(top))
    return rooms


def make_room(top: str) -> Room:
    """Make and return a room in `top`, which no other user can list or write to.

    Raises:
        OSError: that is not possible.
    """
    path = tempfile.mkdtemp(prefix=_prefix(), dir=top)
    lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Room(path, lock)


def remove_left_over_rooms() -> int:
    """Remove rooms of this user whose guard was killed; return how many there were."""
    count = 0
    for top in (*_tops(), MEMORY):
        for path in glob.glob(os.path.join(glob.escape(top), f"{_prefix()}*")):
            with contextlib.suppress(OSError):
                found = os.lstat(path)
                old = time.time() - found.st_mtime > _YOUNG_S
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and old:
                    count += _remove_unless_held(path)
    return count


def _remove_unless_held(path: str) -> bool:
    try:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        _remove_tree(path)
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        _remove_tree(path)
        return True
    finally:
        os.close(lock)


def _tops() -> list[str]:
    wanted = ["/var/tmp", tempfile.gettempdir(), "/tmp", state_folder()]
    return list(dict.fromkeys(os.path.realpath(top) for top in wanted if os.path.isdir(top)))


def _prefix() -> str:
    return f"flatout-world-{os.geteuid()}-"


def _is_fit(top: str, found: Sequence[Mount]) -> bool:
    """Say whether an overlay may keep its writes in `top`, and there is room."""
    kind = next((one.kind for one in reversed(found) if (top + "/").startswith(one.place.rstrip("/") + "/")), "")
    try:
        room = os.statvfs(top)
    except OSError:
        return False
    fit = kind not in _REFUSED and not kind.startswith("fuse")
    return fit and os.access(top, os.W_OK) and room.f_bavail * room.f_frsize >= _LEAST_BYTES


def _remove_tree(path: str) -> None:
    """Remove `path`, what the script or the kernel made unreadable in it, too; nothing outside of it is changed."""
    _open_up(path)
    shutil.rmtree(path, ignore_errors=True)


def _open_up(path: str) -> None:
    """Let this user list and empty every folder in `path`: work folders of overlays have mode 0."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(folder, 0o700)
            with os.scandir(folder) as found:
                waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
