"""How long the training is that the user has asked for, read from the loops around its first step.

Every frame that leads to a step is at a line of its source; the `for` and `while` statements around that line, with
the values that their bounds have just then, tell how many passes or steps are to come. Nothing of the script is called.
Where a loop may end before, where data are chosen by it, or where the script trains at other places, too, it is not
known.
"""

import ast
import functools
import inspect
import linecache
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from flatout.probe.core.loop_bounds import Loop, LoopNode, bounded, of_one_scope
from flatout.probe.core.other_trainings import trains_elsewhere
from flatout.probe.core.source_values import Scope
from flatout.probe.core.user_places import is_user_file
from flatout.schema.run import Planned

__all__ = ["planned_length"]

_DEEPEST = 60  # frames
_MOST = 10**12
_SKIPPED = ("torch", "flatout")
_OWN_REFERENCES = 3  # to a frame's dictionary: the frame's, ours, and that of who counts them
_PASS = Loop(None, is_pass=True)


@dataclass(frozen=True)
class _Level:
    """A frame that leads to a step."""

    loops: list[Loop]
    generates: bool  # it is a generator, which is asked for the next
    is_known: bool  # it comes to its line in a way that is counted, and trains nowhere else


def planned_length(frame: FrameType | None) -> Planned:
    """Return how many passes over the data, or how many steps, the loops around `frame` ask for; 0 for not known."""
    frames = list(_frames(frame))[::-1]
    levels = [_level(one, inner) for one, inner in zip(frames, [*frames[1:], None], strict=True)]
    if not all(level.is_known for level in levels):
        return Planned()
    asking = [loop for level in levels if not level.generates for loop in level.loops]
    making = [loop for level in levels if level.generates for loop in level.loops]
    if making and asking and not asking[-1].is_pass:
        making = []  # one after the other is asked for, however they come to be
    elif making and asking:
        asking.pop()
    return _asked_for([*asking, *making])


def _asked_for(loops: list[Loop]) -> Planned:
    if not loops:
        return Planned()
    counted = next((one for one in loops if one.of), None)
    if counted is not None:
        whole = counted.total * _product(loops[: loops.index(counted)])
        return Planned(updates=whole) if counted.of == "updates" else Planned(steps=whole)
    *outer, inner = loops
    if inner.is_pass:
        return Planned(passes=_product(outer))
    return Planned(steps=_product(loops), pass_steps=inner.times or 0)


def _product(loops: list[Loop]) -> int:
    times = [loop.times for loop in loops]
    known = [each for each in times if each is not None]
    whole = math.prod(known)
    return whole if len(known) == len(times) and 0 < whole < _MOST else 0


def _level(frame: FrameType, inner: FrameType | None) -> _Level:
    code, line = frame.f_code, frame.f_lineno
    generates = bool(code.co_flags & inspect.CO_GENERATOR)
    tree = _tree(code.co_filename) if line is not None else None
    if tree is None:
        return _Level([], generates, True)
    if code.co_name.startswith("<") and code.co_name.endswith(("comp>", "genexpr>")):
        return _Level([], generates, False)
    owner, nodes = _around(code.co_filename, code.co_firstlineno, line)
    is_users = is_user_file(code.co_filename)
    loops = bounded(nodes, line, Scope(_variables(frame), frame.f_globals, is_users), tree) if nodes else []
    if generates and _hands_on(owner, line):
        loops.append(_PASS)
    called = inner.f_code if inner is not None and is_user_file(inner.f_code.co_filename) else None
    name = called.co_name if called is not None and not called.co_flags & inspect.CO_GENERATOR else None
    return _Level(loops, generates, not (is_users and trains_elsewhere(tree, owner, nodes, line, name)))


def _hands_on(owner: ast.AST, line: int) -> bool:
    """Return whether a line is a `yield from`."""
    return any(
        isinstance(node, ast.YieldFrom) and node.lineno <= line <= (node.end_lineno or 0)
        for node in of_one_scope(owner)
    )


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_DEEPEST):
        if frame is None:
            return
        name = str(frame.f_globals.get("__name__", ""))
        if is_user_file(frame.f_code.co_filename) or name.partition(".")[0] not in _SKIPPED:
            yield frame
        if name == "__main__" and frame.f_code.co_name == "<module>":
            return  # what is further out started the script
        frame = frame.f_back


def _variables(frame: FrameType) -> dict[str, Any]:
    """Return a frame's variables, and keep none of them alive.

    Before Python 3.13 looking at them fills a dictionary that lives as long as the frame, and that is the one that
    `locals()` has given the script, if it was called: where somebody else holds it, it stays filled.
    """
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)
    shown = frame.f_locals
    found = dict(shown)
    if sys.getrefcount(shown) <= _OWN_REFERENCES:
        shown.clear()
    return found


@functools.lru_cache(maxsize=64)
def _around(file: str, first_line: int, line: int) -> tuple[ast.AST, tuple[LoopNode, ...]]:
    """Return the function, or the whole file, that a line belongs to, and its loops around it."""
    tree = _tree(file)
    assert tree is not None
    owner: ast.AST = tree
    if first_line > 1 or not isinstance(tree, ast.Module):
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = [one for one in functions if _begins(one) == first_line and _holds(one, line)]
        owner = inside[0] if inside else tree
    return owner, tuple(_descend(owner, line))


def _descend(node: ast.AST, line: int) -> Iterator[LoopNode]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case) and _holds(child, line):
            if isinstance(child, LoopNode) and not _in_else(child, line):
                yield child
            yield from _descend(child, line)


def _begins(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _holds(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.match_case):
        return any(_holds(each, line) for each in node.body)
    begin, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
    return begin <= line <= end


def _in_else(loop: LoopNode, line: int) -> bool:
    return any(_holds(each, line) for each in loop.orelse)


@functools.lru_cache(maxsize=16)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
