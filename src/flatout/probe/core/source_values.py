"""Whole numbers and lengths that expressions of the user's source have just now; nothing of the script is called.

Only names, attributes, entries and sums of whole numbers are looked at.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Scope", "count_of", "length_of", "object_of"]

_MOST, _DIGITS = 10**12, 12
_BARS = ("tqdm", "trange", "track", "prange", "progress_bar", "auto")
_ARRAYS = (("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("numpy", "ndarray"))
_CONTAINERS = (list, tuple, range, dict, set, frozenset, str, bytes)


class Scope(NamedTuple):
    """What names mean where a frame is."""

    variables: Mapping[str, Any]
    globals: Mapping[str, Any]
    is_users: bool


def length_of(node: ast.expr, scope: Scope) -> int | None:
    """Return how many things an expression is iterated over, None where that is not seen without calling anything."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None if any(isinstance(each, ast.Starred) for each in node.elts) else len(node.elts)
    if isinstance(node, ast.Call):
        return _length_of_call(node, scope)
    return _held(object_of(node, scope))


def _held(found: Any) -> int | None:
    """Return how many things a container, or rows an array, holds; None of what is neither."""
    kind = type(found)
    if kind in _CONTAINERS:
        return len(found)
    if (kind.__module__, kind.__name__) in _ARRAYS:
        return int(found.shape[0]) if len(found.shape) else None
    return None


def _parts_of(node: ast.Call, scope: Scope) -> int | None:
    """Return how many parts rows are cut into: `torch.randperm(n).split(size)`, `torch.split(rows, size)`."""
    cut = node.func
    if not isinstance(cut, ast.Attribute) or cut.attr not in ("split", "chunk"):
        return None
    as_function = isinstance(cut.value, ast.Name) and cut.value.id == "torch"
    rows, *sizes = node.args if as_function else [cut.value, *node.args]
    whole, size = _rows_of(rows, scope), count_of(sizes[0], scope) if len(sizes) == 1 else None
    if whole is None or not size or size < 1:
        return None
    return -(-whole // size) if cut.attr == "split" else min(whole, size)


def _rows_of(node: ast.expr, scope: Scope) -> int | None:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        drawn = name in ("randperm", "arange", "permutation") and len(node.args) == 1
        return count_of(node.args[0], scope) if drawn else None
    found = object_of(node, scope)
    return _held(found) if (type(found).__module__, type(found).__name__) in _ARRAYS else None


def _length_of_call(node: ast.Call, scope: Scope) -> int | None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [count_of(each, scope) for each in node.args]
    if name in ("range", "trange") and given and all(each is not None for each in given) and len(given) <= 3:
        try:
            return len(range(*[each for each in given if each is not None]))
        except (ValueError, OverflowError):
            return None
    if name in (*_BARS, "enumerate", "reversed", "sorted", "list", "tuple", "iter") and node.args:
        return length_of(node.args[0], scope)
    return _parts_of(node, scope)


def count_of(node: ast.expr, scope: Scope) -> int | None:
    """Return the whole number that an expression has, None where it is none or where something would be called."""
    if isinstance(node, ast.BinOp):
        left, right = count_of(node.left, scope), count_of(node.right, scope)
        return None if left is None or right is None else _computed(node.op, left, right)
    if isinstance(node, ast.IfExp):
        holds = _holds_true(node.test, scope)
        return None if holds is None else count_of(node.body if holds else node.orelse, scope)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return next((found for each in node.values if (found := count_of(each, scope))), None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id == "int":
            return count_of(node.args[0], scope)
        return length_of(node.args[0], scope) if node.func.id == "len" else None
    stored: Any = node.value if isinstance(node, ast.Constant) else object_of(node, scope)
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


def _holds_true(test: ast.expr, scope: Scope) -> bool | None:
    """Return whether a comparison of two whole numbers, or a number by itself, is true; None where that is not seen."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = count_of(test.left, scope), count_of(test.comparators[0], scope)
        compared = _COMPARED.get(type(test.ops[0]))
        return None if left is None or right is None or compared is None else compared(left, right)
    if isinstance(test, ast.Constant | ast.Name | ast.Attribute | ast.Subscript):
        found = test.value if isinstance(test, ast.Constant) else object_of(test, scope)
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


def object_of(node: ast.expr, scope: Scope) -> Any:
    """Return what a name, an attribute or an entry of a plain dictionary or list is; None where it is not seen."""
    if isinstance(node, ast.Name):
        return scope.variables.get(node.id, scope.globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return _attribute(object_of(node.value, scope), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = object_of(node.value, scope)
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
