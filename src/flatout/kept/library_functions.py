"""Functions as their library has them: not ones that a script has put in their place."""

import builtins
import functools
import io
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["is_as_imported", "is_of_library", "is_open_plain", "without_ours"]

_INSTALLED = ("site-packages", "dist-packages")


def is_of_library(dotted: str) -> bool:
    """Return whether `package.module:attribute` is an installed library's own function of that name."""
    name, _, path = dotted.partition(":")
    module = sys.modules.get(name)
    function: Any = module
    for each in path.split("."):
        function = getattr(function, each, None)
    file = getattr(module, "__file__", None)
    if function is None or not file:
        return False
    return _is_installed(name, file) and is_as_imported(without_ours(function), path, _root(name, file))


def is_as_imported(function: Any, path: str, root: Path) -> bool:
    """Return whether a function has this name, and its code lies in a folder, or in a file, of its library."""
    if isinstance(function, types.BuiltinFunctionType):
        module = function.__module__ or getattr(function.__self__, "__name__", "")  # OpenCV's have neither
        return function.__qualname__ == path and module.partition(".")[0] in ("", root.name.partition(".")[0])
    if not isinstance(function, types.FunctionType) or function.__closure__ or hasattr(function, "__wrapped__"):
        return False
    code = Path(function.__code__.co_filename)
    return function.__qualname__ == path and (code == root or root in code.parents)


def is_open_plain() -> bool:
    """Return whether `open` is Python's own, or flatout's for it."""
    function = builtins.open
    return function is io.open or without_ours(function) is io.open


def _root(name: str, file: str) -> Path:
    """Return the folder of a package, or the file of a module that is none."""
    package = sys.modules.get(name.partition(".")[0])
    whole = Path(getattr(package, "__file__", None) or file)
    return whole.parent if whole.stem == "__init__" else whole


@functools.cache
def _is_installed(name: str, file: str) -> bool:
    place = _root(name, file)
    torch = sys.modules.get("torch")
    beside = Path(torch.__file__).parent.parent if torch is not None and torch.__file__ else None
    return bool({*place.parts} & {*_INSTALLED}) or place.parent == beside


def without_ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that flatout's stand-ins call in the end."""
    while isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
        if not str(function.__globals__.get("__name__", "")).startswith("flatout."):
            break
        function = function.__wrapped__
    return function
