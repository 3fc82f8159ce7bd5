"""A private copy of the world: what a measured run writes, by whatever means, goes to a room that is thrown away.

The process that becomes the script leaves the user's mounts for its own (for a user that is not root by way of a user
namespace, in which he stays who he is) and covers all places that he may write with overlays. C code, shell commands,
memory maps and children write there as ever, and see what they wrote; the user's files are never reached. Paths, user,
group, permissions and devices are the same. Where the kernel does not allow it, `Refused` says why.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.engine.process.mounts import MS_BIND, MS_REC, leave_namespaces, may_mount, mount, mounts
from flatout.engine.process.private_folders import Room, make_rooms
from flatout.engine.process.world_places import SELDOM_WRITTEN, WorldPlan, caches, foreign_file, is_below, plan_places

__all__ = ["HARMFUL_FILE", "WORLD_FILE", "WORLD_VARIABLE", "Refused", "World"]

WORLD_VARIABLE = "FLATOUT_WORLD"
"""Internal: "off" leaves a measured run in the user's own world, as where the kernel allows nothing else."""

HARMFUL_FILE = "no-private-copy"
"""In a session's `files`: says that the script cannot live in a private copy."""

WORLD_FILE = "world.json"
"""In the folder of a journal: which places are private; the processes of the script read it."""

_MEMORY_SHARE = "25%"  # of memory, for copies where no disk is fit for them
_MOST_PARTS = 64  # folders that one is taken apart to where it cannot be covered as a whole


class Refused(Exception):
    """There can be no private copy here; the text says why."""


@dataclass(slots=True)
class _Entered:
    """What came of entering: how places are covered, in which room and under which number there."""

    private: list[tuple[str, int, int]] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


