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

__all__ = ["Listing", "differences", "list_places", "listed_tops", "sentence"]

_MOST_ENTRIES = 60_000
_LONGEST_S = 1.0
_SHOWN = 12
_PASSED_OVER = frozenset((".flatout", "__pycache__"))

Look = tuple[int, int, int, int, int, int]  # kind and mode, size, mtime, inode, names, ctime


@dataclass(slots=True)
class Listing:
    """What lay where at one moment, as far as it was looked at."""

    found: dict[str, Look] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)  # that were listed to their end
    complete: bool = True


def listed_tops(working: str) -> list[str]:
    """Return the places that are listed: the working folder first, then home and the temporary folder."""
    others = (os.path.expanduser("~"), tempfile.gettempdir())
    return list(dict.fromkeys(os.path.realpath(place) for place in (working, *others)))


def list_places(tops: Iterable[str], like: Listing | None = None) -> Listing:
    """List `tops`, the first of them whole, shallow things first, for 1 s and up to 60,000 entries.

    Of the others, names that begin with a dot are passed over: browsers, shells and caches write there. `like` lists
    the folders of an earlier listing once more, and no others.
    """
    listing = Listing()
    until = time.monotonic() + _LONGEST_S * (3 if like is not None else 1)
    first = True
    for top in tops:
        waiting = deque([top])
        while waiting:
            if time.monotonic() > until or len(listing.found) > _MOST_ENTRIES * (2 if like is not None else 1):
                listing.complete = False
                break
            folder = waiting.popleft()
            if folder not in listing.folders and (like is None or folder in like.folders or folder not in like.found):
                waiting += _list_folder(folder, listing, hidden=first)
        first = False
    return listing


def _list_folder(folder: str, listing: Listing, *, hidden: bool) -> list[str]:
    below = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    listing.folders.add(folder)
    for entry in entries:
        if entry.name in _PASSED_OVER or (entry.name.startswith(".") and not hidden):
            continue
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            is_folder = stat.S_ISDIR(found.st_mode)
            times = (0, 0) if is_folder else (found.st_mtime_ns, found.st_ctime_ns)
            size = 0 if is_folder else found.st_size
            listing.found[entry.path] = (found.st_mode, size, times[0], found.st_ino, found.st_nlink, times[1])
            if is_folder:
                below.append(entry.path)
    return below


def differences(before: Listing, after: Listing, put_back: Iterable[str]) -> list[str]:
    """Return what is not as it was, each with how, shallow things first; `put_back` was changed by the guard itself.

    Of folders of others than the working one, what is new is not counted where the listing before had not seen it.
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
    fresh = (place for place in after.found if place not in before.found)
    named += [(place, "new") for place in fresh if os.path.dirname(place) in before.folders]
    return [f"{place} ({how})" for place, how in sorted(named, key=lambda one: (one[0].count(os.sep), one[0]))]


def _same(before: Look, now: Look, *, strict: bool) -> bool:
    if stat.S_ISDIR(before[0]):
        return before[0] == now[0]
    if strict:
        return before[:4] == now[:4] and before[5] == now[5]
    return before[:3] == now[:3]


def sentence(named: list[str], *, complete: bool) -> str:
    """Return the note on what changed past the guard, "" where nothing did."""
    if not named:
        return "" if complete else "not all files were looked at for changes past the guard: there are too many of them"
    count = f"{len(named)} file{'s' if len(named) > 1 else ''} or folder{'s' if len(named) > 1 else ''}"
    more = f" and {len(named) - _SHOWN} more (all in files/past-the-guard.txt)" if len(named) > _SHOWN else ""
    return (
        f"{count} changed while the script was measured, by another way than Python's, and stay so: "
        f"{', '.join(named[:_SHOWN])}{more}"
    )
