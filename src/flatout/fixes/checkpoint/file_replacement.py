"""Whether a new file can take the place of another without anybody noticing afterwards."""

import os
import stat

__all__ = ["made_alike", "replaceable"]

_OPEN_FILES = "/proc/self/fd"


def replaceable(target: str) -> bool:
    """Return whether a new file can take the place of `target` and nobody notices; else torch writes, or complains.

    Not so what is no regular file of ours, has a second name, or is open here: whoever holds it would see the new
    content.
    """
    folder = os.path.dirname(target)
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    regular = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
    return regular and not found.st_mode & 0o7000 and os.access(target, os.W_OK) and not _open_here(found)


def made_alike(made: str, target: str) -> bool:
    """Give the new file mode and group of the old one; return whether it has all else that files have, too.

    Raises:
        OSError: it cannot be given them.
    """
    wanted, found = os.stat(target), os.stat(made)
    if wanted.st_gid != found.st_gid:
        os.chown(made, -1, wanted.st_gid)
    os.chmod(made, stat.S_IMODE(wanted.st_mode))
    return _attributes(made) == _attributes(target)


def _attributes(path: str) -> dict[str, bytes]:
    """Return what a file system keeps of a file besides: access lists, labels, what users have noted."""
    if not hasattr(os, "listxattr"):
        return {}
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def _open_here(found: os.stat_result) -> bool:
    try:
        names = os.listdir(_OPEN_FILES)
    except OSError:
        return False
    for name in names:
        try:
            if os.path.samestat(os.stat(os.path.join(_OPEN_FILES, name)), found):
                return True
        except OSError:
            continue
    return False
