"""A unified diff of bytes: whatever encoding and line ends a file has, `git apply` and `patch -p1` take it."""

import difflib

__all__ = ["unified_diff"]

_CONTEXT = 3
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def unified_diff(before: bytes, after: bytes, name: str) -> bytes:
    """Return how `after` differs from `before`, with `name` below a/ and b/; empty where it does not."""
    old, new = _lines(before), _lines(after)
    path = name.encode("utf-8", "surrogateescape")
    found = difflib.diff_bytes(difflib.unified_diff, old, new, b"a/" + path, b"b/" + path, lineterm=b"\n", n=_CONTEXT)
    return b"".join(line if line.endswith(b"\n") else line + _NO_NEWLINE for line in found)


def _lines(code: bytes) -> list[bytes]:
    """Return the lines with their ends, cut at line feeds only, as git does."""
    parts = code.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
