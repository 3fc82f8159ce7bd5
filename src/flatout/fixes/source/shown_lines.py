"""Lines of edited files as people see them: in tracebacks, `inspect.getsource`, debuggers and warnings.

All of these read lines from `linecache`, but for the traceback of an uncaught error, which Python 3.11 and 3.12 print
from C, with the lines of the file on disk.
"""

import functools
import io
import linecache
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flatout.schema.order import EditedFile

if TYPE_CHECKING:
    from flatout.probe.core.seams import Hits

__all__ = ["remember_lines", "show_edited_lines"]

_LINES_FROM_CACHE = (3, 13)
"""The first Python whose own traceback of an uncaught error reads `linecache`."""


def remember_lines(file: EditedFile, path: str) -> None:
    """Show the edited lines where somebody asks for those of `path`, whichever way it is written."""
    text = file.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = io.StringIO(text).readlines()  # `str.splitlines` also cuts at other letters than Python's lines end with
    for name in {path, os.path.abspath(path), file.path}:
        linecache.cache[name] = (len(text), None, lines, name)  # None: it is not held against the file on disk


@functools.cache
def show_edited_lines() -> None:
    """Print uncaught errors with edited lines, and without the frames of `runpy` that started the script."""
    from flatout.probe.core.seams import Seams

    seams = Seams()
    if sys.excepthook is sys.__excepthook__:
        seams.wrap("sys:excepthook", _excepthook)
    if sys.version_info < _LINES_FROM_CACHE:
        import threading

        if threading.excepthook is threading.__excepthook__:
            seams.wrap("threading:excepthook", _thread_excepthook)


def _excepthook(original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        hits.count += 1
        while trace is not None and _starts_scripts(trace):
            trace = trace.tb_next
        _print(error.with_traceback(trace), functools.partial(original, kind, error, trace))

    return hook


def _thread_excepthook(original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
    def hook(args: Any) -> None:
        hits.count += 1
        if args.exc_type is SystemExit or args.exc_value is None or sys.stderr is None:
            original(args)
            return
        name = args.thread.name if args.thread is not None else ""
        sys.stderr.write(f"Exception in thread {name}:\n")
        _print(args.exc_value, functools.partial(original, args))

    return hook


def _starts_scripts(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename in ("<frozen runpy>", getattr(sys.modules.get("runpy"), "__file__", ""))


def _print(error: BaseException, original: Callable[[], None]) -> None:
    """Print an error with its lines from `linecache`; as Python does where that fails, or where it reads them, too."""
    if sys.version_info >= _LINES_FROM_CACHE or sys.stderr is None:
        original()
        return
    try:
        import traceback

        text = "".join(traceback.format_exception(error))
    except Exception:
        original()
        return
    sys.stderr.write(text)
    sys.stderr.flush()
