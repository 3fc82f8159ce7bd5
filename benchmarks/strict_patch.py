"""A unified diff applied to texts: each hunk at the line that it names, where every line it shows is found.

`git apply` and `patch` look for a hunk elsewhere when lines were added above it; here that is an error.
"""

import io
import re
from collections import deque
from collections.abc import Mapping

__all__ = ["PatchError", "patched"]

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
HEADER = re.compile(rb"--- a/(\S+)\n\+\+\+ b/(\S+)\n")


class PatchError(ValueError):
    """A patch is not a unified diff, or not one of these texts."""


def patched(texts: Mapping[str, bytes], diff: bytes) -> dict[str, bytes]:
    """Return `texts`, by name, as the patch changes them; it neither adds nor removes one. Raises `PatchError`."""
    lines = deque(io.BytesIO(diff))
    after: dict[str, bytes] = {}
    while lines:
        header = lines.popleft() + (lines.popleft() if lines else b"")
        found = HEADER.fullmatch(header)
        name = found[1].decode() if found and found[1] == found[2] else ""
        if name not in texts or name in after:
            raise PatchError(f"{header!r} is not the header of a file that is there, or comes twice")
        if not (lines and HUNK.fullmatch(lines[0])):
            raise PatchError(f"the patch changes nothing in {name}")
        after[name] = _with_hunks(name, list(io.BytesIO(texts[name])), lines)
    return {**texts, **after}


def _with_hunks(name: str, old: list[bytes], lines: deque[bytes]) -> bytes:
    """Return one file after the hunks at the head of `lines`, which are taken from there."""
    new: list[bytes] = []
    num_read = 0
    while lines and (place := HUNK.fullmatch(lines[0])):
        lines.popleft()
        num_before, num_after = (1 if place[group] is None else int(place[group]) for group in (2, 4))
        # A hunk names its first line, counted from 1; one without lines names the line before it.
        start, new_start = int(place[1]) - bool(num_before), int(place[3]) - bool(num_after)
        before, after = _sides(name, lines, num_before, num_after)
        new += old[num_read:start]
        if start < num_read or old[start : start + num_before] != before or len(new) != new_start:
            raise PatchError(f"the lines of {name} from {start + 1} on are not those that the patch was made from")
        num_read = start + num_before
        new += after
    return b"".join(new + old[num_read:])


def _sides(name: str, lines: deque[bytes], num_before: int, num_after: int) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of a hunk before and after the change, as many as its head says."""
    before: list[bytes] = []
    after: list[bytes] = []
    while (len(before), len(after)) != (num_before, num_after):
        line = lines.popleft() if lines else b""
        if line[:1] not in (b" ", b"-", b"+") or len(before) > num_before or len(after) > num_after:
            raise PatchError(f"a hunk of {name} has other numbers of lines than its head says")
        before += [line[1:]] if line[:1] != b"+" else []
        after += [line[1:]] if line[:1] != b"-" else []
    return before, after
