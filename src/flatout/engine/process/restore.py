"""Puts the user's files back as they were before an observed execution, from the journal its processes wrote."""

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flatout.state_folder import journal_folder

__all__ = ["Aside", "restore", "restore_files"]

_KEPT_BYTES = 16 * 1024 * 1024
_NOTE = {"act": str, "place": str, "other": str, "number": int}


def restore_files(folder: Path) -> int:
    """Undo what the execution recorded in `folder` did to files, as `restore` does; return how many acts."""
    return restore(folder)[0]


def restore(folder: Path) -> tuple[int, list[str]]:
    """Undo what the execution recorded in `folder` did to files; return how many acts were undone, and their places.

    The journal is the one in the user's state folder; whatever lies in `folder` itself tells nothing. New files up to
    16 MiB move to `folder/files/written`, larger ones are removed; files that existed return as they were. Safe to be
    killed and called again: the journal is cut back act by act. What cannot be put back is named in
    `folder/files/not-restored.txt`, and what was kept of it stays in `folder/files/kept`.
    """
    files, own = folder / "files", Path(journal_folder(str(folder)))
    journal = own / "journal"
    failures = []
    places = []
    aside = Aside(files, own)
    for offset, entry in reversed(list(_entries(_read_own(journal)))):
        try:
            _undo(entry, aside)
            places.append(entry["place"])
        except OSError as error:
            failures.append(f"{entry['place']}: {error.strerror or error} (kept: {entry['other'] or 'nothing'})")
        with contextlib.suppress(OSError):
            os.truncate(journal, offset)
    with contextlib.suppress(OSError):
        journal.unlink(missing_ok=True)
        shutil.rmtree(own / "known", ignore_errors=True)
        if failures:
            (files / "not-restored.txt").write_text("\n".join(failures) + "\n", encoding="utf-8", errors="replace")
        elif not (files / "not-restored.txt").exists():
            shutil.rmtree(files / "kept", ignore_errors=True)
    return len(places), places


def _read_own(journal: Path) -> bytes:
    """Return what a journal says that is a plain file of this user, which nobody else can write."""
    try:
        handle = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        return file.read() if own else b""


def _entries(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each note and where it begins; one that was cut off was followed by no act."""
    offset = 0
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            entry = json.loads(line)
            if all(isinstance(entry[name], kind) for name, kind in _NOTE.items()) and os.path.isabs(entry["place"]):
                yield offset, entry
        offset += len(line) + 1


class Aside:
    """Where new files go: `files/written`, as they lay below the working folder."""

    def __init__(self, files: Path, own: Path) -> None:
        """Take the recording's folder for files, and the journal's, which knows the working folder."""
        self._top = files / "written"
        try:
            self._working = Path(os.fsdecode((own / "working").read_bytes()))
        except OSError:
            self._working = Path.cwd()

    def set_aside(self, place: Path, known_as: Path | None = None) -> None:
        """Move what lies at `place` away, or remove it when it is large or cannot be moved.

        `known_as` is where the script saw it, when that was elsewhere.
        """
        known_as = known_as or place
        if place.is_dir() and not place.is_symlink():
            for child in list(place.iterdir()):
                self.set_aside(child, known_as / child.name)
            place.rmdir()
            return
        try:
            found = place.lstat()
        except OSError:
            return
        shared = found.st_nlink > 1  # another name of something kept, or of the user's
        if shared or found.st_size > _KEPT_BYTES:
            place.unlink()
            return
        try:
            target = self._target(known_as)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(place, target)
        except OSError:  # a full disk, mostly: the user's folder comes first
            place.unlink()

    def _target(self, place: Path) -> Path:
        below = place.relative_to(self._working if place.is_relative_to(self._working) else place.anchor)
        target = self._top / below
        number = 1
        while os.path.lexists(target):
            target = self._top / f"{below}.{number}"
            number += 1
        return target


def _undo(entry: dict[str, Any], written: Aside) -> None:
    act, place, other = entry["act"], Path(entry["place"]), Path(entry["other"])
    if place != Path(os.path.realpath(place.parent)) / place.name:
        raise OSError(errno.ELOOP, "a link now points elsewhere", str(place))
    if act in ("created", "folder"):
        written.set_aside(place)
    elif act in ("kept", "tree") and os.path.lexists(other):
        _put_back(other, place)
    elif act == "removed_folder":
        _make_folder(place)
        place.chmod(entry["number"])
    elif act == "renamed" and other.is_dir():
        if other.stat().st_ino == entry["number"]:
            written.set_aside(place)
        if not os.path.lexists(place):  # else the script tried, and it was refused
            _put_back(other, place)
    elif act == "stat" and place.exists():
        _put_stat_back(place, entry)


def _put_stat_back(place: Path, entry: dict[str, Any]) -> None:
    accessed, modified, inode = map(int, entry["other"].split())
    found = place.stat()
    if found.st_ino == inode or found.st_nlink == 1:  # else another name of something that was never touched
        place.chmod(entry["number"])
        os.utime(place, ns=(accessed, modified))


def _put_back(kept: Path, place: Path) -> None:
    _make_folder(place.parent)
    if os.path.lexists(place) and (place.is_dir() or kept.is_dir()):
        _remove(place)
    try:
        kept.replace(place)
    except OSError:  # another device
        if os.path.lexists(place):
            _remove(place)
        shutil.move(kept, place)


def _make_folder(folder: Path) -> None:
    """Make a folder that was there before; a file or a link in its place is the script's."""
    if folder.is_symlink() or not folder.is_dir():
        _make_folder(folder.parent)
        _remove(folder)
        folder.mkdir()


def _remove(place: Path) -> None:
    """Remove what lies there, if anything does."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
