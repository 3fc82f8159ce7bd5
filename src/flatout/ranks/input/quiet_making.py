"""A rank makes samples for all: what it would print, log or write meanwhile is held back, and told.

One process would print and write for all samples, in their order. So where some of them do, every rank makes the whole
batch, and the first one prints and writes.
"""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.local_rows import HERE
from flatout.watch.files.file_questions import IMPORTING, may_be_data

__all__ = ["QuietMaking"]

_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ACTS = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_CACHED_CODE = f"{os.sep}__pycache__{os.sep}"


class QuietMaking:
    """The main thread of this process, while it makes samples for all ranks.

    Attributes:
        tried: what the samples tried to do last time, an empty string for nothing.
        printed: they have printed or logged.
    """

    def __init__(self, seams: Seams) -> None:
        """Hear what is logged."""
        self.tried, self.printed = "", False
        self._on = self._hears = False
        seams.wrap("logging:Logger.callHandlers", self._logging)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Let nothing get out; modules that samples call are no calls of the training's."""
        if not self._hears:
            sys.addaudithook(self._hear)
            self._hears = True
        self.tried, self.printed = "", False
        whole, HERE.whole, self._on = HERE.whole, True, True
        try:
            with contextlib.redirect_stdout(_Ear(sys.stdout, self)), contextlib.redirect_stderr(_Ear(sys.stderr, self)):
                yield
        finally:
            HERE.whole, self._on = whole, False
            if self.printed:
                with warnings.catch_warnings():  # those that were shown once are shown again
                    pass

    def heard(self) -> bool:
        """Note that this thread prints, and return whether that is to be held back."""
        here = self._on and get_ident() == HERE.main
        self.printed = self.printed or here
        return here

    def _logging(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def call_handlers(logger: Any, record: Any) -> None:
            if self.heard():
                hits.count += 1
            else:
                original(logger, record)

        return call_handlers

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse what would be written; for every event of this process."""
        if not self._on or get_ident() != HERE.main or not _writes(event, arguments):
            return
        if sys._getframe(1).f_code.co_filename.startswith(IMPORTING):
            return
        self.tried = f"writes to {arguments[0]} while it is read"
        raise PermissionError(self.tried)


def _writes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        if not isinstance(arguments[0], str | bytes | os.PathLike) or not arguments[2] & _TO_WRITE:
            return False
        name = os.path.abspath(os.fsdecode(arguments[0]))
        return may_be_data(name) and _CACHED_CODE not in name
    return event in _ACTS and may_be_data(str(arguments[0]))


class _Ear:
    """A stream of text that hears who writes to it."""

    def __init__(self, stream: Any, making: QuietMaking) -> None:
        self._stream, self._making = stream, making

    def write(self, text: str) -> Any:
        return len(text) if self._making.heard() else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        return io.BytesIO() if self._making.heard() else self._stream.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
