"""Text of strangers made safe and short: names, paths, source lines and messages come from the script.

Control characters would move the cursor or recolour the terminal, and direction overrides would show a line of code
as something that it is not; each becomes a visible escape. Widths are in terminal cells, not in characters.
"""

import re
import unicodedata
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

from flatout.schema.secrets import masked

__all__ = ["cells", "shorten_end", "shorten_path", "visible", "wrap"]

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that are replaced: controls, formats (direction, width), surrogates, unknowns, line ends."""

_NAMED = {"\t": " ", "\n": "\\n", "\r": "\\r"}

MAX_CHARACTERS = 4000

_BREAKS = re.compile(r"(?<!\d)\s+|\s+(?!(?:ms|us|s|min|h|samples/s|[KMGT]?i?B)(?!\w))")
"""Where a line may end: at any space but the one between a number and its unit."""


def visible(text: str, *, ascii_only: bool = False) -> str:
    """Return `text` with secrets hidden and every character that is not plainly visible as an escape.

    At most 4,000 characters of it are returned.
    """
    text = masked(text[: 2 * MAX_CHARACTERS])
    if text.isascii() and text.isprintable() and len(text) <= MAX_CHARACTERS:
        return text
    cut = text[:MAX_CHARACTERS]
    return "".join(_escaped(character, ascii_only) for character in cut) + ("..." if len(text) > len(cut) else "")


def _escaped(character: str, ascii_only: bool) -> str:
    """Return one character, or its escape."""
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) in _HIDDEN or (ascii_only and not character.isascii()):
        return character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else _hex(character)
    return character


def _hex(character: str) -> str:
    return f"\\x{ord(character):02x}"


def cells(text: str) -> int:
    """Return how many terminal cells `text` takes."""
    return cell_len(text)


def shorten_end(text: str, width: int) -> str:
    """Return `text` cut to `width` cells; what is missing is shown as three dots."""
    if cell_len(text) <= width:
        return text
    return _head(text, max(0, width - 3)) + "..."


def shorten_path(text: str, width: int) -> str:
    """Return `text` cut to `width` cells in its middle, where a path says least."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - 3)
    tail = _head(text[::-1], room - room // 3)[::-1]
    return _head(text, room // 3) + "..." + tail


def _head(text: str, width: int) -> str:
    """Return as much of the beginning of `text` as fits into `width` cells."""
    used = 0
    for position, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:position]
    return text


def wrap(text: str, width: int) -> list[str]:
    """Return `text` as lines of at most `width` cells, broken at spaces, inside a word only where it is too long."""
    lines = [""]
    for word in _words(text, max(1, width)):
        if not lines[-1]:
            lines[-1] = word
        elif cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def _words(text: str, width: int) -> Iterator[str]:
    """Yield the words of `text`, in pieces where one is wider than a line."""
    for word in filter(None, _BREAKS.split(text)):
        if cell_len(word) <= width:
            yield word
        else:
            yield from chop_cells(word, width)
