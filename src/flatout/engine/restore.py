"""Puts the user's files back as they were before an observed execution, from the journal its processes wrote."""

import contextlib
import json
import os
import shutil
from pathlib import Path

__all__ = ["restore_files"]

_KEPT_BYTES = 16 * 1024 * 1024


def restore_files(folder: Path) -> int:
    """Undo what the execution recorded in `folder` did to files; return how many places were put back.

    New files up to 16 MiB move to `folder/files/written`, larger ones are removed; files that existed return as they
    were. Safe to call twice: the journal is removed last.
    """
    journal = folder / "files" / "journal"
    try:
        lines = journal.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return 0
    acts = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError):
            entry = json.loads(line)
            acts.append((str(entry["act"]), Path(entry["place"]), Path(entry["other"])))
    written = folder / "files" / "written"
    failures = []
    for act, place, other in reversed(acts):
        try:
            _undo(act, place, other, written)
        except OSError as error:
            failures.append(f"{place}: {error.strerror}")
    if failures:
        (folder / "files" / "not-restored.txt").write_text("\n".join(failures), encoding="utf-8", errors="replace")
    else:
        journal.unlink(missing_ok=True)
        shutil.rmtree(folder / "files" / "known", ignore_errors=True)
        shutil.rmtree(folder / "files" / "kept", ignore_errors=True)
    return len(acts)


def _undo(act: str, place: Path, other: Path, written: Path) -> None:
    if act in ("created", "folder"):
        _set_aside(place, written)
    elif act == "kept" and os.path.lexists(other):
        if os.path.lexists(place):
            _remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(other, place)
    elif act == "tree" and other.is_dir():
        if place.is_dir():
            shutil.rmtree(place)
        shutil.move(other, place)
    elif act == "removed_folder":
        place.mkdir(parents=True, exist_ok=True)
    elif act == "renamed" and other.is_dir() and not place.exists():
        other.rename(place)


def _set_aside(place: Path, written: Path) -> None:
    if not os.path.lexists(place):
        return
    if _num_bytes(place) > _KEPT_BYTES:
        _remove(place)
        return
    written.mkdir(parents=True, exist_ok=True)
    target = written / place.name
    number = 1
    while os.path.lexists(target):
        target = written / f"{place.name}.{number}"
        number += 1
    shutil.move(place, target)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()


def _num_bytes(place: Path) -> int:
    if place.is_dir() and not place.is_symlink():
        return sum(file.lstat().st_size for file in place.rglob("*") if not file.is_dir())
    return place.lstat().st_size
