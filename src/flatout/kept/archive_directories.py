"""What is known of archives that are opened again and again: their directories, each for one file as it is.

A directory is kept from the second time on that a file is opened, so a data set with an archive for each sample costs
nothing but a question to the system.
"""

import io
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from flatout.kept.known_files import KnownFiles

__all__ = ["IMMUTABLE", "MARK", "ArchiveDirectories", "copied", "is_plain_file", "slots_of", "unfolded"]

_MOST_SEEN, _MOST_ENTRIES = 10_000, 400_000

IMMUTABLE = (type(None), bool, int, float, str, bytes)

MARK = "_flatout_members"
"""The attribute of an archive that has members which were not read."""


class _Directory(Protocol):
    @property
    def infos(self) -> list[Any]: ...


Directory = TypeVar("Directory", bound=_Directory)


Key = tuple[Any, ...]
"""The identity of a file, and in which way it is read."""


class ArchiveDirectories(Generic[Directory]):
    """Directories by key: the identity of a file, and in which way it is read."""

    def __init__(self, files: KnownFiles) -> None:
        """Know none yet; `files` says of which files something may be kept."""
        self._files = files
        self._seen: OrderedDict[Key, None] = OrderedDict()
        self._kept: OrderedDict[Key, tuple[Directory, int]] = OrderedDict()
        self._entries = 0

    def known(self, key: Key) -> Directory | None:
        """Return the directory that is kept under `key`."""
        found = None if self._files.is_mapped(key[0]) else self._kept.get(key)
        return found[0] if found is not None else None

    def met(self, key: Key, number: int, name: str, read: Callable[[], Directory | None]) -> None:
        """Keep what `read()` gives of an archive that was read just now, unless that is the first time, or not right.

        `number`, `name`: the descriptor and the name of its file.
        """
        if self._is_met_again(key) and self._files.may_keep(number, name, key[0]):
            directory = read()
            if directory is not None:
                self._keep(key, directory, len(directory.infos))

    def _is_met_again(self, key: Key) -> bool:
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return False

    def _keep(self, key: Key, directory: Directory, entries: int) -> None:
        """Keep a directory of so many entries; those kept longest go where there are too many."""
        if entries > _MOST_ENTRIES:
            return
        self._kept[key] = directory, entries
        self._entries = sum(number for _, number in self._kept.values())
        while self._entries > _MOST_ENTRIES:
            _, (_, number) = self._kept.popitem(last=False)
            self._entries -= number


def unfolded(lists: Sequence[str]) -> Callable[[Any, str], Any]:
    """Return what stands for `__getattr__`, which archives have none of: it fills in `lists` that are not there."""

    def absent(archive: Any, name: str) -> Any:
        members = vars(archive).get(MARK) if name in lists else None
        if members is None:
            return object.__getattribute__(archive, name)  # raises what it would raise
        members.unfold(archive)
        return vars(archive)[name]

    return absent


def is_plain_file(file: Any) -> bool:
    """Return whether `file` is what `open(path, "rb")` returns."""
    return type(file) is io.BufferedReader and type(file.raw) is io.FileIO and not file.closed


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots of a class whose instances have nothing else."""
    return tuple(kind.__dict__.get("__slots__", ()))


def copied(entry: Any, names: tuple[str, ...], *, changes: Mapping[str, Any]) -> Any:
    """Return an entry with the slots of another one, but for those in `changes`."""
    kind: Any = type(entry)
    made = kind.__new__(kind)
    for name in names:
        if name in changes:
            setattr(made, name, changes[name])
        elif hasattr(entry, name):
            setattr(made, name, getattr(entry, name))
    return made
