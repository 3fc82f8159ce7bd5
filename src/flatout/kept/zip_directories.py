"""Directories of zip archives, kept: `zipfile.ZipFile` reads that of a file again each time it is opened.

An archive that is opened is a new object with a file of its own, as ever; only its list of members is not read. A
member is copied when it is asked for by name, all of them when somebody looks at the list itself.
"""

import threading
import zipfile
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

__all__ = ["ZipDirectories"]

_LISTS = ("filelist", "NameToInfo")
_INFO = zipfile.ZipInfo

Read = Callable[..., Any]


class ZipDirectories:
    """Answers what `ZipFile` reads of the directory of a file that is as it was."""

    absent = staticmethod(unfolded(_LISTS))  # one function: of a class that has it already, it is known as ours

    def __init__(self, files: KnownFiles, acted: Callable[[], None]) -> None:
        """Keep nothing yet; `acted` is told of each directory that is not read."""
        self._acted = acted
        self._kept: ArchiveDirectories[_ZipDirectory] = ArchiveDirectories(files)

    def reading(self, original: Read) -> Read:
        """Return what stands for `ZipFile._RealGetContents`."""

        def read(archive: Any) -> None:
            key = _key(archive)
            if key is None:
                original(archive)
                return
            known = self._kept.known(key)
            if known is not None:
                known.give(archive)
                self._acted()
                return
            before = dict(vars(archive))
            original(archive)
            self._kept.met(key, archive.fp.fileno(), str(archive.filename), lambda: _directory(archive, before))

        return read

    def finding(self, original: Read) -> Read:
        """Return what stands for `ZipFile.getinfo`."""

        def getinfo(archive: Any, name: Any) -> Any:
            members = vars(archive).get(MARK)
            found = members.find(archive, name) if members is not None and type(name) is str else None
            return original(archive, name) if found is None else found

        return getinfo

    def naming(self, original: Read) -> Read:
        """Return what stands for `ZipFile.namelist`."""

        def namelist(archive: Any) -> Any:
            members = vars(archive).get(MARK)
            return original(archive) if members is None else members.names()

        return namelist


class _ZipDirectory:
    """The directory of one file, of which nobody else has an entry."""

    def __init__(self, infos: list[Any], places: dict[str, int], set_: dict[str, Any], position: int) -> None:
        self.infos, self.places = infos, places
        self.filenames = [info.filename for info in infos]
        self._set, self._position = set_, position

    def give(self, archive: Any) -> None:
        """Let `archive` stand as if it had read the directory."""
        held = vars(archive)
        held.update(self._set)
        for name in _LISTS:
            del held[name]
        held[MARK] = _Members(self)
        archive.fp.seek(self._position)


class _Members:
    """The members of one opened archive: copies, made when they are asked for."""

    def __init__(self, directory: _ZipDirectory) -> None:
        self._directory = directory
        self._copies: dict[int, Any] = {}
        self._lists: dict[str, Any] = {}
        self._lock = threading.RLock()

    def find(self, archive: Any, name: str) -> Any:
        """Return the member of that name; None where there is none, or the lists are filled in."""
        place = self._directory.places.get(name)
        with self._lock:
            return None if place is None or _LISTS[0] in vars(archive) else self._copy(place)

    def names(self) -> list[str]:
        """Return the names of all members, as they are by now."""
        found = list(self._directory.filenames)
        with self._lock:
            for place, info in self._copies.items():
                found[place] = info.filename
        return found

    def unfold(self, archive: Any) -> None:
        """Give `archive` the lists that it would have; to copies of it the same ones."""
        with self._lock:
            if not self._lists:
                infos = [self._copy(place) for place in range(len(self._directory.infos))]
                by_name = {name: infos[place] for name, place in self._directory.places.items()}
                self._lists = {"filelist": infos, "NameToInfo": by_name}
            vars(archive).update(self._lists)
            vars(archive).pop(MARK, None)

    def _copy(self, place: int) -> Any:
        if place not in self._copies:
            self._copies[place] = copied(self._directory.infos[place], _SLOTS, changes={})
        return self._copies[place]


_SLOTS = slots_of(_INFO)


def _key(archive: Any) -> tuple[Any, ...] | None:
    """Return what a directory is known by; None for an archive that is read in an unusual way."""
    plain = type(archive) is zipfile.ZipFile and archive.mode == "r" and not archive.debug and zipfile.ZipInfo is _INFO
    if not plain or not is_plain_file(archive.fp) or vars(archive).get("filelist"):
        return None
    identity = identity_of(archive.fp.fileno())
    return None if identity is None else (identity, getattr(archive, "metadata_encoding", None))


def _directory(archive: Any, before: dict[str, Any]) -> _ZipDirectory | None:
    """Return the directory that `archive` has read just now; None where it has done anything else besides."""
    held = vars(archive)
    infos = held["filelist"]
    set_ = {name: value for name, value in held.items() if name not in before or before[name] is not value}
    places = {id(info): place for place, info in enumerate(infos)}
    by_name = {name: places.get(id(info)) for name, info in held["NameToInfo"].items()}
    entries = all(type(info) is _INFO and _is_immutable(info) for info in infos)
    if not entries or None in by_name.values() or not all(isinstance(value, IMMUTABLE) for value in set_.values()):
        return None
    copies = [copied(info, _SLOTS, changes={}) for info in infos]
    return _ZipDirectory(copies, {name: int(place or 0) for name, place in by_name.items()}, set_, archive.fp.tell())


def _is_immutable(info: Any) -> bool:
    values = [getattr(info, name, None) for name in _SLOTS]
    return all(isinstance(value, IMMUTABLE) or type(value) is tuple for value in values)
