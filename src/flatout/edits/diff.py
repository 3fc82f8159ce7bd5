"""A unified diff of bytes: whatever encoding and line ends a file has, `git apply` and `patch -p1` take it."""

import difflib

__all__ = ["quoted", "unified_diff"]

_CONTEXT = 3
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def unified_diff(before: bytes, after: bytes, name: str) -> bytes:
    """Return how `after` differs from `before`, with `name` below a/ and b/; empty where it does not."""
    old, new = _lines(before), _lines(after)
    before_name, after_name = (quoted(f"{side}/{name}").encode("utf-8", "surrogateescape") for side in "ab")
    found = difflib.diff_bytes(difflib.unified_diff, old, new, before_name, after_name, lineterm=b"\n", n=_CONTEXT)
    return b"".join(line if line.endswith(b"\n") else line + _NO_NEWLINE for line in found)


def quoted(name: str) -> str:
    """Return the name of a file as git writes it into a header: in quotes, with escapes, where it needs them.

    A line end in it would begin another line of the diff, and a control character would act on a terminal.
    """
    if name.isprintable() and '"' not in name and "\\" not in name:
        return name
    return '"' + "".join(_escaped(letter) for letter in name) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isprintable():
        return letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))


def _lines(code: bytes) -> list[bytes]:
    """Return the lines with their ends, cut at line feeds only, as git does."""
    parts = code.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
