"""Elements of tensors that a Python loop reads one by one: as plain numbers, of a list that is made at once.

Each element of `for t in labels.view(-1)` is a tensor of its own, of 2 to 5 us, and each `matrix[t, p]` reads it again;
those of `labels.view(-1).tolist()` are numbers. They are read where a number and a tensor of one element mean the same
alone: as an index, compared with whole numbers and with each other, and by `int`, `float`, `bool` and `item`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.edits.cures.item_reads import items_in_loops, write_lists
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, operand

__all__ = ["as_numbers"]

_CONVERTS = frozenset({"bool", "float", "int"})
_MADE_OF_ELEMENTS = frozenset({"argmax", "argmin", "argsort", "cpu", "detach", "flatten", "ravel", "reshape", "view"})
_EXACT = 256  # whole numbers up to this one are numbers of every type of tensor
_Loop = ast.For | ast.comprehension


@dataclass(frozen=True)
class _Elements:
    """A name that a loop gives the elements of something to."""

    name: str
    whole: ast.expr
    loop: _Loop


@dataclass(frozen=True)
class _Numbers:
    """What is to be read as numbers: names that loops give elements to, and items."""

    names: set[str]
    items: set[ast.Subscript]


def as_numbers(source: SourceFile, scope: ast.AST, changes: TextChanges, *, certain: bool = False) -> bool:
    """Let the loops of a function read plain numbers; return whether anything was changed.

    `certain`: items that are read by their numbers are worth a trial, though nothing shows that they are of tensors.
    """
    torch = next((name for name, dotted in source.names.imports.items() if dotted == "torch"), "")
    if not isinstance(scope, Function) or not torch:
        return False
    inner = [node for node in ast.walk(scope) if source.scope(node) is scope]
    found = [each for loop in inner if isinstance(loop, _Loop) for each in _elements(loop)]
    items = items_in_loops(source, scope)
    while True:  # what is compared with an element that stays one stays, too
        numbers = _Numbers({each.name for each in found}, {node for nodes in items.values() for node in nodes})
        kept = [each for each in found if _is_number(source, scope, each, numbers)]
        left = {key: [node for node in nodes if _means_the_same(source, node, numbers)] for key, nodes in items.items()}
        if len(kept) == len(found) and left == items:
            break
        found, items = kept, {key: nodes for key, nodes in left.items() if nodes}
    evident = {each for each in found if _is_evident(each.whole) or _is_bound_so(source, scope, each.whole)}
    shown = certain or any(_is_bound_so(source, scope, nodes[0].value) for nodes in items.values())
    if not (evident or (items and shown)):
        return False
    for each in found:
        whole = operand(changes, each.whole)
        text = f"{whole}.tolist()"
        if each not in evident:
            text = f"({text} if isinstance({whole}, {torch}.Tensor) else {whole})"
        changes.replace(each.whole, text)
        for read in _items(scope, each.name):
            changes.replace(read, each.name)
    write_lists(source, items, torch, changes)
    return True


def _elements(loop: _Loop) -> Iterator[_Elements]:
    """Yield the names that a loop gives elements to: directly, by `zip` and by `enumerate`."""
    yield from _of(loop.target, loop.iter, loop)


def _of(target: ast.expr, whole: ast.expr, loop: _Loop) -> Iterator[_Elements]:
    called = whole.func.id if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Name) else ""
    if isinstance(target, ast.Name):
        plain = isinstance(whole, ast.Name | ast.Attribute)
        if not called and (plain or _is_evident(whole)):
            yield _Elements(target.id, whole, loop)
    elif isinstance(target, ast.Tuple) and isinstance(whole, ast.Call) and not whole.keywords:
        if called == "zip" and len(target.elts) == len(whole.args):
            for each, part in zip(target.elts, whole.args, strict=True):
                yield from _of(each, part, loop)
        elif called == "enumerate" and len(target.elts) == 2 and whole.args:
            yield from _of(target.elts[1], whole.args[0], loop)


def _is_evident(whole: ast.expr) -> bool:
    """Return whether an expression is what only tensors and arrays have: `x.view(-1)`, `x.argmax(1)`."""
    called = isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute)
    return called and whole.func.attr in _MADE_OF_ELEMENTS  # type: ignore[attr-defined]


def _is_bound_so(source: SourceFile, scope: ast.AST, whole: ast.expr) -> bool:
    """Return whether a name is bound once in the function, to what an operation of torch returns."""
    if not isinstance(whole, ast.Name):
        return False
    bound = [value for node in ast.walk(scope) for target, value in pairs(node) if _is(target, whole.id)]
    stored = [node for node in ast.walk(scope) if _is(node, whole.id) and isinstance(node.ctx, ast.Store)]  # type: ignore[attr-defined]
    one = bound[0] if len(bound) == len(stored) == 1 else None
    of_torch = isinstance(one, ast.Call) and source.names.dotted(one.func).startswith("torch.")
    return one is not None and (of_torch or _is_evident(one))


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_number(source: SourceFile, scope: ast.AST, each: _Elements, numbers: _Numbers) -> bool:
    """Return whether all that is done with the name is alike for a number."""
    uses = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == each.name]
    stored = [node for node in uses if not isinstance(node.ctx, ast.Load)]
    read = [node for node in uses if isinstance(node.ctx, ast.Load)]
    inside = {*ast.walk(each.loop if isinstance(each.loop, ast.For) else source.parents[each.loop])}
    if len(stored) != 1 or not read or not all(node in inside for node in read):
        return False
    mentions = any(isinstance(node, ast.Global | ast.Nonlocal) and each.name in node.names for node in ast.walk(scope))
    return not mentions and all(_means_the_same(source, node, numbers) for node in read)


def _means_the_same(source: SourceFile, node: ast.Name | ast.Subscript, numbers: _Numbers) -> bool:
    """Return whether a use of an element gives the same for a number."""
    above = source.parents[node]
    if isinstance(above, ast.Call) and isinstance(above.func, ast.Name):
        return above.func.id in _CONVERTS and above.args == [node] and not above.keywords
    if isinstance(above, ast.Attribute):
        call = source.parents[above]
        asks = above.attr == "item" and isinstance(call, ast.Call) and call.func is above and not call.args
        return asks and isinstance(node, ast.Name)
    if isinstance(above, ast.Tuple):
        return _is_place(source.parents[above], above)
    if isinstance(above, ast.Subscript):  # written to, it may be a dictionary, whose keys are other ones then
        return above.slice is node and isinstance(above.ctx, ast.Load)
    if isinstance(above, ast.Compare):
        return _is_asked(source, above) and all(_is_whole(one, numbers) for one in (above.left, *above.comparators))
    return False


def _is_place(node: ast.AST, index: ast.expr) -> bool:
    """Return whether an expression is the index of an item with several numbers: of no dictionary, that is."""
    return isinstance(node, ast.Subscript) and node.slice is index


def _is_whole(node: ast.expr, numbers: _Numbers) -> bool:
    """Return whether what an element is compared with is a whole number, or another element."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    if isinstance(node, ast.Constant):
        return type(node.value) is int and abs(node.value) <= _EXACT
    return node in numbers.items or (isinstance(node, ast.Name) and node.id in numbers.names)


def _is_asked(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a comparison is asked for its truth alone."""
    above = source.parents[node]
    if isinstance(above, ast.BoolOp) or (isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not)):
        return _is_asked(source, above)
    if isinstance(above, ast.If | ast.While | ast.IfExp):
        return above.test is node
    if isinstance(above, ast.comprehension):
        return node in above.ifs
    return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in _CONVERTS


def _items(scope: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls `name.item()`."""
    for node in ast.walk(scope):
        is_item = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"
        if is_item and _is(node.func.value, name):  # type: ignore[attr-defined]
            yield node  # type: ignore[misc]
