"""Edited files put in the place of the user's, each beside a copy of what it was."""

import os
import tempfile
from pathlib import Path

from flatout.edits.reading.project import Project
from flatout.errors import UsageError

__all__ = ["write_project"]


def write_project(before: Project, after: Project) -> list[tuple[str, Path]]:
    """Write every file that differs, and return each with its backup.

    Raises:
        UsageError: a file has changed since it was read, or cannot be written; those before it are written.
    """
    changed = [(old, new) for old, new in zip(before.sources, after.sources, strict=True) if old.code != new.code]
    for old, _ in changed:
        if old.path.read_bytes() != old.code:
            raise UsageError(f"{old.shown} changed while it was read.", "Nothing was written.", "Try again.")
    done: list[tuple[str, Path]] = []
    for old, new in changed:
        try:
            backup = _back_up(old.path, old.code)
            _replace(old.path, new.code)
        except OSError as error:
            raise UsageError(
                f"{old.shown} cannot be written ({error.strerror}).", f"{len(done)} files were written before."
            ) from None
        done.append((old.shown, backup))
    return done


def _back_up(path: Path, code: bytes) -> Path:
    """Write `train.py.orig`, or `train.py.orig.2` and so on: a backup is never written over another."""
    for number in range(1, 1000):
        backup = path.with_name(f"{path.name}.orig" + (f".{number}" if number > 1 else ""))
        try:
            with backup.open("xb") as file:
                file.write(code)
        except FileExistsError:
            continue
        backup.chmod(path.stat().st_mode & 0o777)
        return backup
    raise UsageError(f"{path.name} has 999 backups beside it.", advice="Remove some.")


def _replace(path: Path, code: bytes) -> None:
    """Write the file beside itself and put it in its place, with the same permissions."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        os.chmod(name, path.stat().st_mode & 0o7777)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise
