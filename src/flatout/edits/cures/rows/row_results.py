"""Where the results of a loop over rows go: written into an array by the number of the row, or added to a list."""

import ast
from collections.abc import Container, Iterator
from dataclasses import dataclass

from flatout.edits.cures.rows.row_aliases import names_alike
from flatout.edits.cures.rows.row_bodies import RowFacts
from flatout.edits.cures.rows.row_loops import RowLoop
from flatout.edits.cures.rows.row_names import bound_in
from flatout.edits.cures.rows.row_operations import ZERO_DIM
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.effects.fresh_values import NUMBERS, FreshValues
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import appends_to_own, is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["RowResult", "is_single", "refused_result", "row_results", "unwrapped"]

_NEW = frozenset(
    f"torch.{name}"
    for name in ("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "tensor")
)
_ARRAYS = frozenset(f"numpy.{name}" for name in ("zeros", "ones", "empty", "full"))
_NEW_METHODS = frozenset({"new_zeros", "new_ones", "new_full", "new_empty", "clone"})
_SAME = frozenset({"to", "cpu", "cuda", "float", "double", "half", "long", "int", "bool", "contiguous"})
_PUT_TOGETHER = frozenset({"torch.stack", "torch.cat", "torch.tensor", "torch.concat"})


@dataclass(frozen=True)
class RowResult:
    """One statement at the end of a loop's body that keeps a value.

    Attributes:
        value: what is computed, without `.item()` or `float()` around it.
        kind: "tensor", "item" or "float": what that makes of it.
        target: the place in an array that it is written to; None where it is added to a list.
            into: the array, the list, the sum, or what a comprehension is part of and is written otherwise with it.
        is_single: whether a value is seen to be a single number, without a dimension.
        adds: whether it is added to a sum.
        is_fixed: whether it is the same number in each turn, which is in sight.
        in_numpy: whether it is a number written to an array of NumPy's.
    """

    value: ast.expr
    kind: str
    target: ast.Subscript | None
    into: ast.expr
    is_single: bool
    adds: bool = False
    is_fixed: bool = False
    in_numpy: bool = False


def row_results(source: SourceFile, loop: RowLoop) -> tuple[list[ast.stmt], list[RowResult]]:
    """Return what a loop's body does first, and the results at its end."""
    assert isinstance(loop.node, ast.For)
    found: list[RowResult] = []
    rest = list(loop.node.body)
    while rest and (one := _result(source, loop, rest[-1])) is not None:
        found.insert(0, one)
        rest.pop()
    return rest, found


def _result(source: SourceFile, loop: RowLoop, node: ast.stmt) -> RowResult | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        if is_plain(target.value) and _is_numbered(source, loop, target):
            value, kind = unwrapped(source, node.value)
            in_numpy = kind != "tensor" and _is_made_here(
                source, source.scope(node), ast.unparse(target.value), _ARRAYS
            )
            return RowResult(value, kind, target, target.value, is_single(source, value), in_numpy=in_numpy)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
        value, kind = unwrapped(source, node.value)
        is_fixed = isinstance(value, ast.Constant) and type(value.value) in (int, float)
        return RowResult(value, kind, None, node.target, is_single(source, value), adds=True, is_fixed=is_fixed)
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "append":
        return None
    if len(call.args) != 1 or call.keywords or not appends_to_own(source, call):
        return None
    value, kind = unwrapped(source, call.args[0])
    return RowResult(value, kind, None, call.func.value, is_single(source, value))


def is_single(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a value is seen to be a single number, without a dimension."""
    if not isinstance(node, ast.Call) or node.keywords or name_called(node) not in ZERO_DIM:
        return False
    is_function = bool(source.names.dotted(node.func))
    return "loss" in name_called(node) or len(node.args) == is_function


def _is_numbered(source: SourceFile, loop: RowLoop, target: ast.Subscript) -> bool:
    """Return whether a place is the row of the turn, or a part of it, of an array: x[i], x[i, :], x[j, i], x[i, 0]."""
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    at = [number for number, each in enumerate(parts) if isinstance(each, ast.Name) and each.id == loop.index]
    if len(at) != 1 or not loop.index:
        return False
    before, behind = parts[: at[0]], parts[at[0] + 1 :]
    whole = [each for each in behind if isinstance(each, ast.Slice) and each.lower is each.upper is each.step is None]
    return all(_is_number(source, each) for each in [*before, *(each for each in behind if each not in whole)])


def _is_first(loop: RowLoop, target: ast.Subscript) -> bool:
    first = target.slice.elts[0] if isinstance(target.slice, ast.Tuple) else target.slice
    return isinstance(first, ast.Name) and first.id == loop.index


def _is_number(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a part of an index is a plain number: in sight, or counted by a loop around."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    for above in source.above(node):
        if isinstance(above, ast.For) and isinstance(node, ast.Name) and ast.unparse(above.target) == node.id:
            return isinstance(above.iter, ast.Call) and is_builtin(source, above.iter.func, ("range",))
    return False


def unwrapped(source: SourceFile, node: ast.expr) -> tuple[ast.expr, str]:
    """Return what is computed, and what plain number is made of it."""
    if isinstance(node, ast.Call) and not node.keywords:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            return node.func.value, "item"
        if len(node.args) == 1 and is_builtin(source, node.func, ("float",)):
            return node.args[0], "float"
        given = node.args[0] if len(node.args) == 1 and is_builtin(source, node.func, ("int",)) else None
        if isinstance(given, ast.Call) and name_called(given) in ("argmin", "argmax"):
            return given, "item"
    return node, "tensor"


# -- whether it is safe -----------------------------------------------------------------------------------------------


def refused_result(project: Project, source: SourceFile, loop: RowLoop, result: RowResult, facts: RowFacts) -> str:
    """Return why a result cannot be kept for all rows at once, "" where it can."""
    into = ast.unparse(result.into)
    roots = {_root(each) for each in facts.outer.values()}
    if (
        into in facts.outer
        or (result.target is None and into in facts.params)
        or _root(result.into) in roots - {"self"}
    ):
        return f"{into} is read in the loop, too"
    if result.target is None and not result.adds:
        return "" if result.kind != "tensor" or _is_put_together(source, loop, into) else (
            f"the items of {into} are used one by one"
        )  # fmt: skip
    if result.target is not None and into in facts.params and not _is_first(loop, result.target):
        return f"a row of {into} may be read that an earlier turn has written to"
    scope = source.scope(loop.node)
    read: list[ast.expr] = [*facts.outer.values(), *_wholes(facts, into)]
    makers = _ARRAYS if result.in_numpy else _NEW
    if isinstance(result.into, ast.Name) and _is_made_here(source, scope, result.into.id, makers, is_sum=result.adds):
        tainted, escapes = names_alike(project, source, scope, result.into.id)
        for each in read:
            is_elsewhere = isinstance(each, ast.Attribute) or _root(each) not in _bound(source, scope)
            if ast.unparse(each) in tainted or _root(each) in tainted or (escapes and is_elsewhere):
                return f"{ast.unparse(each)} may be the memory that {into} writes to"
        return ""
    if result.adds:
        return f"{into} may be no number, or known to others"
    facts.tensors[into] = None
    read = [each for each in read if not isinstance(each, ast.Constant)]
    is_given = isinstance(result.into, ast.Name) and into not in bound_in(scope) and into in _bound(source, scope)
    fresh = FreshValues(source, scope, project.functions)
    shared = next((each for each in read if not is_given or fresh.rank(each) < NUMBERS), None)
    return f"{ast.unparse(shared)} may be the memory that {into} writes to" if shared is not None else ""


def _wholes(facts: RowFacts, into: str) -> Iterator[ast.expr]:
    """Yield what the rows are cut out of, but for the array that is written to."""
    for text in facts.params:
        if text != into:
            yield ast.parse(text, mode="eval").body


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bound(source: SourceFile, scope: ast.AST) -> set[str]:
    """Return the variables of a function; none of a module, which others see."""
    if isinstance(scope, ast.Module):
        return set()
    names = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and source.scope(node) is scope]
    given = {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}
    return given | {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _is_made_here(
    source: SourceFile, scope: ast.AST, name: str, makers: Container[str], *, is_sum: bool = False
) -> bool:
    """Return whether a variable is a new tensor of torch's wherever it is bound; a sum may begin as a number."""
    stored = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
    stored = [node for node in stored if not isinstance(node.ctx, ast.Load)]
    stored = [node for node in stored if not isinstance(source.parents[node], ast.AugAssign)]
    bound = [value for node in ast.walk(scope) for to, value in pairs(node) if getattr(to, "id", "") == name]
    given = ast.walk(scope.args) if isinstance(scope, Function) else ()
    together = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and len(node.targets) > 1]
    if any(each in node.targets for each in stored for node in together):
        return False  # a = b = torch.zeros(3)
    if len(stored) != len(bound) or any(isinstance(each, ast.arg) and each.arg == name for each in given):
        return False
    shared = [node for node in ast.walk(source.tree) if isinstance(node, ast.Global | ast.Nonlocal)]
    is_new = all(_is_new(source, each, makers) or (is_sum and isinstance(each, ast.Constant)) for each in bound)
    return bool(bound) and is_new and not any(name in each.names for each in shared)


def _is_new(source: SourceFile, node: ast.expr, makers: Container[str]) -> bool:
    if not isinstance(node, ast.Call) or any(each.arg == "out" for each in node.keywords):
        return False
    if source.names.dotted(node.func) in makers:
        return True
    if not isinstance(node.func, ast.Attribute) or source.names.dotted(node.func) or makers is _ARRAYS:
        return False
    return node.func.attr in _NEW_METHODS or (node.func.attr in _SAME and _is_new(source, node.func.value, makers))


def _is_put_together(source: SourceFile, loop: RowLoop, name: str) -> bool:
    """Return whether all that is done with a list of tensors is to make one of them, or to add them up."""
    scope = source.scope(loop.node)
    if any(isinstance(node, ast.Global | ast.Nonlocal) and name in node.names for node in ast.walk(source.tree)):
        return False
    for node in ast.walk(source.tree if isinstance(scope, ast.Module) else scope):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        above = source.parents[node]
        is_first = isinstance(above, ast.Call) and node in above.args[:1]
        func = above.func if isinstance(above, ast.Call) else node
        if is_first and (source.names.dotted(func) in _PUT_TOGETHER or is_builtin(source, func, ("sum", "len"))):
            continue
        if isinstance(above, ast.If | ast.IfExp) and above.test is node:
            continue
        is_method = isinstance(above, ast.Attribute) and above.attr in ("append", "extend", "clear")
        if not is_method or source.scope(node) is not scope:
            return False
    return True
