"""A key that only this user has: what is made with it can be recognised here, and tells nobody else anything."""

import contextlib
import os
from pathlib import Path

from flatout.schema.files import read_whole

__all__ = ["own_key"]

_NUM_BYTES = 32


def own_key() -> bytes:
    """Return the key in the user's state folder, made the first time; a new one each time where it cannot be kept."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(home) / "flatout" / "key"
    fresh = os.urandom(_NUM_BYTES)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(path, flags, 0o600), "wb") as file:
                file.write(fresh)
        kept = read_whole(path, _NUM_BYTES)
        if len(kept) == _NUM_BYTES and path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o077:
            return kept
    return fresh
