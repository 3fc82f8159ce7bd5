"""A unified diff read and applied to the text of one file, as `git diff` and `diff -u` write it.

A hunk is put where its head says, or at the one other place where all lines that it shows are found; nothing else
counts as the same.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["FilePatch", "Hunk", "PatchRefused", "parse_patch", "patched"]

_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NOWHERE = "/dev/null"
_ESCAPE = re.compile(r'\\([0-7]{3}|[abfnrtv"\\])')
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", '"': '"', "\\": "\\"}
_NO_LINE_END = "\\"
_REFUSED = {
    "rename from ": "it renames a file; only the text of files that are there can be served",
    "copy from ": "it copies a file; only the text of files that are there can be served",
    "GIT binary patch": "it changes a binary file",
    "Binary files ": "it changes a binary file",
    "@@@ ": "it is a diff of a merge, against several versions at once",
}


class PatchRefused(ValueError):
    """A text is no unified diff, or does not fit the file; the message is a clause: "hunk 2 (line 14) is not there"."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines, with their ends, that take the place of others."""

    start: int  # of the first line it shows, counted from 0
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilePatch:
    """What a diff does to one file, under the names that its two headers give."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]

    @property
    def inverse(self) -> "FilePatch":
        """The change that takes this one back."""
        hunks, shift = [], 0
        for hunk in self.hunks:
            hunks.append(Hunk(hunk.start + shift, hunk.after, hunk.before))
            shift += len(hunk.after) - len(hunk.before)
        return FilePatch(self.new, self.old, tuple(hunks))


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Return the changes of a diff, file by file; what stands before the first header is passed over.

    Raises:
        PatchRefused: it is no unified diff, or does something else than change files that are there.
    """
    lines, at = text.split("\n"), 0
    found: list[FilePatch] = []
    while at < len(lines):
        line = lines[at]
        if why := next((why for begin, why in _REFUSED.items() if line.startswith(begin)), ""):
            raise PatchRefused(why)
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            patch, at = _file(lines, at)
            found.append(patch)
        elif _HEAD.match(line):
            raise PatchRefused(f"line {at + 1} begins a hunk, and no file was named before (--- and +++ lines)")
        else:
            at += 1
    if not found:
        raise PatchRefused("it is no unified diff: no line begins with --- and is followed by one with +++")
    return tuple(found)


def _file(lines: Sequence[str], at: int) -> tuple[FilePatch, int]:
    old, new = _name(lines[at][4:]), _name(lines[at + 1][4:])
    if _NOWHERE in (old, new):
        what = f"it adds the file {new}" if old == _NOWHERE else f"it deletes the file {old}"
        raise PatchRefused(f"{what}; only the text of files that are there can be served")
    hunks, at = [], at + 2
    while at < len(lines) and (head := _HEAD.match(lines[at])):
        hunk, at = _hunk(lines, at, head)
        hunks.append(hunk)
    if not hunks:
        raise PatchRefused(f"it names {old} and changes nothing in it")
    return FilePatch(old, new, tuple(hunks)), at


def _name(header: str) -> str:
    """Return the name in a header, without the time that `diff` writes behind it."""
    header = header.rstrip("\r")
    if header.startswith('"'):
        return _unquoted(header[1 : header.rindex('"')])
    return header.split("\t")[0].rstrip()


def _unquoted(name: str) -> str:
    data = _ESCAPE.sub(lambda found: _LETTERS.get(found[1]) or chr(int(found[1], 8)), name)
    try:
        return data.encode("latin-1").decode()  # git writes other letters byte by byte
    except ValueError:
        return data


def _hunk(lines: Sequence[str], at: int, head: re.Match[str]) -> tuple[Hunk, int]:
    num_before, num_after = (1 if head[group] is None else int(head[group]) for group in (2, 4))
    place, before, after = at, list[str](), list[str]()
    at += 1
    while at < len(lines) and (len(before), len(after)) != (num_before, num_after):
        sign, rest = lines[at][:1] or " ", lines[at][1:] + "\n"  # editors strip the blank of a blank line
        if sign not in " -+" or len(before) > num_before or len(after) > num_after:
            break
        before += [rest] if sign != "+" else []
        after += [rest] if sign != "-" else []
        at += 1
        if at < len(lines) and lines[at].startswith(_NO_LINE_END):
            at += 1
            for side in (before,) if sign == "-" else (after,) if sign == "+" else (before, after):
                side[-1] = side[-1][:-1]
    if (len(before), len(after)) != (num_before, num_after):
        raise PatchRefused(f"the hunk on its line {place + 1} has other numbers of lines than its head says")
    return Hunk(int(head[1]) - bool(num_before), tuple(before), tuple(after)), at


def patched(patch: FilePatch, text: str) -> str:
    """Return the text of a file with all hunks of its patch.

    Raises:
        PatchRefused: a hunk has no place in it, or several.
    """
    old = text.split("\n")
    lines = [line + "\n" for line in old[:-1]] + [line for line in old[-1:] if line]
    new: list[str] = []
    done = shift = 0
    for number, hunk in enumerate(patch.hunks, start=1):
        start = _place(lines, hunk, hunk.start + shift, done)
        if start is None:
            raise PatchRefused(f"hunk {number} (line {hunk.start + 1}) shows lines that are not there")
        new += [*lines[done:start], *hunk.after]
        done, shift = start + len(hunk.before), start - hunk.start
    return "".join(new + lines[done:])


def _place(lines: Sequence[str], hunk: Hunk, expected: int, first: int) -> int | None:
    """Return where the lines that a hunk shows are: where they are expected, or at the only other place."""
    if expected >= first and tuple(lines[expected : expected + len(hunk.before)]) == hunk.before:
        return expected
    others = list(_places(lines, hunk.before, first)) if hunk.before else []
    return others[0] if len(others) == 1 else None


def _places(lines: Sequence[str], wanted: tuple[str, ...], first: int) -> Iterator[int]:
    for start in range(first, len(lines) - len(wanted) + 1):
        if tuple(lines[start : start + len(wanted)]) == wanted:
            yield start
