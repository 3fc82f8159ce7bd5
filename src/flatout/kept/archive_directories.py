"""What is known of archives that are opened again and again: their directories, each for one file as it is.

A directory is kept from the second time on that a file is opened, so a data set with an archive for each sample costs
nothing but a question to the system.
"""

import io
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

__all__ = ["IMMUTABLE", "ArchiveDirectories", "copied", "is_plain_file", "slots_of"]

_MOST_SEEN, _MOST_ENTRIES = 10_000, 400_000

IMMUTABLE = (type(None), bool, int, float, str, bytes)

Directory = TypeVar("Directory")


class ArchiveDirectories(Generic[Directory]):
    """Directories by key: the identity of a file, and in which way it is read."""

    def __init__(self) -> None:
        """Know none yet."""
        self._seen: OrderedDict[object, None] = OrderedDict()
        self._kept: OrderedDict[object, tuple[Directory, int]] = OrderedDict()
        self._entries = 0

    def known(self, key: object) -> Directory | None:
        """Return the directory that is kept under `key`."""
        found = self._kept.get(key)
        return found[0] if found is not None else None

    def is_met_again(self, key: object) -> bool:
        """Return whether an archive was read before, and note that it is read now."""
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return False

    def keep(self, key: object, directory: Directory, entries: int) -> None:
        """Keep a directory of so many entries; those kept longest go where there are too many."""
        if entries > _MOST_ENTRIES:
            return
        self._kept[key] = directory, entries
        self._entries = sum(number for _, number in self._kept.values())
        while self._entries > _MOST_ENTRIES:
            _, (_, number) = self._kept.popitem(last=False)
            self._entries -= number


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
