"""The standard streams where they are closed, full, or nobody reads them any more."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator

__all__ = ["is_full", "let_go_of_stdout", "open_streams"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Closed(io.RawIOBase):
    """Stands for a stream that was closed before we were started, for which Python has None."""

    def writable(self) -> bool:
        """Return that it is there to write to."""
        return True

    def write(self, data: object) -> int:
        """Refuse, as the system does.

        Raises:
            OSError: always.
        """
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@contextlib.contextmanager
def open_streams() -> Iterator[None]:
    """Have something in the place of streams that are closed, so that writing fails as it does on a full disk.

    Nothing is opened in their stead: a script that we start finds them as it would without us.
    """
    with contextlib.ExitStack() as streams:
        if sys.stdout is None:
            closed = io.TextIOWrapper(io.BufferedWriter(_Closed(), 1), encoding="utf-8", write_through=True)
            streams.enter_context(contextlib.redirect_stdout(closed))
        if sys.stderr is None:
            nowhere = streams.enter_context(open(os.devnull, "w", encoding="utf-8"))
            streams.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def is_full(error: OSError) -> bool:
    """Return whether that is a stream that takes no more; files are named where they are written."""
    return error.filename is None and error.errno in _FULL


def let_go_of_stdout() -> None:
    """Have what is left in its buffer go nowhere, or Python complains of it while it ends."""
    with contextlib.suppress(OSError, ValueError):  # one that was closed has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
