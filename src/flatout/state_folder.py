"""The user's own folder for journals: where notes of what is to be put back lie, and nobody else can write.

A folder that came with a tarball, a clone or a shared disk has none of it. Standard library only: the observed
process uses it before torch is there.
"""

import hashlib
import os
import stat
import tempfile

__all__ = ["STATE_VARIABLE", "journal_folder", "own_folder", "state_folder"]

STATE_VARIABLE = "FLATOUT_STATE"
"""Names the state folder to the processes of a script, which may have another HOME than flatout has."""


def state_folder() -> str:
    """Return the folder of flatout's own state: that of `XDG_STATE_HOME`, or `~/.local/state`.

    Where the user has no home that can be written, a folder of his own below the temporary ones.
    """
    named = os.environ.get(STATE_VARIABLE)
    if named:
        return named
    top = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(top):
        top = os.path.join(os.path.expanduser("~"), ".local", "state")
    nearest = top
    while not os.path.lexists(nearest) and os.path.dirname(nearest) != nearest:
        nearest = os.path.dirname(nearest)
    if os.path.isabs(top) and os.access(nearest, os.W_OK):
        return os.path.join(top, "flatout")
    return os.path.join(tempfile.gettempdir(), f"flatout-state-{os.getuid()}")


def journal_folder(folder: str) -> str:
    """Return where the journal of the execution recorded in `folder` is kept; nothing is made."""
    name = hashlib.sha1(os.fsencode(os.path.realpath(folder))).hexdigest()[:20]
    return os.path.join(state_folder(), "journals", name)


def own_folder(path: str) -> str:
    """Make `path` where it is missing, for this user alone, and return it.

    Raises:
        PermissionError: it is a link, another user's, or others may write into it.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(13, "other users can access it", path)
    return path
