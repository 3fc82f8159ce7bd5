"""Errors that come of the read-only file systems of a forked copy: what they mean for the one who reads the reason."""

import errno
import os
import re

__all__ = ["in_words", "refused_write"]

_LONGEST = 200
_MOST_CAUSES = 20


def refused_write(error: BaseException) -> str:
    """Return `writes files while it is read: PATH` where `error` was raised for that, an empty string else.

    Errors that were raised because of another count, too, and those of libraries that tell it in their message alone.
    """
    seen: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if seen is None:
            return ""
        number = getattr(seen, "errno", None)
        if number == errno.EROFS or os.strerror(errno.EROFS) in str(seen):
            return "writes files while it is read" + (f": {place}" if (place := _place(seen)) else "")
        seen = seen.__cause__ or seen.__context__
    return ""


def in_words(error: BaseException, *, message: bool = True) -> str:
    """Return `raised TYPE: MESSAGE` in one line, or what it means where a file was to be written."""
    raised = f"raised {type(error).__name__}" + (f": {error}" if message else "")
    return (refused_write(error) or raised).splitlines()[0][:_LONGEST]


def _place(error: BaseException) -> str:
    """Return the path that an error names, an empty string where it names none."""
    named = getattr(error, "filename", None)
    if isinstance(named, str | bytes):
        return os.fsdecode(named)
    quoted = re.search(r"(?:file|name|path)\W{1,4}['\"]([^'\"]+)['\"]", str(error))
    return quoted[1] if quoted else ""
