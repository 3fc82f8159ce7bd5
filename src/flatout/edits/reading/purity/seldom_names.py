"""Statements of a block that bind names which nothing but they and the body of one branch behind them use."""

import ast
from collections.abc import Iterator, Sequence

from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["argument_names", "bound_names", "is_comprehended", "seldom_run"]

_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_READ_TO_THE_END = frozenset({"sum", "max", "min", "list", "tuple", "set", "sorted", "any", "all"})


def seldom_run(source: SourceFile, block: Sequence[ast.stmt], first: int, last: int, branch: ast.If) -> tuple[int, int]:
    """Return the fewest neighbouring statements, those from `first` to `last` among them, that share their names alone.

    What they bind is used by themselves and by the body of the branch. They are given by the places in the block of the
    first and the last one; both are -1 where there are none.
    """
    end, scope = block.index(branch), source.scope(branch)
    body = {node for each in branch.body for node in ast.walk(each)}
    while last < end:
        run = block[first : last + 1]
        names = {*bound_names(source, run), *_changed_names(run)}
        if not names or not _is_local(source, scope, names):
            return -1, -1
        inside = {node for each in run for node in ast.walk(each)}
        around = {node: at for at in range(end) for node in ast.walk(block[at])}
        reach, is_used = (first, last), False
        for node in _mentions(source, scope, names):
            if source.scope(node) is not scope or _is_read_later(source, node):
                return -1, -1
            if node in body:
                is_used = True
            elif node not in inside and not _is_of_other_loop(source, node, run):
                if node not in around:
                    return -1, -1
                reach = min(reach[0], around[node]), max(reach[1], around[node])
        if reach == (first, last):
            return reach if is_used else (-1, -1)
        first, last = reach
    return -1, -1


def bound_names(source: SourceFile, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the variables that statements bind, but for those of comprehensions."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and not is_comprehended(source, node):
            yield node.id


def argument_names(scope: ast.AST) -> set[str]:
    """Return the names of a function's own arguments."""
    if not isinstance(scope, Function):
        return set()
    given = scope.args
    all_ = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {each.arg for each in all_ if each is not None}


def _changed_names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the variables whose items may be set, or that have a method called as a statement: `rows.append(x)`."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            owner: ast.expr = node.value.func
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            owner = node
        else:
            continue
        while isinstance(owner, ast.Subscript | ast.Attribute):
            owner = owner.value
        if isinstance(owner, ast.Name):
            yield owner.id


def is_comprehended(source: SourceFile, node: ast.Name) -> bool:
    """Return whether a name is that of a comprehension around it."""
    inner: ast.AST = node
    for above in source.above(node):
        if isinstance(above, ast.stmt):
            return False
        if isinstance(above, _COMPREHENSION) and inner is not above.generators[0] and _binds(above, node.id):
            return True
        if isinstance(above, ast.comprehension) and node.id in _targets(above.target) and inner is not above.iter:
            return True
        inner = above
    return False


def _binds(comprehension: _COMPREHENSION, name: str) -> bool:
    return any(name in _targets(each.target) for each in comprehension.generators)


def _targets(target: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}


def _is_local(source: SourceFile, scope: ast.AST, names: set[str]) -> bool:
    """Return whether names are variables of one function alone, or of a script, and bound by statements alone."""
    if isinstance(scope, ast.ClassDef | ast.Lambda):
        return False
    shared = [node.names for node in ast.walk(source.tree) if isinstance(node, ast.Global | ast.Nonlocal)]
    return not names & (argument_names(scope) | {each for part in shared for each in part} | bound_as_words([scope]))


def _mentions(source: SourceFile, scope: ast.AST, names: set[str]) -> Iterator[ast.Name]:
    """Yield where a function names these variables, those inside of it, too."""
    for node in ast.walk(scope):
        if not isinstance(node, ast.Name) or node.id not in names:
            continue
        if not is_comprehended(source, node) and not _is_of_inner_function(source, scope, node):
            yield node


def _is_of_inner_function(source: SourceFile, scope: ast.AST, node: ast.Name) -> bool:
    """Return whether a function inside of `scope` has a variable of its own with this name."""
    inner = source.scope(node)
    while inner is not scope:
        if isinstance(inner, Function) and any(node in ast.walk(each) for each in inner.body):
            own = [each for each in ast.walk(inner) if isinstance(each, ast.Name) and source.scope(each) is inner]
            if node.id in argument_names(inner) | {*bound_names(source, own)}:
                return True
        inner = source.scope(inner)
    return False


def _is_read_later(source: SourceFile, node: ast.Name) -> bool:
    """Return whether a name stands in a generator that may be read at another time."""
    for above in source.above(node):
        if isinstance(above, ast.stmt):
            return False
        if isinstance(above, ast.GeneratorExp):
            call = source.parents[above]
            func = call.func if isinstance(call, ast.Call) and above in call.args else None
            if not isinstance(func, ast.Name) or func.id not in _READ_TO_THE_END or func.id in source.names.bound:
                return True
    return False


def _is_of_other_loop(source: SourceFile, node: ast.Name, run: Sequence[ast.stmt]) -> bool:
    """Return whether a name stands in a loop that binds it anew in each turn, and holds none of the statements."""
    inner: ast.AST = node
    for above in source.above(node):
        is_anew = isinstance(above, ast.For) and node.id in _targets(above.target) and run[0] not in ast.walk(above)
        if is_anew and isinstance(above, ast.For) and (inner is above.target or inner in above.body):
            return True
        inner = above
    return False
