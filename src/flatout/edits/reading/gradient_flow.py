"""Whether a value may come to a backward pass, as far as the names in the source tell."""

import ast
from collections.abc import Iterable

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["last_name", "may_be_trained_on", "named_in", "reached_backwards"]

_KEEP = {"add", "append", "appendleft", "extend", "insert", "put", "update"}  # methods that keep what they are given

Binding = tuple[ast.stmt, set[str], set[str]]
"""A statement, the names that it binds, and the names in what it binds them to."""


def may_be_trained_on(project: Project, source: SourceFile, block: ast.stmt, names: Iterable[str] = ()) -> bool:
    """Return whether what `block` binds, or what is made of it, may be part of what `backward()` is called on.

    `names`: other names for it. Looked at are the scope of the block and, for what objects keep, all scopes that train.
    """
    bound = _bound_in(source, block) | set(names)
    if _reaches_backward(source, source.scope(block), block, bound):
        return True
    held = bound & {each.attr for each in ast.walk(block) if isinstance(each, ast.Attribute)}
    scopes = {(place, place.scope(call)) for place, call in project.nodes(ast.Call) if held and _is_backward(call)}
    return any(_reaches_backward(place, scope, block, held) for place, scope in scopes)


def reached_backwards(source: SourceFile, block: ast.stmt) -> list[ast.Call]:
    """Return the calls that begin a backward pass, in the same scope, of what `block` binds or is made of it.

    A name that the next turn of a loop binds anew, before its own pass, is another one there.
    """
    return _reached(source, source.scope(block), block, _bound_in(source, block), next_turns=True)


def _reaches_backward(source: SourceFile, scope: ast.AST, block: ast.stmt, names: set[str]) -> bool:
    """Return whether one of the `names` that `block` binds comes to a backward pass in `scope`."""
    return bool(_reached(source, scope, block, names))


def _reached(
    source: SourceFile, scope: ast.AST, block: ast.stmt, names: set[str], *, next_turns: bool = False
) -> list[ast.Call]:
    """Return the backward passes in `scope` of what the `names` that `block` binds stand for.

    Names that stand for something new before each backward pass of a loop count as new ones.
    """
    bindings = [each for each in map(_binding, _of_scope(source, scope)) if each is not None]
    calls = [node for node in _of_scope(source, scope) if isinstance(node, ast.Call) and _is_backward(node)]
    found = []
    for call in calls:
        since = (block.end_lineno or block.lineno) if not next_turns or block.lineno <= call.lineno else 0
        found += [call] if _made_of(source, bindings, call, block, names, since) & named_in(call) else []
    return found


def _bound_in(source: SourceFile, block: ast.stmt) -> set[str]:
    """Return the names that a block binds or adds to."""
    found: set[str] = set()
    for node in ast.walk(block):
        if source.scope(node) is source.scope(block):
            binding = _binding(node)
            found |= binding[1] if binding is not None else set()
    return found


def named_in(node: ast.AST) -> set[str]:
    """Return the names of variables, attributes and functions in `node`."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _of_scope(source: SourceFile, scope: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(scope) if node is not scope and source.scope(node) is scope]


def _binding(node: ast.AST) -> Binding | None:
    if isinstance(node, ast.Assign):
        return node, set().union(*map(_targets, node.targets)), named_in(node.value)
    if isinstance(node, ast.AugAssign):
        return node, _targets(node.target), named_in(node.value) | _targets(node.target)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return node, _targets(node.target), named_in(node.value)
    if isinstance(node, ast.For | ast.AsyncFor):
        return node, _targets(node.target), named_in(node.iter)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in _KEEP:
            return node, {last_name(function.value)}, named_in(node.value)  # losses.append(loss)
    return None


def _targets(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*map(_targets, node.elts))
    return {last_name(node)}


def last_name(node: ast.expr) -> str:
    """Return `c` of `a.b.c` and `c[0]`, "" of what has no name."""
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_backward(call: ast.Call) -> bool:
    name = last_name(call.func)
    return name == "backward" or (name == "grad" and "autograd" in ast.unparse(call.func))


def _made_of(
    source: SourceFile, bindings: list[Binding], call: ast.Call, block: ast.stmt, names: set[str], since: int
) -> set[str]:
    """Return what is made of the `names` bound in `block`, themselves included, by the time that `call` is made.

    `since`: the line in a turn of its loop from which on a name that is bound is another one.
    """
    loop = next((each for each in source.above(call) if isinstance(each, ast.For | ast.While)), None)
    inside = set(ast.walk(loop)) if loop is not None else set()
    before = [each for each in bindings if each[0] in inside and each[0].lineno < call.lineno]
    since = since if block in inside else 0
    renewed = {
        name
        for statement, targets, values in before
        if isinstance(statement, ast.Assign | ast.For | ast.AsyncFor)
        if statement.lineno > since and not targets & values and _comes_before(source, statement, call)
        for name in targets
    }
    found, size = names - renewed, -1
    while size != len(found):
        size = len(found)
        for each in bindings:
            _, targets, values = each
            if values & found:
                found = found | (targets if each in before else targets - renewed)
    return found


def _comes_before(source: SourceFile, statement: ast.stmt, call: ast.Call) -> bool:
    """Return whether `statement`, which stands above `call`, runs whenever that does: under no condition of its own."""
    around = {call, *source.above(call)}
    if not isinstance(statement, ast.Assign):  # a loop, which may have no turn
        return statement in around
    blocks = (each for _, each in ast.iter_fields(source.parents[statement]) if isinstance(each, list))
    return any(statement in block and not around.isdisjoint(block) for block in blocks)
