"""Linux mounts by way of the C library: what is mounted where, and a namespace in which more can be."""

import ctypes
import os
import re
from dataclasses import dataclass

__all__ = ["MS_BIND", "MS_REC", "Mount", "is_first_user_namespace", "leave_namespaces", "may_mount", "mount", "mounts"]

_CAP_SYS_ADMIN = 1 << 21
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
MS_BIND = 0x1000
MS_REC = 0x4000
_MS_SLAVE = 1 << 19  # what the system mounts later, on demand, is seen here, too; never the other way

_libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork that uses it


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system: where, of what kind, and whether it can be written at all."""

    place: str
    kind: str
    read_only: bool = False


def mounts(text: str | None = None) -> list[Mount]:
    """Return what is mounted and can be seen, shallow places first; `text` in place of `/proc/self/mountinfo`.

    Raises:
        OSError: there is no `/proc`.
    """
    if text is None:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    known: dict[str, tuple[str, Mount]] = {}  # number: number of what it is mounted on, and the mount
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) >= 6 and len(rest) >= 3:
            place = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
            options = [*fields[5].split(","), *rest[2].split(",")]
            known[fields[0]] = fields[1], Mount(place, rest[0], "ro" in options)
    seen = [one for number, (_, one) in known.items() if not _is_hidden(number, known)]
    return sorted(seen, key=lambda one: (one.place.count("/"), one.place))


def _is_hidden(number: str, known: dict[str, tuple[str, Mount]]) -> bool:
    """Say whether another mount lies over this one, or over the place that it is mounted in."""
    parent, one = known[number]
    for other, (others_parent, what) in known.items():
        over = others_parent == number and what.place == one.place
        above = others_parent == parent and one.place.startswith(what.place.rstrip("/") + "/")
        if other != number and (over or above):
            return True
    if parent not in known or parent == number:
        return False
    stacked = known[parent][1].place == one.place
    return not stacked and _is_hidden(parent, known)


def is_first_user_namespace() -> bool:
    """Say whether this process lives in the system's own user namespace, where root is root."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == ["0", "0", "4294967295"]
    except OSError:
        return False


def may_mount() -> bool:
    """Say whether this process may mount as it is: root of the system, unless a container took that from it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    except OSError:
        return False
    return is_first_user_namespace() and bool(int(effective, 16) & _CAP_SYS_ADMIN)


def leave_namespaces(*, users: bool) -> None:
    """Give this process mounts of its own; with `users` by a user namespace, in which it stays who it is.

    Raises:
        OSError: the kernel, or who set it up, does not allow it.
    """
    uid, gid = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if users else 0)), "unshare")
    if users:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    mount("", "/", "", MS_REC | _MS_SLAVE)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source` at `target`.

    Raises:
        OSError: as the system call answers.
    """
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    code = _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), options.encode() if options else None)
    _checked(code, target)


def _checked(code: int, place: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)
