"""What samples ask of the file system while they are made, noted in a copy of the process.

Files that are opened, whether there or not; files that are only looked for, as by `os.path.exists`; folders that are
listed; files that other programs are started with.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flatout.watch.components import is_own

__all__ = ["IMPORTING", "Asked", "asked_of_files", "may_be_data", "read_by_number", "unasked"]

Asked = frozenset[str]
"""Absolute names of files, and of folders that were listed, which end with a separator."""

_LISTING = {"os.listdir", "os.scandir"}
_STARTING = {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.spawn"}
_TELLING = {"open", "os.system", *_LISTING, *_STARTING}
_LOOKING = ("stat", "access")  # which `os.path` and `pathlib` use, too
_READING = ("read", "pread", "readv", "preadv", "fdopen")
_CODE = (".py", ".pyc", ".so")
IMPORTING = "<frozen importlib"
"""How the file names of code begin that imports modules: it lists their folders, and keeps compiled code there."""

_ELSEWHERE = (sys.prefix, sys.base_prefix, "/proc/", "/sys/", "/dev/", "/usr/lib/", "/etc/")

_ours = False  # what is asked at the moment is asked by what watches files


def may_be_data(name: str) -> bool:
    """Tell whether a file of that absolute name, there or not, may be data: not this Python's, nor the system's."""
    return not name.startswith(_ELSEWHERE)


@contextlib.contextmanager
def asked_of_files() -> Iterator[set[str]]:
    """Note what is asked meanwhile, by whomever; for a copy of the process: the ear for it stays."""
    found: set[str] = set()
    listening = [True]

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        told = event in _TELLING and listening[0] and not _ours
        if told and not sys._getframe(1).f_code.co_filename.startswith(IMPORTING):
            found.update(_named(event, arguments))

    sys.addaudithook(hear)
    plain = {name: getattr(os, name) for name in _LOOKING}
    for name, function in plain.items():
        setattr(os, name, _noting(function, found))
    try:
        yield found
    finally:
        listening[0] = False
        for name, function in plain.items():
            setattr(os, name, function)


def read_by_number() -> list[str]:
    """Return a list that gets the name of each function with which the user's code reads an open file by its number.

    From now on, for a copy of the process. Which file the number stands for, and what becomes of that, nobody tells.
    """
    found: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def read(number: Any, *args: Any, **named: Any) -> Any:
            if isinstance(number, int) and _is_of_the_user(sys._getframe(1)):
                found.append(f"os.{name}")
            return function(number, *args, **named)

        return read

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], int) and _is_of_the_user(sys._getframe(1)):
            found.append("open")

    sys.addaudithook(hear)
    for name in _READING:
        if hasattr(os, name):
            setattr(os, name, noting(name, getattr(os, name)))
    return found


def _is_of_the_user(frame: Any) -> bool:
    return is_own(str(frame.f_globals.get("__name__", "")))


@contextlib.contextmanager
def unasked() -> Iterator[None]:
    """Do not note what is asked meanwhile."""
    global _ours
    before, _ours = _ours, True
    try:
        yield
    finally:
        _ours = before


def _noting(function: Callable[..., Any], found: set[str]) -> Callable[..., Any]:
    def asked(path: Any, *args: Any, **named: Any) -> Any:
        if not _ours:
            found.update(name for name in _absolute([path]) if not name.endswith(_CODE))
        return function(path, *args, **named)

    return asked


def _named(event: str, arguments: tuple[Any, ...]) -> Iterable[str]:
    if event == "open":
        return _absolute(arguments[:1])
    if event in _LISTING:
        return [os.path.join(name, "") for name in _absolute([arguments[0] or "."])]
    if event == "os.system":
        return _files_among(_words(os.fsdecode(arguments[0])))
    if event in _STARTING:
        words = next((each for each in arguments if isinstance(each, list | tuple)), ())
        texts = [os.fsdecode(word) for word in words if isinstance(word, str | bytes | os.PathLike)]
        return _files_among([*texts, *(part for text in texts for part in _words(text))])
    return ()


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote: another language than a shell's
        return []


def _files_among(words: Iterable[str]) -> list[str]:
    return [name for name in _absolute(words) if os.path.isfile(name)]


def _absolute(names: Iterable[Any]) -> list[str]:
    """Return the absolute forms of those that are names; a number is a file that is open already."""
    texts = [os.fsdecode(name) for name in names if isinstance(name, str | bytes | os.PathLike)]
    return [os.path.abspath(text) for text in texts if text and "\0" not in text]
