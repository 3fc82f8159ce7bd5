"""How long the training is that the user has asked for, read from the loops around its first step.

Every frame that leads to a step is at a line of its source; the `for` and `while` statements around that line, with
the values that their bounds have just then, tell how many passes or steps are to come. Nothing of the script is called:
only names, attributes, entries and sums of whole numbers are looked at.
"""

import ast
import functools
import inspect
import linecache
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

from flatout.probe.core.user_places import is_user_file
from flatout.schema.run import Planned

__all__ = ["planned_length"]

_DEEPEST = 60  # frames
_MOST, _DIGITS = 10**12, 12
_SKIPPED = ("torch", "flatout")
_OWN_REFERENCES = 3  # to a frame's dictionary: the frame's, ours, and that of who counts them
_BARS = ("tqdm", "trange", "track", "prange", "progress_bar", "auto")
_CONTAINERS = (list, tuple, range, dict, set, frozenset, str, bytes)
_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True)
class _Around:
    """A loop that a step runs in: how often it is gone through, None where that is not seen, and what it counts."""

    times: int | None
    counts: str = ""  # the name that a `while` compares


class _Scope(NamedTuple):
    """What names mean where a frame is."""

    variables: Mapping[str, Any]
    globals: Mapping[str, Any]
    is_users: bool


def planned_length(frame: FrameType | None) -> Planned:
    """Return how many passes over the data, or how many steps, the loops around `frame` ask for; 0 for not known."""
    loops = [loop for one in reversed(list(_frames(frame))) for loop in _loops(one)]
    if not loops:
        return Planned()
    *outer, inner = loops
    total = next((one.times for one in loops if one.times and _counts_steps(one)), 0)
    if total:
        return Planned(steps=total)
    if inner.times is None:
        return Planned(passes=_product(outer))
    return Planned(steps=_product(loops))


def _counts_steps(loop: _Around) -> bool:
    name = loop.counts.lower()
    return bool(name) and "epoch" not in name


def _product(loops: list[_Around]) -> int:
    times = [loop.times for loop in loops]
    known = [each for each in times if each is not None]
    whole = math.prod(known)
    return whole if len(known) == len(times) and 0 < whole < _MOST else 0


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


def _loops(frame: FrameType) -> Iterator[_Around]:
    """Yield the loops of the frame's own function around the line that it is at, the outermost first."""
    code, line = frame.f_code, frame.f_lineno
    nodes = _around(code.co_filename, code.co_firstlineno, line) if line is not None else ()
    if not nodes:
        return
    scope = _Scope(_variables(frame), frame.f_globals, is_user_file(code.co_filename))
    for node in nodes:
        yield _for(node, scope) if not isinstance(node, ast.While) else _while(node, scope)


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
def _around(file: str, first_line: int, line: int) -> tuple[_Loop, ...]:
    tree = _tree(file)
    if tree is None:
        return ()
    owner: ast.AST = tree
    if first_line > 1 or not isinstance(tree, ast.Module):
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = [one for one in functions if _begins(one) == first_line and _holds(one, line)]
        owner = inside[0] if inside else tree
    return tuple(_descend(owner, line))


def _descend(node: ast.AST, line: int) -> Iterator[_Loop]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case) and _holds(child, line):
            if isinstance(child, _Loop) and not _in_else(child, line):
                yield child
            yield from _descend(child, line)


def _begins(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _holds(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.match_case):
        return any(_holds(each, line) for each in node.body)
    begin, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
    return begin <= line <= end


def _in_else(loop: _Loop, line: int) -> bool:
    return any(_holds(each, line) for each in loop.orelse)


@functools.lru_cache(maxsize=16)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# -- how often a loop is gone through -----------------------------------------------------------------------------


def _for(node: ast.For | ast.AsyncFor, scope: _Scope) -> _Around:
    return _Around(_length(node.iter, scope))


def _while(node: ast.While, scope: _Scope) -> _Around:
    """Return what `while epoch < epochs` and `while step <= num_steps` ask for, counted from nothing."""
    test = node.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        test = test.values[0]
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt | ast.LtE):
        most, now = _value(test.comparators[0], scope), _value(test.left, scope)
        if most is not None and now is not None:
            return _Around(most, ast.unparse(test.left))
    fields = getattr(scope.variables.get("self"), "__dict__", {})
    asked = fields.get("max_epochs") if not scope.is_users else None  # Lightning's own loop
    return _Around(asked if type(asked) is int and asked > 0 else None, "epoch" if asked else "")


