"""Which places of the file system a measured run gets a copy of its own of, and which it shares with the user.

Private is all that the user may write: his home, the working folder, temporary folders, other disks. Shared stay the
system's own places (devices, `/run`), caches that can be made again at a price, sockets and named pipes, which lead to
other programs, and the folders flatout itself writes to.
"""

import contextlib
import itertools
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flatout.engine.process.mounts import Mount, mounts

__all__ = [
    "SELDOM_WRITTEN",
    "WorldPlan",
    "caches",
    "channels",
    "foreign_file",
    "is_below",
    "other_disks",
    "plan_places",
]

SYSTEM = ("/dev", "/proc", "/sys", "/run", "/var/run")
SELDOM_WRITTEN = (
    "/usr",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/boot",
    "/lost+found",
    "/media",
)
_PSEUDO = frozenset(
    (
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "ramfs",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    )
)
_MOST_CHILDREN = 256  # of a folder that are looked at, one by one
_MOST_ENTRIES = 3000  # of a place that is searched for sockets and named pipes, three levels deep
_MOST_CHANNELS = 64


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """What is private and what is shared; the deepest place that a path lies in decides."""

    working: str
    private: tuple[str, ...]
    shared: tuple[str, ...]

    def in_order(self) -> list[tuple[str, bool]]:
        """Return every place with whether it is private, shallow ones first."""
        places = {**dict.fromkeys(self.private, True), **dict.fromkeys(self.shared, False)}
        return sorted(places.items(), key=lambda one: (one[0].count(os.sep), one[0]))

    def is_private(self, place: str) -> bool:
        """Say whether `place` lies in a private place, and in no shared one that is deeper."""
        return next((private for top, private in reversed(self.in_order()) if is_below(place, [top])), False)


def plan_places(working: str, own: Iterable[str], found: Sequence[Mount]) -> WorldPlan:
    """Return what is private for a script started in `working`, when flatout writes to the folders `own`."""
    plain = [one for one in found if one.kind not in _PSEUDO and not is_below(one.place, SYSTEM)]
    writable = _writable(plain)
    on_demand = {one.place for one in found if one.kind == "autofs"}
    candidates = dict.fromkeys([*_tops(on_demand), *writable, os.path.expanduser("~"), tempfile.gettempdir(), working])
    real = {os.path.realpath(place) for place in candidates if os.path.isdir(place)}
    real = {place for place in real if place != "/" and not is_below(place, SYSTEM)}
    points = {one.place for one in plain}
    private = {place for place in real if _stands_alone(place, real, points)}
    shared = [os.path.realpath(place) for place in [*caches(), *own] if os.path.isdir(place)]
    if any(is_below(working, [place]) for place in [*shared, *SYSTEM]):
        private.add(working)
    shared += [one.place for one in found if one.place not in private and is_below(one.place, private)]
    for top in {working, os.path.realpath(tempfile.gettempdir())}:
        shared += channels(top)
    return WorldPlan(working, tuple(sorted(private - {*shared})), tuple(shared))


def other_disks() -> list[str]:
    """Return where file systems are mounted that this user may write, the system's own and the root left out."""
    with contextlib.suppress(OSError):
        found = (one for one in mounts() if one.kind not in _PSEUDO and not is_below(one.place, SYSTEM))
        return [place for place in _writable(found) if os.access(place, os.W_OK)]
    return []


def _writable(found: Iterable[Mount]) -> list[str]:
    return [one.place for one in found if not one.read_only and one.place != "/" and os.path.isdir(one.place)]


def is_below(place: str, tops: Iterable[str]) -> bool:
    """Say whether `place` is one of `tops` or lies in one."""
    return any(place == top or place.startswith(top.rstrip("/") + "/") for top in tops)


def caches() -> list[str]:
    """Return the folders of caches, which outlive a measured run: what they hold can be made again, at a price."""
    temporary, mps = tempfile.gettempdir(), os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    try:
        import getpass

        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR", os.path.join(temporary, f"torchinductor_{user}"))
    return [os.path.expanduser("~/.cache"), os.path.expanduser("~/.triton"), compiled, mps]


def channels(top: str) -> list[str]:
    """Return sockets and named pipes in `top`, three levels deep: a copy of one would lead nowhere."""
    found = []
    with contextlib.suppress(OSError):
        for entry in itertools.islice(_entries(top, 3), _MOST_ENTRIES):
            with contextlib.suppress(OSError):
                mode = 0 if entry.is_dir(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                    found.append(entry.path)
    return found[:_MOST_CHANNELS]


def foreign_file(top: str, depth: int = 2) -> str:
    """Return something in `top` that its user may write and that is another user's or group's, "" where nothing is.

    In a user namespace only the user's own ids have names: the kernel refuses to copy what others own (EOVERFLOW).
    """
    uid, gid = os.geteuid(), os.getegid()
    with contextlib.suppress(OSError):
        for entry in itertools.islice(_entries(top, depth), _MOST_CHILDREN):
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                others = (found.st_uid, found.st_gid) != (uid, gid) and not stat.S_ISLNK(found.st_mode)
                if others and os.access(entry.path, os.W_OK):
                    return entry.path
    return ""


def _entries(top: str, depth: int) -> Iterator["os.DirEntry[str]"]:
    """Yield what lies in `top`, shallow things first; folders that cannot be read are passed over."""
    level = [top]
    for _ in range(depth):
        below: list[str] = []
        for folder in level:
            with contextlib.suppress(OSError), os.scandir(folder) as found:
                for entry in found:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
        level = below


def _tops(on_demand: set[str]) -> list[str]:
    """Return the places at the top of the file system that this user may write: all of them for root.

    Homes of others are not looked at, nor places where looking mounts file systems.
    """
    tops = [top for top in _children("/") if top not in on_demand]
    if os.geteuid() == 0:
        return tops
    found = []
    for top in tops:
        if os.access(top, os.W_OK):
            found.append(top)
        elif top not in (*SELDOM_WRITTEN, *SYSTEM, "/home", "/net", "/afs"):
            found += [child for child in _children(top) if os.access(child, os.W_OK)]
    return found


def _children(folder: str) -> list[str]:
    """Return the folders in `folder`, links left out."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        few = itertools.islice(found, _MOST_CHILDREN)
        return sorted(entry.path for entry in few if entry.is_dir(follow_symlinks=False))
    return []


def _stands_alone(place: str, others: set[str], points: set[str]) -> bool:
    """Say whether no other place has `place` in it on the same file system."""
    while place not in points and place != "/":
        place = os.path.dirname(place)
        if place in others:
            return False
    return True
