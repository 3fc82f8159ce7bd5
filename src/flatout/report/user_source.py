"""Lines of the user's code, as they were when the recording was made."""

import linecache
import os
import stat
from pathlib import Path, PurePath

from flatout.schema.run import Frame, Header

__all__ = ["relative", "source_line", "source_lines"]

MAX_SOURCE_BYTES = 4_000_000
"""A larger file is generated; reading it for one line is not worth the time."""


def source_line(place: Frame, not_after_s: float = 0.0) -> str:
    """Return the line of the user's code, "" when the file is gone, odd, or was changed after `not_after_s`."""
    return next((text.strip() for _, text in source_lines(place, not_after_s)), "")


def source_lines(place: Frame, not_after_s: float = 0.0, *, around: int = 0) -> list[tuple[int, str]]:
    """Return numbered lines, from `around` before the place to `around` after it; none when the file has changed."""
    path = Path(place.file)
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return []
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_SOURCE_BYTES:
        return []
    if not_after_s > 0 and facts.st_mtime > not_after_s:
        return []
    linecache.checkcache(place.file)
    lines = linecache.getlines(place.file)
    if not 0 < place.line <= len(lines):
        return []
    first = max(1, place.line - around)
    return [(number, lines[number - 1].rstrip()) for number in range(first, min(len(lines), place.line + around) + 1)]


def relative(file: str, header: Header) -> str:
    """Return `file` as seen from the folder that the script was started in, when it lies below it."""
    try:
        return str(PurePath(file).relative_to(header.working_folder or PurePath(file).anchor or "."))
    except ValueError:
        return file
