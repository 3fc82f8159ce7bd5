"""How often a loop around a step is gone through, from its head, its counter, and what may end it before.

A `while` tells only where its counter goes up by one at one place: what is counted follows from where that stands.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from flatout.probe.core.source_values import Scope, count_of, length_of

__all__ = ["Loop", "LoopNode", "bounded", "of_one_scope", "with_what_follows"]

LoopNode = ast.For | ast.AsyncFor | ast.While
_Inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_TRAINS, _CHECKS = ("train", "fit", "learn"), ("val", "valid", "test", "eval", "dev", "infer")


@dataclass(frozen=True)
class Loop:
    """A loop that a step runs in.

    Attributes:
        times: how often it is gone through in all; None where that is not seen, or where something may end it before.
        by_count: its head counts something, whether or not it is gone through so often.
        is_pass: it may be a pass over data.
        total: what the counter of a `while` has left, where it counts something else than its turns.
        of: what that is.
    """

    times: int | None
    by_count: bool = False
    is_pass: bool = False
    total: int = 0
    of: Literal["", "batches", "updates"] = ""


def bounded(nodes: tuple[LoopNode, ...], line: int, scope: Scope, tree: ast.AST) -> list[Loop]:
    """Return the loops of a function around a line, the outermost first."""
    found = []
    for place, node in enumerate(nodes):
        inner = nodes[place + 1 :]
        found.append(
            _while(node, inner, line, scope, tree) if isinstance(node, ast.While) else _for(node, inner, scope)
        )
    return found


def of_one_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a node, functions and classes that it defines left out."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _Inner):
            yield child
            yield from of_one_scope(child)


def with_what_follows(node: ast.AST) -> tuple[int, int]:
    """Return the first and the last line of a statement."""
    return getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0


def _for(node: ast.For | ast.AsyncFor, inner: tuple[LoopNode, ...], scope: Scope) -> Loop:
    length = length_of(node.iter, scope)
    if length is None:
        return Loop(None, is_pass=True)
    times: int | None = length
    if not isinstance(node.iter, ast.Call) and _names(node.target) & _names(*(_head(each) for each in inner)):
        times = 1 if _are_phases(node.iter, scope) else None  # it chooses the data of inner loops, or how long they are
    if scope.is_users and (_ends_before(node) or _names(node.iter) & set(_stored(node))):
        times = None
    return Loop(times, by_count=True)


def _while(node: ast.While, inner: tuple[LoopNode, ...], line: int, scope: Scope, tree: ast.AST) -> Loop:
    if not scope.is_users:  # Lightning's own loop
        fields = getattr(scope.variables.get("self"), "__dict__", {})
        asked = fields.get("max_epochs")
        known = type(asked) is int and asked > 0
        return Loop(asked if known else None, by_count=known, is_pass=not known)
    test = node.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        test = test.values[0]
    one_more = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.LtE)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt | ast.LtE):
        most, now = count_of(test.comparators[0], scope), count_of(test.left, scope)
        if most is None or now is None or _ends_before(node):
            return Loop(None, by_count=True)
        return _counted(node, inner, line, test.left, max(0, most - now + one_more), tree)
    stops = isinstance(node.test, ast.Constant) and any(map(_stops_at_the_end, ast.walk(node)))
    return Loop(None, by_count=not stops, is_pass=stops)


def _counted(
    node: ast.While, inner: tuple[LoopNode, ...], line: int, counter: ast.expr, left: int, tree: ast.AST
) -> Loop:
    """Return what a counter tells that has `left` to go, by the one place where it goes up."""
    unknown, name = Loop(None, by_count=True), ast.unparse(counter)
    places = [each for each in of_one_scope(node) if name in _stored_here(each)]
    if not places and isinstance(counter, ast.Attribute):  # by another method
        return _by_name(counter.attr, left) if _goes_up_elsewhere(counter.attr, tree) else unknown
    if len(places) != 1 or not _adds_one(places[0]):
        return unknown
    (place,) = places
    loop, asked = _innermost(node, place)
    begin, _ = with_what_follows(place)
    if loop is node:
        return unknown if asked else Loop(left + (begin < line), by_count=True)
    if not inner or loop is not inner[-1]:
        return unknown
    return Loop(None, by_count=True, total=left, of="updates" if asked else "batches")


def _by_name(name: str, left: int) -> Loop:
    if "epoch" in name.lower():
        return Loop(left, by_count=True)
    return Loop(None, by_count=True, total=left, of="updates")


def _goes_up_elsewhere(attribute: str, tree: ast.AST) -> bool:
    """Return whether an attribute goes up by one at one place of the file, and is only begun anew besides."""
    up = [node for node in ast.walk(tree) if isinstance(node, ast.AugAssign) and _is_attribute(node.target, attribute)]
    return len(up) == 1 and _adds_one(up[0])


def _is_attribute(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def _adds_one(node: ast.AST) -> bool:
    by_one = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
    return by_one and isinstance(node.value, ast.Constant) and node.value.value == 1  # type: ignore[attr-defined]


def _innermost(loop: LoopNode, place: ast.AST) -> tuple[LoopNode, bool]:
    """Return the innermost loop around a statement in `loop`, and whether a condition lies between."""
    around, asked = loop, False
    begin, end = with_what_follows(place)
    for node in of_one_scope(loop):
        first, last = with_what_follows(node)
        if node is place or not first <= begin <= end <= last:
            continue
        if isinstance(node, LoopNode):
            around, asked = node, False
        elif isinstance(node, ast.If | ast.Match | ast.ExceptHandler | ast.IfExp):
            asked = True
    return around, asked


def _ends_before(loop: LoopNode) -> bool:
    """Return whether a `break` or a `return` may end a loop before its head does."""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Break | ast.Return):
            return True
        if isinstance(node, LoopNode):
            waiting += [each for each in of_one_scope(node) if isinstance(each, ast.Return)]
            waiting += node.orelse
        elif not isinstance(node, _Inner):
            waiting += ast.iter_child_nodes(node)
    return False


def _stops_at_the_end(node: ast.AST) -> bool:
    """Return whether a handler ends a loop where an iterator has no more."""
    if not isinstance(node, ast.ExceptHandler) or "StopIteration" not in _names(node.type):
        return False
    return any(isinstance(each, ast.Break) for each in node.body)


def _are_phases(node: ast.expr, scope: Scope) -> bool:
    """Return whether the words of a list are those of a training and its validation."""
    words = [each.value for each in getattr(node, "elts", ()) if isinstance(each, ast.Constant)]
    if isinstance(node, ast.Name):
        found: Any = scope.variables.get(node.id, scope.globals.get(node.id))
        words = list(found) if type(found) in (list, tuple) else []
    told = [word.lower() for word in words if type(word) is str]
    trains = [word for word in told if word.startswith(_TRAINS)]
    return len(trains) == 1 and all(word.startswith((*_TRAINS, *_CHECKS)) for word in told)


def _head(node: LoopNode) -> ast.expr:
    return node.test if isinstance(node, ast.While) else node.iter


def _names(*nodes: ast.AST | None) -> set[str]:
    return {each.id for node in nodes if node is not None for each in ast.walk(node) if isinstance(each, ast.Name)}


def _stored(loop: LoopNode) -> Iterator[str]:
    for statement in loop.body:
        for node in (statement, *of_one_scope(statement)):
            yield from _stored_here(node)


def _stored_here(node: ast.AST) -> Iterator[str]:
    targets: Iterable[ast.AST] = ()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
        targets = (node.target,)
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
            if isinstance(each, ast.Name | ast.Attribute):
                yield ast.unparse(each)
