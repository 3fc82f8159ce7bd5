"""Puts the user's files back as they were before an observed execution, from the journal its processes wrote."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["restore_files"]

_KEPT_BYTES = 16 * 1024 * 1024


def restore_files(folder: Path) -> int:
    """Undo what the execution recorded in `folder` did to files; return how many acts were undone.

    New files up to 16 MiB move to `folder/files/written`, larger ones are removed; files that existed return as they
    were. Safe to be killed and called again: the journal is cut back act by act. What cannot be put back is named in
    `folder/files/not-restored.txt`, and what was kept of it stays in `folder/files/kept`.
    """
    files = folder / "files"
    journal = files / "journal"
    try:
        data = journal.read_bytes()
    except OSError:
        data = b""
    failures = []
    num_undone = 0
    for offset, entry in reversed(list(_entries(data))):
        try:
            _undo(entry, files / "written")
            num_undone += 1
        except OSError as error:
            failures.append(f"{entry['place']}: {error.strerror or error} (kept: {entry['other'] or 'nothing'})")
        with contextlib.suppress(OSError):
            os.truncate(journal, offset)
    with contextlib.suppress(OSError):
        journal.unlink(missing_ok=True)
        shutil.rmtree(files / "known", ignore_errors=True)
        if failures:
            (files / "not-restored.txt").write_text("\n".join(failures) + "\n", encoding="utf-8", errors="replace")
        elif not (files / "not-restored.txt").exists():
            shutil.rmtree(files / "kept", ignore_errors=True)
    return num_undone


def _entries(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each note and where it begins; one that was cut off was followed by no act."""
    offset = 0
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            yield offset, {name: entry[name] for name in ("act", "place", "other", "number")}
        offset += len(line) + 1


def _undo(entry: dict[str, Any], written: Path) -> None:
    act, place, other = entry["act"], Path(entry["place"]), Path(entry["other"])
    if act in ("created", "folder"):
        _set_aside(place, written)
    elif act == "kept" and os.path.lexists(other):
        _put_back(other, place)
    elif act == "tree" and other.is_dir():
        if os.path.lexists(place):
            _remove(place)
        _put_back(other, place)
    elif act == "removed_folder":
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(entry["number"])
    elif act == "renamed" and other.is_dir():
        if other.stat().st_ino == entry["number"]:
            _set_aside(place, written)
        if not os.path.lexists(place):  # else the script tried, and it was refused
            _put_back(other, place)
    elif act == "stat" and place.exists():
        accessed, modified = map(int, entry["other"].split())
        place.chmod(entry["number"])
        os.utime(place, ns=(accessed, modified))


def _put_back(kept: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    try:
        kept.replace(place)
    except OSError:  # another device
        if os.path.lexists(place):
            _remove(place)
        shutil.move(kept, place)


def _set_aside(place: Path, written: Path) -> None:
    if not os.path.lexists(place):
        return
    shared = place.is_file() and place.lstat().st_nlink > 1  # another name of something kept, or of the user's
    if shared or _num_bytes(place) > _KEPT_BYTES:
        _remove(place)
        return
    try:
        written.mkdir(parents=True, exist_ok=True)
        target = written / place.name
        number = 1
        while os.path.lexists(target):
            target = written / f"{place.name}.{number}"
            number += 1
        shutil.move(place, target)
    except OSError:  # a full disk, mostly: the user's folder comes first
        _remove(place)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _num_bytes(place: Path) -> int:
    if place.is_dir() and not place.is_symlink():
        return sum(file.lstat().st_size for file in place.rglob("*") if not file.is_dir())
    return place.lstat().st_size