class World:
    """The private copy of one execution: prepared by its guard, entered by its script, removed by the guard."""

    def __init__(self, working: str, session: str, journal: str, also: Sequence[str] = ()) -> None:
        """Prepare for a script started in `working`; flatout itself writes to `session`, `journal` and those in `also`.

        Raises:
            Refused: there can be no private copy.
        """
        if os.environ.get(WORLD_VARIABLE) == "off":
            raise Refused("it is switched off")
        if os.path.lexists(os.path.join(session, "files", HARMFUL_FILE)):
            raise Refused("the script failed in a private copy")
        self._users = not may_mount()
        working = os.path.realpath(working)
        foreign = foreign_file(working) if self._users else ""
        if foreign:
            raise Refused(f"{foreign} belongs to another user or group")
        try:
            found = mounts()
        except OSError as error:
            raise Refused(f"/proc cannot be read: {error.strerror}") from None
        self.plan: WorldPlan = plan_places(working, (session, journal, *also), found)
        self._unborn = [place for place in caches() if not os.path.lexists(place)]
        self._journal = journal
        self._own = tuple(map(os.path.realpath, (session, journal, *also)))
        self._rooms: list[Room] = make_rooms(found)
        os.makedirs(os.path.join(journal, "memory"), mode=0o700, exist_ok=True)
        self._report = os.open(os.path.join(journal, WORLD_FILE), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._fds: dict[str, int] = {}
        self._room_fds: list[int] = []
        self._number = 0

    # -- in the process that becomes the script -------------------------------------------------------------------

    def enter(self) -> None:
        """Move this process into the copy; it must have one thread only.

        Raises:
            OSError: it is not allowed; the reason is in the report, too.
        """
        entered = _Entered()
        try:
            leave_namespaces(users=self._users)
            order = self.plan.in_order()
            for place, _ in order:
                with contextlib.suppress(FileNotFoundError):
                    self._fds[place] = os.open(place, os.O_PATH)
            self._open_rooms()
            for place, private in order:
                if place in self._fds:
                    self._act(place, private, entered)
            self._check_working(entered)
        except OSError as error:
            self._write({"error": f"{error.filename or 'unshare'}: {error.strerror}"})
            raise
        self._write(
            {
                "namespace": os.readlink("/proc/self/ns/mnt"),
                "private": entered.private,
                "shared": entered.shared,
                "left_out": entered.left_out,
                "renames": not self._users,
            }
        )

    def _open_rooms(self) -> None:
        memory = os.path.join(self._journal, "memory")
        places = [room.path for room in self._rooms]
        try:
            mount("tmpfs", memory, "tmpfs", 0, f"size={_MEMORY_SHARE},mode=700")
            places.append(memory)
        except OSError:
            if not places:
                raise
        self._room_fds = [os.open(place, os.O_PATH) for place in places]

    def _act(self, place: str, private: bool, entered: _Entered) -> None:
        if not private:
            try:
                mount(f"/proc/self/fd/{self._fds[place]}", place, "", MS_BIND | MS_REC)
            except OSError:
                if place in self._own:
                    raise
                return  # somebody else's socket, gone since it was seen
            entered.shared.append(place)
            return
        reason = self._cover(place, self._fds[place], entered)
        if not reason:
            return
        if is_below(place, [one[0] for one in entered.private]):  # what lies above is covered: show it again
            mount(f"/proc/self/fd/{self._fds[place]}", place, "", MS_BIND | MS_REC)
            entered.shared.append(place)
        else:
            self._take_apart(place, entered)
        entered.left_out.append((place, reason))

    def _take_apart(self, place: str, entered: _Entered) -> None:
        """Cover the folders in `place` one by one: other file systems in it, or a room, forbid to cover the whole."""
        inside = [*self._fds, *(room.path for room in self._rooms)]
        if not any(one != place and is_below(one, [place]) for one in inside):
            return
        with os.scandir(place) as found:
            parts = [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
        for part in sorted(parts)[:_MOST_PARTS]:
            if part in self._fds:
                continue
            handle = os.open(part, os.O_PATH)
            if self._cover(part, handle, entered):
                self._take_apart(part, entered)

    def _cover(self, place: str, lower: int, entered: _Entered) -> str:
        """Put an overlay over `place`; return why that cannot be, "" where it is done."""
        kind = "userxattr" if self._users else "redirect_dir=on,index=off,metacopy=off"
        if not is_below(self.plan.working, [place]):
            kind += ",volatile"  # its end waits for no disk; where the script saves, syncing costs what it costs
        reason = ""
        rooms = list(enumerate(self._room_fds))
        if place in SELDOM_WRITTEN:
            rooms.reverse()
        for number, room in rooms:
            self._number += 1
            inner = f"/proc/self/fd/{room}/{self._number}"
            for name in ("upper", "work"):
                os.makedirs(f"{inner}/{name}")
            with contextlib.suppress(OSError):
                _look_like(f"{inner}/upper", lower)
            where = f"lowerdir=/proc/self/fd/{lower},upperdir={inner}/upper,workdir={inner}/work"
            try:
                mount("overlay", place, "overlay", 0, f"{where},{kind}")
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            entered.private.append((place, number, self._number))
            return ""
        return reason

    def _check_working(self, entered: _Entered) -> None:
        """Go to the working folder as it is now, and make sure that it is private and can be written.

        Raises:
            OSError: it cannot.
        """
        working = self.plan.working
        around = [one for one in self._places(entered) if is_below(working, [one[0]])]
        deepest = max(around, default=None, key=lambda one: len(one[0]))
        if deepest is None or not deepest[1]:
            reason = next((text for place, text in entered.left_out if is_below(working, [place])), "not covered")
            raise OSError(errno.EXDEV, reason, working)
        os.chdir(working)
        if os.access(working, os.W_OK):
            found = os.stat(working)
            trial = os.path.join(working, f".flatout-{os.getpid()}")
            os.mkdir(trial)
            os.rmdir(trial)
            os.utime(working, ns=(found.st_atime_ns, found.st_mtime_ns))

    @staticmethod
    def _places(entered: _Entered) -> list[tuple[str, bool]]:
        return [*((place, True) for place, _, _ in entered.private), *((place, False) for place in entered.shared)]

    def _write(self, report: dict[str, Any]) -> None:
        os.ftruncate(self._report, 0)
        os.pwrite(self._report, json.dumps(report).encode("utf-8", "surrogateescape"), 0)

    # -- in the guard ---------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return what `enter` left: which places are private, or the error."""
        try:
            found = json.loads(os.pread(self._report, 1 << 22, 0) or b"{}")
        except (ValueError, OSError):
            return {}
        return found if isinstance(found, dict) else {}

    def uppers(self) -> list[tuple[Path, Path]]:
        """Return the covered places, each with the folder that holds what was written there."""
        found = []
        for place, room, number in self.report().get("private", ()):
            if room < len(self._rooms):  # what was in memory is gone with the namespace
                found.append((Path(place), Path(self._rooms[room].path) / str(number) / "upper"))
        return found

    def keep_caches(self) -> None:
        """Let caches stay that the script was the first to fill."""
        for place in self._unborn:
            for top, upper in self.uppers():
                born = upper / os.path.relpath(place, top)
                if is_below(place, [str(top)]) and born.is_dir() and not os.path.lexists(place):
                    with contextlib.suppress(OSError):
                        os.makedirs(os.path.dirname(place), exist_ok=True)
                        shutil.move(born, place)

    @property
    def rooms(self) -> tuple[Room, ...]:
        """The folders that hold what is written."""
        return tuple(self._rooms)

    def remove(self) -> None:
        """Throw away what was written; the script and all it started must have ended."""
        for room in self._rooms:
            room.remove()
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self._journal, "memory"))
        os.close(self._report)


def _look_like(upper: str, lower: int) -> None:
    """Give the top of a copy owner, mode, times and attributes of what it covers."""
    place = f"/proc/self/fd/{lower}"
    found = os.stat(place)
    with contextlib.suppress(OSError):
        os.chown(upper, found.st_uid, found.st_gid)
    shutil.copystat(place, upper)
