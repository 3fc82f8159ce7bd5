"""Listings of folders before and after an execution: what changed past the guard is named.

Where there can be no private copy, the guard sees what Python does, and not what C code, shell commands and other
programs do. Names, sizes, times and inodes of what lies in the working folder, and near it, tell of those.
"""

import contextlib
import os
import stat
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from flatout.state_folder import state_folder

__all__ = ["Listing", "differences", "list_places", "listed_tops", "sentence"]

_MOST_ENTRIES, _LONGEST_S = 40_000, 1.0  # of the working folder
_FEWER_ENTRIES, _SHORTER_S = 8_000, 0.2  # of each other place
_MOST_PLACES = 12
_SHOWN = 12
_PASSED_OVER = frozenset((".flatout", "__pycache__"))

Look = tuple[int, int, int, int, int, int]  # kind and mode, size, mtime, inode, names, ctime


@dataclass(slots=True)
class Listing:
    """What lay where at one moment, as far as it was looked at."""

    found: dict[str, Look] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)  # that were listed to their end
    complete: bool = True


def listed_tops(working: str, words: Iterable[str] = (), disks: Iterable[str] = ()) -> list[str]:
    """Return the places that are listed, the working folder first.

    Then its neighbours, folders that `words` of the command line name, home, the temporary folder, and other `disks`.
    """
    named = []
    for word in words:
        place = word.partition("=")[2] if word.startswith("-") else word
        if os.path.isabs(place):
            named.append(place if os.path.isdir(place) else os.path.dirname(place))
    home = os.path.expanduser("~")
    wanted = [working, os.path.dirname(working), *named, home, tempfile.gettempdir(), *disks]
    real = dict.fromkeys(os.path.realpath(place) for place in wanted)
    return [place for place in real if os.path.isdir(place) and place != "/"][:_MOST_PLACES]


def list_places(tops: Iterable[str], like: Listing | None = None) -> Listing:
    """List `tops`, shallow things first: the first for 1 s and 40,000 entries, each other one for 0.2 s and 8,000.

    Of the others, names that begin with a dot are passed over: browsers, shells and caches write there. Files and
    folders that links lead to count. `like` gives each place three times as long, to list what was listed then.
    """
    listing = Listing()
    most, longest_s, hidden = _MOST_ENTRIES, _LONGEST_S, True
    factor = 1 if like is None else 3
    for top in tops:
        until, limit = time.monotonic() + factor * longest_s, len(listing.found) + factor * most
        waiting = deque([top])
        while waiting:
            folder = waiting.popleft()
            if folder in listing.folders or (like is not None and folder in like.found and folder not in like.folders):
                continue
            if time.monotonic() > until or len(listing.found) > limit:
                listing.complete = listing.complete and not hidden
                break
            waiting += _list_folder(folder, listing, hidden=hidden)
        most, longest_s, hidden = _FEWER_ENTRIES, _SHORTER_S, False
    return listing


def _list_folder(folder: str, listing: Listing, *, hidden: bool) -> list[str]:
    """Add what lies in `folder`; return the folders in it, and those that links in it lead to."""
    below = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    listing.folders.add(folder)
    own = state_folder()
    for entry in entries:
        if entry.name in _PASSED_OVER or entry.path == own or (entry.name.startswith(".") and not hidden):
            continue
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            listing.found[entry.path] = _look(found)
            if stat.S_ISDIR(found.st_mode):
                below.append(entry.path)
            elif stat.S_ISLNK(found.st_mode) and hidden:
                place = os.path.realpath(entry.path)
                behind = os.lstat(place)
                if stat.S_ISDIR(behind.st_mode):
                    below.append(place)
                else:
                    listing.found.setdefault(place, _look(behind))
    return below


def _look(found: os.stat_result) -> Look:
    if stat.S_ISDIR(found.st_mode):
        return found.st_mode, 0, 0, found.st_ino, 1, 0
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino, found.st_nlink, found.st_ctime_ns


def differences(before: Listing, after: Listing, put_back: Iterable[str], working: str = "/") -> list[str]:
    """Return what is not as it was, each with how, that in `working` first; `put_back` was changed by the guard itself.

    What is new counts in folders that were listed before, the temporary folder left out.
    """
    handled = set(put_back)
    named = []
    for place, look in before.found.items():
        now = after.found.get(place)
        if now is None:
            if os.path.dirname(place) in after.folders or not os.path.lexists(place):
                named.append((place, "removed"))
        elif not _same(look, now, strict=place not in handled and look[4] == 1):
            named.append((place, "changed"))
    inside = os.path.join(working, "")
    fresh = (place for place in after.found if place not in before.found)
    folders = before.folders - ({os.path.realpath(tempfile.gettempdir())} - {working})
    named += [(place, "new") for place in fresh if os.path.dirname(place) in folders]
    named.sort(key=lambda one: (not one[0].startswith(inside), one[0].count(os.sep), one[0]))
    return [f"{place} ({how})" for place, how in named]


def _same(before: Look, now: Look, *, strict: bool) -> bool:
    if stat.S_ISDIR(before[0]):
        return before[0] == now[0]
    if strict:
        return before[:4] == now[:4] and before[5] == now[5]
    return before[:3] == now[:3]


def sentence(named: list[str], working: str, *, complete: bool) -> str:
    """Return the note on what changed past the guard, "" where nothing did."""
    inside = [one for one in named if one.startswith(os.path.join(working, ""))]
    elsewhere = named[len(inside) :]
    told = []
    if inside:
        told.append(f"{_counted(inside)} changed past the guard while the script was measured: {_shown(inside)}")
    if elsewhere:
        place = "outside of the working folder, by the script or by other programs"
        told.append(f"{_counted(elsewhere)} changed meanwhile {place}: {_shown(elsewhere)}")
    if not complete:
        told.append(
            "the working folder is too large to be listed completely: some changes past the guard may not be named"
        )
    return "; ".join(told)


def _counted(named: list[str]) -> str:
    return "1 file or folder" if len(named) == 1 else f"{len(named)} files or folders"


def _shown(named: list[str]) -> str:
    more = f" and {len(named) - _SHOWN} more (all in files/past-the-guard.txt)" if len(named) > _SHOWN else ""
    return ", ".join(named[:_SHOWN]) + more
