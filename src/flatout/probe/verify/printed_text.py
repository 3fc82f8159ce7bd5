"""What a script prints between two optimizer steps: whole lines, as they reach standard output and standard error.

Lines that are written over one another, as those of progress bars, are left out: when they are shown is a matter of
time. What is printed behind a bar or in its place is a line. What other threads and other processes print is left out.
"""

import re
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

from flatout.probe.core.seams import Hits, Seams

__all__ = ["PrintedText"]

_BAR = re.compile(r".*\d%\|[^|]*\|[^\[]*\[.*\]")  # one of tqdm's
_LONGEST = 400  # characters of a line
_MOST = 4000  # lines of an execution


class PrintedText:
    """Notes each line that one thread prints."""

    def __init__(self, thread: int, note: Callable[[str], None]) -> None:
        """Say `note(line)` of every line that `thread` has ended."""
        self._thread, self._note = thread, note
        self._begun: dict[str, str] = {}  # of each stream, what has no end yet
        self._num_lines = 0

    def install(self, seams: Seams) -> None:
        """Wrap what writes to the two streams, where there are any."""
        for stream in ("stdout", "stderr"):
            seams.wrap(f"sys:{stream}.write", partial(self._write, stream))

    def _write(self, stream: str, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def write(text: Any, *args: Any, **kwargs: Any) -> Any:
            written = original(text, *args, **kwargs)
            if isinstance(text, str) and get_ident() == self._thread and self._num_lines < _MOST:
                hits.count += 1
                self._take(stream, text)
            return written

        return write

    def _take(self, stream: str, text: str) -> None:
        *lines, begun = (self._begun.get(stream, "") + text).split("\n")
        self._begun[stream] = "\r".join(begun.split("\r")[-3:])[: 3 * _LONGEST]
        for line in lines[: _MOST - self._num_lines]:
            self._num_lines += 1
            shown = _shown(line)
            if shown.strip():
                self._note(shown[:_LONGEST])


def _shown(line: str) -> str:
    """Return what a line tells: nothing where it was written over another one, but for what stands behind a bar."""
    *before, last = line.split("\r")
    if not before or (len(before) > 1 and not before[-1].strip()):  # the bar was wiped out, as `tqdm.write` does
        return last
    bar = _BAR.match(last)
    return last[bar.end() :] if bar else ""
