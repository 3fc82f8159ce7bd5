"""Whether a script trains at more places than the one that it is at: then that one's loops do not tell the whole.

A warm-up before the training, a search for the learning rate, `fit` called for each fold by `map`: all that is seen is
the source of the file around the calls that lead to the step.
"""

import ast
import functools
from collections.abc import Iterator

from flatout.probe.core.loop_bounds import LoopNode, of_one_scope, with_what_follows

__all__ = ["trains_elsewhere"]

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEEPEST = 3  # functions that call each other


def trains_elsewhere(tree: ast.AST, owner: ast.AST, loops: tuple[LoopNode, ...], line: int, called: str | None) -> bool:
    """Return whether a function trains at other places, too, or comes to its line in a way that is not counted.

    Args:
        tree: of the whole file.
        owner: the function, or the file, that has come to `line`.
        loops: its loops around the line.
        line: the line.
        called: the user's function that it has called there; None where the step is its own.
    """
    here = _statement(owner, line)
    if here is None:
        return False
    if called is not None and not isinstance(here, LoopNode) and _comes_otherwise(here, called):
        return True
    same = {ast.unparse(node.func) for node in ast.walk(here) if isinstance(node, ast.Call) and _calls(node, called)}
    for node in _beside(owner, line):
        first, last = with_what_follows(node)
        outside = not (loops and _contains(loops[0], node)) and not first <= line <= last
        if (
            outside
            and isinstance(node, ast.Call)
            and (ast.unparse(node.func) in same or _trains(tree, _own(node.func)))
        ):
            return True
        apart = isinstance(node, LoopNode) and node not in loops and not (loops and _contains(loops[-1], node))
        if apart and _walks_back(node):
            return True
    return False


def _beside(owner: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield what is in a function, the other branches left out of each choice that has led to the line."""
    for child in ast.iter_child_nodes(owner):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield child
        first, last = with_what_follows(child)
        if isinstance(child, ast.If | ast.Try) and first <= line <= last:
            for each in _branch(child, line):
                yield each
                yield from _beside(each, line)
        else:
            yield from _beside(child, line)


def _branch(choice: ast.If | ast.Try, line: int) -> list[ast.stmt]:
    """Return the branch of a choice that a line is in."""
    handlers = [each.body for each in choice.handlers] if isinstance(choice, ast.Try) else []
    for branch in (choice.body, choice.orelse, *handlers):
        if branch and branch[0].lineno <= line <= (branch[-1].end_lineno or 0):
            return branch
    return []


def _statement(owner: ast.AST, line: int) -> ast.stmt | None:
    """Return the smallest statement at a line."""
    held = [each for each in of_one_scope(owner) if isinstance(each, ast.stmt)]
    around = [each for each in held if with_what_follows(each)[0] <= line <= with_what_follows(each)[1]]
    return max(around, key=lambda each: with_what_follows(each)[0], default=None)


def _comes_otherwise(here: ast.stmt, called: str) -> bool:
    """Return whether a statement hands a function on, or calls it in a comprehension: how often is not seen."""
    for node in ast.walk(here):
        if isinstance(node, _COMPREHENSIONS) and any(_calls(each, called) for each in ast.walk(node)):
            return True
        if isinstance(node, ast.Call):
            handed = [*node.args, *(each.value for each in node.keywords)]
            if any(isinstance(each, ast.Name | ast.Attribute) and _name(each) == called for each in handed):
                return True
    return False


def _calls(node: ast.AST, name: str | None) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == name


def _own(function: ast.expr) -> str:
    """Return the name of a function of the file, or of a method of the same object; "" of what belongs to others."""
    of_self = (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    )
    return _name(function) if of_self or isinstance(function, ast.Name) else ""


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _contains(outer: ast.AST, inner: ast.AST) -> bool:
    (begin, end), (first, last) = with_what_follows(outer), with_what_follows(inner)
    return begin <= first and last <= end


def _walks_back(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and _name(each.func) == "backward" for each in of_one_scope(node))


@functools.lru_cache(maxsize=256)
def _trains(tree: ast.AST, name: str, depth: int = 0) -> bool:
    """Return whether a function of the file has a loop with a backward pass, itself or by what it calls."""
    if not name or depth > _DEEPEST:
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    for function in functions:
        inside = list(of_one_scope(function))
        if any(isinstance(node, LoopNode) and _walks_back(node) for node in inside):
            return True
        calls = {_name(node.func) for node in inside if isinstance(node, ast.Call)} - {name}
        if any(_trains(tree, each, depth + 1) for each in calls):
            return True
    return False
