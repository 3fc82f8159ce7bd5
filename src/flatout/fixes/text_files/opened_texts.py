"""Text files that the script's own code opens to write to, and what stands for them."""

import codecs
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flatout.fixes.text_files.gathered_writer import GatheredWriter
from flatout.fixes.text_files.text_file import TextFile
from flatout.fixes.text_files.write_behind import WriteBehind

__all__ = ["OpenedTexts"]

_MODES = frozenset({"a", "at", "ta", "w", "wt", "tw", "x", "xt", "tx"})
_STEPS = 3  # in so many steps a file is opened in earnest before it is opened once for many
_PLAIN = frozenset({"utf-8", "ascii", "iso8859-1", "cp1252"})  # encodings that put nothing before the text
_PATHS = (str, type(Path()))  # of files, never changed
_MOST_PATHS = 4096
_HANDED = ("flatout", "pathlib", "logging")  # modules that open files for those who call them

MakeWriter = Callable[[io.FileIO, str, int], io.BufferedWriter]


_Way = tuple[Any, str, str | None, str | None, str | None, int]
"""How a file is opened: its folder and name, and what is given for mode, encoding, errors, newline and buffering."""


class _Reopened:
    """What is known of a file that is opened one way."""

    __slots__ = ("encoding", "errors", "file", "is_sure", "line_buffering", "num_bytes", "num_steps", "step")

    def __init__(self) -> None:
        """It was not opened yet."""
        self.num_steps, self.step = 0, -1
        self.file: TextFile | None = None
        self.is_sure = False  # that nobody else had the file open, when that was asked last
        self.encoding, self.errors, self.line_buffering = "", "", False
        self.num_bytes = io.DEFAULT_BUFFER_SIZE  # of the buffer

    def opened_unseen(self) -> None:
        """Have it asked afresh whether the file is open when text may wait: who got it just now is not noticed."""
        self.is_sure = False
        if self.file is not None and self.file.looks_left and not self.file.looked:
            self.file.looked = True
            self.file.looks_left += 1  # it was nobody's look

    def may_gather(self, file: TextFile) -> bool:
        """Return whether text may be gathered; a file that somebody looked at is opened in earnest for some steps."""
        if file.looked and self.is_sure:
            self.num_steps = 0 if file.looks_left else _STEPS  # and then never again
            self.file, self.is_sure = None, False
            return False
        self.is_sure = True
        return not file.is_synced and file.may_wait and not file.num_open


class OpenedTexts:
    """Opens files: in earnest, with a writer whose text may wait, or not at all where many were opened before."""

    def __init__(self, behind: WriteBehind, make_writer: MakeWriter, is_the_scripts: Callable[[str], bool]) -> None:
        """Know no file; `make_writer(raw, path, num_bytes)` makes the writer of an open file, with such a buffer.

        `is_the_scripts`: whether code of a file is the script's own.
        """
        self.step = 0  # of the training, counted by whoever sees them
        self._behind, self._make_writer, self._is_the_scripts = behind, make_writer, is_the_scripts
        self._known: dict[_Way, _Reopened] = {}

    def opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for `open`."""

        def open(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            way = (_named(file), mode, encoding, errors, newline, buffering)
            known = self._known.get(way) if mode != "r" else None
            if known is not None and known.file is not None and self._behind.waits and known.may_gather(known.file):
                return self._gathered(known, known.file, file, mode, newline)
            given = (file, mode, buffering, encoding, errors, newline, closefd, opener)
            if known is not None and known.num_steps > _STEPS and known.file is None:  # nothing of it waits
                return original(*given)
            is_text = type(mode) is str and mode in _MODES and opener is None and closefd is True
            if not is_text or type(file) not in _PATHS or not self._by_the_script(sys._getframe(1)):
                return original(*given)
            try:
                path = os.path.join(os.getcwd(), file)
            except FileNotFoundError:  # the working folder is gone
                return original(*given)
            if known is None:
                known = self._add(way)
            return self._opened(original, given, path, known)

        return open

    def _by_the_script(self, frame: Any) -> bool:
        """Return whether a call comes from the script's own code, or from a module that opens a file for it."""
        while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _HANDED:
            frame = frame.f_back
        return frame is not None and self._is_the_scripts(frame.f_code.co_filename)

    def _add(self, way: _Way) -> _Reopened:
        if len(self._known) >= _MOST_PATHS:
            self._known.clear()
        made = self._known[way] = _Reopened()
        return made

    def _gathered(self, known: _Reopened, file: TextFile, name: Any, mode: str, newline: str | None) -> Any:
        """Return an open file that opens none."""
        file.raise_error()
        below = GatheredWriter(file, self._behind, name, appends="a" in mode)
        text = _text(
            io.BufferedWriter(below, known.num_bytes), known.encoding, known.errors, newline, known.line_buffering, mode
        )
        below.is_made = True
        return text

    def _opened(self, original: Callable[..., Any], given: tuple[Any, ...], path: str, known: _Reopened) -> Any:
        """Open a file in earnest; its text waits where it can."""
        mode, newline = given[1], given[5]
        text = self._in_earnest(original, given, path)
        below = getattr(text, "buffer", None)
        if type(text) is not io.TextIOWrapper or type(below) is not io.BufferedWriter or text.isatty():
            return text
        num_bytes = below.__sizeof__() - io.BufferedWriter.__basicsize__
        if known.step != self.step:
            known.num_steps, known.step = known.num_steps + 1, self.step
            if known.num_steps == _STEPS and "x" not in mode and codecs.lookup(text.encoding).name in _PLAIN:
                known.file = self._behind.file(path, text.fileno())
                known.encoding, known.errors, known.num_bytes = text.encoding, text.errors or "", num_bytes
                known.line_buffering = text.line_buffering
        if known.num_steps > _STEPS and not self._behind.waits:  # it is open for a moment
            known.opened_unseen()
            return text
        encoding, errors, by_line = text.encoding, text.errors or "", text.line_buffering
        writer = self._make_writer(text.detach().detach(), path, num_bytes)
        return _text(writer, encoding, errors, newline, by_line, mode)

    def _in_earnest(self, original: Callable[..., Any], given: tuple[Any, ...], path: str) -> Any:
        """Open a file; nobody looks at one that is known and that we do not have open."""
        file = self._behind.pending.get(self._behind.place(path) or "")
        if file is not None:
            file.raise_error()
        if file is None or file.num_open or file.gathering is not None:
            return original(*given)
        if file.num_bytes:
            self._behind.write(file)
        with self._behind.threads.quietly():
            return original(*given)


def _named(file: Any) -> Any:
    """Return what tells a file from others of its name: with the working folder, where the name does not say it."""
    if type(file) not in _PATHS or os.path.isabs(file):
        return file
    try:
        return os.getcwd(), file
    except FileNotFoundError:
        return file


def _text(below: Any, encoding: str, errors: str, newline: str | None, by_line: bool, mode: str) -> io.TextIOWrapper:
    """Return the text layer of a file, as `open` makes it."""
    text = io.TextIOWrapper(below, encoding, errors, newline, line_buffering=by_line)
    text.mode = mode  # type: ignore[misc]
    return text
