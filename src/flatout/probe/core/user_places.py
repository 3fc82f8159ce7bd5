"""Which lines are the user's own: not the standard library's, not an installed package's, not ours."""

import functools
import os
import site
import sys
import sysconfig
from types import FrameType

from flatout.schema.run import Frame

__all__ = ["caller", "caller_line", "is_user_file", "leaf_module", "user_stack"]

_MAX_DEPTH = 12
_OURS = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def _library_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    names += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    names += [site.getusersitepackages(), os.path.dirname(os.__file__)]
    roots = {os.path.realpath(name) for name in names} | {os.path.abspath(name) for name in names}
    return tuple(sorted(os.path.join(root, "") for root in roots))


_ROOTS = _library_roots()
_OURS_ROOT = os.path.join(_OURS, "")
_DEMO_ROOT = os.path.join(_OURS, "demo", "")
_known: dict[str, bool] = {}


def _generated() -> tuple[str, ...]:
    """Return the folders where compilers put the code they write."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    return tuple(os.path.abspath(os.environ[name]) for name in names if os.environ.get(name))


def is_user_file(file: str) -> bool:
    """Return whether code of this file is the user's own."""
    known = _known.get(file)
    if known is None:
        known = _known[file] = _judge(file)
    return known


def _judge(file: str) -> bool:
    if not file or file.startswith("<"):
        return file.startswith("<ipython-input")
    path = os.path.abspath(file)
    if path.startswith(_OURS_ROOT):
        return path.startswith(_DEMO_ROOT)
    if f"{os.sep}torchinductor_" in path or path.startswith(_generated()):
        return False
    if path.startswith(_ROOTS) or f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
        return False
    return os.path.basename(os.path.dirname(path)) != "bin"  # launchers such as bin/torchrun


def user_stack(frame: FrameType | None, most: int = _MAX_DEPTH) -> tuple[tuple[str, int, str], ...]:
    """Return the user's frames above and including `frame`, innermost first, as (file, line, function)."""
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < most:
        code = frame.f_code
        if is_user_file(code.co_filename):
            found.append((os.path.abspath(code.co_filename), _line(frame), code.co_qualname))
        frame = frame.f_back
    return tuple(found)


def _line(frame: FrameType) -> int:
    """Return the line a frame is at; for instructions that have none, as jumps back in loops, the one before them."""
    if frame.f_lineno is not None:
        return frame.f_lineno
    code = frame.f_code
    before = [line for start, _, line in code.co_lines() if line is not None and start <= frame.f_lasti]
    return before[-1] if before else code.co_firstlineno


def caller(depth: int = 1) -> Frame | None:
    """Return the innermost user line that led to the call of this function, or None."""
    stack = user_stack(sys._getframe(depth))
    return Frame(*stack[0]) if stack else None


def caller_line() -> str:
    """Return the innermost user line that led to the call of this function as "file:line", "" for none."""
    found = caller(2)
    if found is None:
        return ""
    inside = os.path.relpath(found.file)
    return f"{found.file if inside.startswith(os.pardir) else inside}:{found.line}"


def leaf_module(frame: FrameType) -> tuple[str, str, bool]:
    """Return top-level module ("" for the user's code), function name, and whether that module works with torch."""
    code = frame.f_code
    if is_user_file(code.co_filename):
        return "", code.co_qualname, False
    name = str(frame.f_globals.get("__name__", "")) or "?"
    return name.partition(".")[0], code.co_name, _uses_torch(name)


@functools.cache
def _uses_torch(name: str) -> bool:
    """Return whether a module has imported torch, or a module, class or function of it."""
    try:
        known = list(vars(sys.modules[name]).values()) if name in sys.modules else []
        names = [getattr(value, "__module__", None) or getattr(value, "__name__", None) for value in known]
    except Exception:  # a stand-in for a module, or one that imports what is asked of it
        return False
    return any(isinstance(each, str) and each.partition(".")[0] == "torch" for each in names)
