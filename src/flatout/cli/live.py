"""The panel of `flatout run --live`: below what the script prints, on stderr, gone when the training ends."""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from flatout.cli.screen import Screen
from flatout.report.layout import Look
from flatout.report.live import last_words, live_lines

if TYPE_CHECKING:
    from flatout.schema.live import LiveNow

__all__ = ["Panel", "can_show"]

_MOST_WAITING = 1 << 18  # bytes that wait to be drawn; whoever writes more waits for the drawing


def can_show() -> bool:
    """Return whether stderr is a terminal that a panel can be drawn on."""
    return sys.stderr.isatty() and Console(stderr=True).is_interactive


class Panel:
    """Draws a training below its own output; a context manager around it.

    Nothing here may fail in a way that the script feels: should drawing fail, its output is passed on as it is.
    The cursor stays visible, so that a kill leaves no terminal behind that has to be put right.
    """

    def __init__(self, console: Console | None = None) -> None:
        """Draw nothing yet."""
        self._console = console or Console(stderr=True, highlight=False)
        self._screen = Screen()
        self._waiting: list[bytes] = []
        self._size = 0
        self._lock = threading.RLock()
        self._lines: list[Text] = []
        self._broken = False
        self._now: LiveNow | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._live = Live(
            _Drawn(self._page),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._console.show_cursor(True)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._guarded(self._draw_written)
            self._guarded(self._stop)

    @property
    def last_words(self) -> list[str]:
        """Return what remains of the panel when it is gone."""
        return last_words(self._now) if self._now is not None else []

    def wrote(self, chunk: bytes) -> None:
        """Take what the script has written."""
        with self._lock:
            self._waiting.append(chunk)
            self._size += len(chunk)
            if self._size > _MOST_WAITING or self._broken:
                self._guarded(self._draw_written)

    def draw(self, now: "LiveNow | None") -> None:
        """Show a new moment, or, where it is None, what was written since the last time."""
        with self._lock:
            if now is not None:
                self._now = now
                self._guarded(self._look)
            if self._waiting:
                self._guarded(self._draw_written)
            elif now is not None:
                self._guarded(self._refresh)

    # -- drawing ------------------------------------------------------------------------------------------------

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do it; where that fails, draw no more, and pass on what the script has written."""
        if not self._broken:
            try:
                act()
            except Exception:
                self._broken = True
        if self._broken:
            waiting, self._waiting, self._size = b"".join(self._waiting), [], 0
            while waiting:
                try:
                    waiting = waiting[os.write(2, waiting) :]
                except OSError:  # the terminal is gone
                    return

    def _look(self) -> None:
        """Work out the panel's lines anew."""
        if self._now is not None:
            self._lines = live_lines(self._now, Look.of(self._console))

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _draw_written(self) -> None:
        lines = self._screen.feed(b"".join(self._waiting))
        if lines:
            self._console.print(_AsItIs(lines), soft_wrap=True, end="")  # draws the panel below it, too
        elif self._waiting:
            self._refresh()
        self._waiting, self._size = [], 0  # last: what could not be drawn is still there

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
        rest = self._screen.rest()
        if rest:
            self._console.print(_AsItIs(rest), soft_wrap=True, end="")

    def _page(self) -> Text:
        """Return the panel: its lines as far as the terminal is high, and the rows that the script still writes to."""
        width, height = self._console.size
        rows = [_row(text, width) for text in self._screen.rows]
        room = max(1, height - 1 - len(rows))
        return Text("\n", no_wrap=True, overflow="crop").join([*self._lines[:room], *rows][: max(1, height - 1)])


class _Drawn:
    """What is worked out anew whenever it is drawn."""

    def __init__(self, page: Callable[[], Text]) -> None:
        self._page = page

    def __rich__(self) -> Text:
        return self._page()


class _AsItIs:
    """Lines that hold no escapes but colours, handed to the terminal as they are, however long they are."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._text = "".join(f"{line}\x1b[0m\n" if "\x1b" in line else f"{line}\n" for line in lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


def _row(text: str, width: int) -> Text:
    row = Text.from_ansi(text, no_wrap=True, overflow="crop")
    row.expand_tabs(8)
    row.truncate(width)
    return row
