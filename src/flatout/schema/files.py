"""Files of ours, read and written in folders that a stranger may have prepared.

Reading takes regular files up to a size, and never waits for a fifo or a device. Writing makes a new file that only its
owner may read and puts it in its place: a link that lies there is replaced, not followed.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

__all__ = ["MOST_BYTES", "keep_private", "private_opener", "read_whole", "write_whole"]

MOST_BYTES = 128_000_000
"""A larger file is none of ours: a recording takes 1 MB or so, one of a million steps 60 MB."""

_KINDS = {stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


def read_whole(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or holds more than `most_bytes`.
    """
    _require_regular(path, os.stat(path).st_mode)  # a socket cannot be opened, and a device does things when it is
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(file, "rb") as opened:
        found = os.fstat(file)
        _require_regular(path, found.st_mode)
        if found.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {found.st_size / 1e6:.0f} MB; the limit is {most_bytes / 1e6:.0f} MB")
        content = opened.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it grows, and has more than {most_bytes / 1e6:.0f} MB")
    return content


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, not a file", str(path))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and put it there, so that no half file is ever seen; mode 0600, or that of before.

    Raises:
        OSError: it cannot be written; nothing is left then.
    """
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
        with contextlib.suppress(OSError):
            before = path.lstat()
            if stat.S_ISREG(before.st_mode):
                partial.chmod(stat.S_IMODE(before.st_mode) & 0o666)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def keep_private(folder: Path) -> None:
    """Let nobody but its owner read what lies in a folder of ours.

    Links are left alone, files with a second name, and what stands below a folder `files`: those are the script's.
    """
    for path in (folder, *folder.rglob("*")):
        if "files" in path.relative_to(folder).parts[:-1]:
            continue
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
                path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def private_opener(path: str, flags: int) -> int:
    """Open as `open` does, with mode 0600 for a new file: the `opener` of files that a user has named."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