def _length(node: ast.expr, scope: _Scope) -> int | None:
    """Return how many things an expression is iterated over, None where that is not seen without calling anything."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None if any(isinstance(each, ast.Starred) for each in node.elts) else len(node.elts)
    if isinstance(node, ast.Call):
        return _length_of_call(node, scope)
    found = _object(node, scope)
    return len(found) if type(found) in _CONTAINERS else None


def _length_of_call(node: ast.Call, scope: _Scope) -> int | None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [_value(each, scope) for each in node.args]
    if name in ("range", "trange") and given and all(each is not None for each in given) and len(given) <= 3:
        try:
            return len(range(*[each for each in given if each is not None]))
        except (ValueError, OverflowError):
            return None
    if name in (*_BARS, "enumerate", "reversed", "sorted", "list", "tuple", "iter") and node.args:
        return _length(node.args[0], scope)
    return None


def _value(node: ast.expr, scope: _Scope) -> int | None:
    """Return the whole number that an expression has, None where it is none or where something would be called."""
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, scope), _value(node.right, scope)
        return None if left is None or right is None else _computed(node.op, left, right)
    if isinstance(node, ast.IfExp):
        holds = _holds_true(node.test, scope)
        return None if holds is None else _value(node.body if holds else node.orelse, scope)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return next((found for each in node.values if (found := _value(each, scope))), None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id == "int":
            return _value(node.args[0], scope)
        return _length(node.args[0], scope) if node.func.id == "len" else None
    stored: Any = node.value if isinstance(node, ast.Constant) else _object(node, scope)
    if type(stored) is str and stored.isdecimal() and len(stored) < _DIGITS:
        stored = int(stored)  # as `int(sys.argv[1])` makes of it
    if type(stored) is float and stored.is_integer():
        stored = int(stored)
    return stored if type(stored) is int and abs(stored) < _MOST else None


_COMPARED: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _holds_true(test: ast.expr, scope: _Scope) -> bool | None:
    """Return whether a comparison of two whole numbers, or a number by itself, is true; None where that is not seen."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = _value(test.left, scope), _value(test.comparators[0], scope)
        compared = _COMPARED.get(type(test.ops[0]))
        return None if left is None or right is None or compared is None else compared(left, right)
    if isinstance(test, ast.Constant | ast.Name | ast.Attribute | ast.Subscript):
        found = test.value if isinstance(test, ast.Constant) else _object(test, scope)
        return bool(found) if type(found) in (bool, int, str, type(None)) else None
    return None


def _computed(kind: ast.operator, left: int, right: int) -> int | None:
    if isinstance(kind, ast.Add):
        return left + right
    if isinstance(kind, ast.Sub):
        return left - right
    if isinstance(kind, ast.Mult):
        return left * right
    if isinstance(kind, ast.FloorDiv) and right:
        return left // right
    return None


def _object(node: ast.expr, scope: _Scope) -> Any:
    """Return what a name, an attribute or an entry of a plain dictionary or list is; None where it is not seen."""
    if isinstance(node, ast.Name):
        return scope.variables.get(node.id, scope.globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return _attribute(_object(node.value, scope), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _object(node.value, scope)
        try:
            return owner[node.slice.value] if type(owner) in (dict, list, tuple) else None
        except (KeyError, IndexError, TypeError):
            return None
    return None


def _attribute(owner: object, name: str) -> Any:
    """Return an attribute as it is stored: in the object, else in its class; a property is not asked."""
    for place in (owner, *type(owner).__mro__) if owner is not None else ():
        try:
            stored = object.__getattribute__(place, "__dict__")
        except AttributeError:
            continue
        if isinstance(stored, Mapping) and name in stored:
            return stored[name]
    return None
