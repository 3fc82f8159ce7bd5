"""Lists of the members of tar archives, kept: `tarfile` reads all headers of a file to find a member by its name.

An archive that is opened is a new object with a file of its own, as ever. Once it is asked for a member by name, or for
all, it stands as if it had read the headers. A member is copied when it is asked for, all of them when somebody looks
at the list itself. Only uncompressed archives that are read from their beginning, with tarfile's own settings.
"""

import tarfile
import threading
from collections.abc import Callable
from typing import Any

from flatout.kept.archive_directories import (
    IMMUTABLE,
    MARK,
    ArchiveDirectories,
    copied,
    is_plain_file,
    slots_of,
    unfolded,
)
from flatout.kept.known_files import KnownFiles, identity_of

__all__ = ["TarDirectories"]

_LISTS = ("members", "_loaded", "offset")
_ARCHIVE: Any = tarfile.TarFile
_INFO = tarfile.TarInfo
_SLOTS = slots_of(_INFO)
_LOADING = {"members", "_loaded", "offset", "firstmember"}  # attributes that reading all headers changes
_MOST_COPIES = 64  # of members whose names are looked at before each search

Call = Callable[..., Any]


class TarDirectories:
    """Answers what `TarFile` reads of the headers of a file that is as it was."""

    absent = staticmethod(unfolded(_LISTS))  # one function: of a class that has it already, it is known as ours

    def __init__(self, files: KnownFiles, acted: Callable[[], None]) -> None:
        """Keep nothing yet; `acted` is told of each archive whose headers are not read."""
        self._acted = acted
        self._kept: ArchiveDirectories[_TarDirectory] = ArchiveDirectories(files)

    def loading(self, original: Call) -> Call:
        """Return what stands for `TarFile._load`."""

        def load(archive: Any) -> Any:
            members = self._opened(archive)
            if members is not None:
                members.unfold(archive)
                return None
            key = _key(archive)
            if key is None:
                return original(archive)
            before = dict(vars(archive))
            result = original(archive)
            self._kept.met(key, archive.fileobj.fileno(), str(archive.name), lambda: _directory(archive, before))
            return result

        return load

    def finding(self, original: Call) -> Call:
        """Return what stands for `TarFile.getmember`."""

        def getmember(archive: Any, name: Any) -> Any:
            if type(name) is not str or archive.closed:
                return original(archive, name)
            members = vars(archive).get(MARK) or self._opened(archive)
            found = members.find(archive, name.rstrip("/")) if members is not None else None
            return original(archive, name) if found is None else found

        return getmember

    def _opened(self, archive: Any) -> "_Members | None":
        """Let `archive` stand as if it had read all headers; None where they are not known, or it is past its start."""
        key = _key(archive)
        known = self._kept.known(key) if key is not None else None
        if known is None or not known.begins_with(archive.firstmember):
            return None
        self._acted()
        return known.give(archive)


class _TarDirectory:
    """The members of one file, of which nobody else has an entry."""

    def __init__(self, infos: list[Any], offset: int, position: int) -> None:
        self.infos = infos
        self.names = [info.name for info in infos]
        self.places = {name: place for place, name in enumerate(self.names)}  # the last of a name counts
        self.offset, self._position = offset, position

    def begins_with(self, first: Any) -> bool:
        """Return whether the first member, which every archive reads as it is opened, is as it was."""
        own = self.infos[0]
        return all(getattr(first, name, None) == getattr(own, name, None) for name in _SLOTS)

    def give(self, archive: Any) -> "_Members":
        """Let `archive` stand as if it had read all headers."""
        held = vars(archive)
        members = held[MARK] = _Members(self, held["members"])
        held["firstmember"] = None
        for name in _LISTS:
            del held[name]
        archive.fileobj.seek(self._position)
        return members


class _Members:
    """The members of one opened archive: copies, made when they are asked for."""

    def __init__(self, directory: _TarDirectory, members: list[Any]) -> None:
        self._directory = directory
        self._members = members  # the archive's own list, with the first one in it
        self._copies: dict[int, Any] = {0: members[0]}
        self._lock = threading.RLock()

    def find(self, archive: Any, name: str) -> Any:
        """Return the member of that name; None where there is none, or the archive's own list has to be searched."""
        with self._lock:
            names, place = self._directory.names, self._directory.places.get(name)
            if place is None or MARK not in vars(archive):
                return None
            renamed = any(info.name != names[at] for at, info in self._copies.items())
            if renamed or len(self._copies) > _MOST_COPIES:
                self.unfold(archive)
                return None
            return self._copy(place)

    def unfold(self, archive: Any) -> None:
        """Give `archive` what it would have after reading all headers."""
        with self._lock:
            infos = self._directory.infos
            if len(self._members) < len(infos):
                self._members[1:] = [self._copy(place) for place in range(1, len(infos))]
            vars(archive).update(members=self._members, _loaded=True, offset=self._directory.offset)
            vars(archive).pop(MARK, None)

    def _copy(self, place: int) -> Any:
        if place not in self._copies:
            info = self._directory.infos[place]
            self._copies[place] = copied(info, _SLOTS, changes={"pax_headers": dict(info.pax_headers)})
        return self._copies[place]


def _key(archive: Any) -> tuple[Any, ...] | None:
    """Return what the members are known by; None where `archive` is past its first member, or read in an unusual way.

    Headers are decoded as the archive was told; those of other kinds than tarfile's own are left alone.
    """
    held = vars(archive)
    members, first = held.get("members"), held.get("firstmember")
    plain = type(archive) is _ARCHIVE and archive.mode == "r" and not archive.closed
    kinds = plain and archive.tarinfo is _INFO and not archive.ignore_zeros and not archive.debug
    if not kinds or not is_plain_file(archive.fileobj) or held.get("_loaded") is not False or archive.pax_headers:
        return None
    if not members or len(members) != 1 or members[0] is not first or type(first) is not _INFO or first.offset:
        return None
    identity = identity_of(archive.fileobj.fileno())
    ways = archive.encoding, archive.errors, archive.errorlevel
    return (identity, *ways) if identity is not None and all(isinstance(way, IMMUTABLE) for way in ways) else None


def _directory(archive: Any, before: dict[str, Any]) -> _TarDirectory | None:
    """Return what `archive` has read just now; None where it has done anything else besides, or has unusual members."""
    held = vars(archive)
    changed = {name for name in held if name not in before or before[name] is not held[name]}
    if changed - _LOADING or archive.pax_headers or not all(_is_usual(info) for info in archive.members):
        return None
    infos = [copied(info, _SLOTS, changes={"pax_headers": dict(info.pax_headers)}) for info in archive.members]
    return _TarDirectory(infos, archive.offset, archive.fileobj.tell())


def _is_usual(info: Any) -> bool:
    values = [getattr(info, name, None) for name in _SLOTS if name != "pax_headers"]
    headers = getattr(info, "pax_headers", None)
    plain = type(headers) is dict and all(isinstance(value, IMMUTABLE) for value in headers.values())
    return type(info) is _INFO and plain and all(isinstance(value, IMMUTABLE) for value in values)
