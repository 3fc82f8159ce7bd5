"""How a page looks where it is shown: its width, its characters, and the lines that it is made of."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from flatout.report.visible import shorten_end, visible, wrap

__all__ = ["Look", "join"]

NARROWEST = 30
WIDEST = 110
"""A line of text that is wider than this is hard to read, however wide the terminal is."""

BLOCKS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
"""Eighths of a block, for bars on a terminal that can show them."""


@dataclass(frozen=True, slots=True)
class Look:
    """The place that a page is made for."""

    width: int = 80
    ascii_only: bool = False  # the encoding cannot carry anything else
    blocks: bool = False  # bars of block characters; else of number signs

    @classmethod
    def of(cls, console: Console) -> "Look":
        """Return the look for `console`: plain characters in a pipe, ASCII where the encoding is not UTF-8."""
        unicode = console.encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")
        width = max(NARROWEST, min(WIDEST, console.width))
        return cls(width=width, ascii_only=not unicode, blocks=unicode and console.is_terminal)

    def safe(self, text: str) -> str:
        """Return text of a stranger with nothing in it but visible characters."""
        return visible(text, ascii_only=self.ascii_only)

    def paragraph(self, text: str, *, indent: int = 0, hanging: int = 0, style: str = "") -> list[Text]:
        """Return `text`, made safe, as lines behind `indent` spaces, all but the first behind `hanging` more."""
        lines = wrap(self.safe(text), self.width - indent - hanging)
        margins = [" " * indent] + [" " * (indent + hanging)] * (len(lines) - 1)
        return [Text.assemble(margin, (line, style)) for margin, line in zip(margins, lines, strict=True)]

    def line(self, text: str, *, indent: int = 0, style: str = "") -> Text:
        """Return `text`, made safe, as one line that is cut where the page ends."""
        return Text.assemble(" " * indent, (shorten_end(self.safe(text), self.width - indent), style))

    def bar(self, share: float, width: int) -> str:
        """Return a bar that fills `share` (0 to 1) of `width` cells, and at least a sliver of one."""
        share = min(1.0, max(0.0, share))
        if width <= 0 or share == 0:
            return ""
        if not self.blocks:
            return "#" * max(1, round(share * width))
        full, eighths = divmod(max(1, round(share * width * 8)), 8)
        return BLOCKS[8] * full + (BLOCKS[eighths] if eighths else "")


def join(lines: Iterable[Text]) -> Text:
    """Return lines as one text, without spaces at their ends."""
    whole = Text("\n", end="").join(_stripped(line) for line in lines)
    whole.end = "\n"
    return whole


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line
