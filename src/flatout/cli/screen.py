"""What a script writes to its terminal, as lines that can stand above a panel.

Finished lines go up and stay. What comes after them, a progress bar that is written over and over, is kept as the row
it is; a script that moves up to write over several of them gets as many rows. Colours are kept, whatever else a
terminal would obey (moves, titles, other screens) is left out.
"""

import codecs
import re

__all__ = ["Screen"]

_MOST_ROWS = 6
_LONGEST = 1 << 14  # characters of a row; a longer one goes up in pieces
_LONGEST_ESCAPE = 1 << 10  # characters that may belong to one escape; a longer one is left out so far as it came

_TOKENS = re.compile(
    r"\x1b\[(?P<given>[0-?]*)[ -/]*(?P<final>[@-~])"  # a control sequence
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # a string: a title, a link
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # a short escape
    r"|(?P<control>[\x00-\x08\x0a-\x1f\x7f-\x9f])"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)\Z")
_AFTER_COLOUR = re.compile(r"\x1b\[[0-9;:]*m\Z")
_COLOUR = re.compile(r"[0-9;:]*")


class Screen:
    """The rows that a script is still writing to."""

    def __init__(self) -> None:
        """Hold one empty row."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._unread = ""
        self._rows = [""]
        self._at = 0
        self._kept = 1  # rows that may still be written over
        self._return = False  # the next text begins its row anew
        self._done: list[str] = []

    @property
    def rows(self) -> list[str]:
        """Return the rows that are not finished, with their colours."""
        return [row for row in self._rows if row]

    def feed(self, chunk: bytes) -> list[str]:
        """Take what the script wrote; return the lines that this has finished."""
        text = self._unread + self._decoder.decode(chunk)
        unfinished = _UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        self._unread = text[end:] if len(text) - end <= _LONGEST_ESCAPE else ""
        at = 0
        for token in _TOKENS.finditer(text, 0, end):
            self._write(text[at : token.start()])
            self._obey(token)
            at = token.end()
        self._write(text[at:end])
        done, self._done = self._done, []
        return done

    def rest(self) -> list[str]:
        """Return the rows that were never finished; nothing is written any more."""
        rows, self._rows, self._at = self.rows, [""], 0
        return rows

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._return:
            self._rows[self._at], self._return = "", False
        self._rows[self._at] += text
        if len(self._rows[self._at]) > _LONGEST:
            self._line_ends()

    def _obey(self, token: re.Match[str]) -> None:
        final, control = token["final"], token["control"]
        if control == "\n":
            self._line_ends()
        elif control == "\r":
            self._return = True
        elif control == "\b" and not _AFTER_COLOUR.search(self._rows[self._at]):
            self._rows[self._at] = self._rows[self._at][:-1]
        elif final == "m" and _COLOUR.fullmatch(token["given"]):
            self._write(token[0])
        elif final == "K" and (self._return or token["given"] == "2"):
            self._rows[self._at] = ""
        elif final in ("A", "B"):
            self._move(_number(token["given"]), up=final == "A")

    def _move(self, number: int, *, up: bool) -> None:
        if up:
            self._kept = max(self._kept, min(_MOST_ROWS, number + 1))
            self._at = max(0, self._at - number)
        else:
            self._at = min(len(self._rows) - 1, self._at + number)

    def _line_ends(self) -> None:
        self._return = False
        self._at += 1
        if self._at == len(self._rows):
            self._rows.append("")
        while len(self._rows) > self._kept:
            self._done.append(self._rows.pop(0))
            self._at -= 1


def _number(given: str) -> int:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 1
