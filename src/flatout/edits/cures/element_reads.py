"""Elements of tensors that a Python loop reads one by one: as plain numbers, of a list that is made at once.

Each element of `for t in labels.view(-1)` is a tensor of its own, of 2 to 5 us, and each `matrix[t, p]` reads it again.
They are read where a number and a tensor of one element mean the same alone: as an index of a tensor, compared with
whole numbers and with each other, and by `int`, `float` and `bool`. An element is a view: loops that may write to the
tensor are left. Whether it has one dimension, and a type whose numbers Python has, is asked where the list is made.
What a script computes from them (a metric, a mask) is in no comparison of a trial: what is not sure is left. One
difference remains: whole numbers beyond 2**24 in one tensor, compared with elements of float32 in another, are compared
as they are, where torch rounds them first.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.edits.cures.item_reads import LoopsOf, is_of_torch, is_plain_tensor, items_in_loops, stays, write_lists
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["as_numbers"]

_CONVERTS = frozenset({"bool", "float", "int"})
_FLAT = frozenset({"flatten", "ravel"})
_SHAPED = frozenset({"reshape", "view"})  # to one dimension, by -1
_EXACT = 2**24  # whole numbers up to this one are numbers of the types in `is_plain_tensor`
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

    loops: LoopsOf
    names: set[str]
    items: set[ast.Subscript]

    def is_place(self, node: ast.Subscript) -> bool:
        """Return whether an item is one of a tensor: keys of a dictionary that are tensors are other keys."""
        return node in self.items or is_of_torch(self.loops, node.value)

    def is_number(self, node: ast.expr) -> bool:
        """Return whether what an element is compared with is a whole number, or another element."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node = node.operand
        if isinstance(node, ast.Constant):
            return type(node.value) is int and abs(node.value) <= _EXACT
        return node in self.items or (isinstance(node, ast.Name) and node.id in self.names)


def as_numbers(loops: LoopsOf, changes: TextChanges, *, certain: bool = False) -> bool:
    """Let the loops of a function read plain numbers; return whether anything was changed.

    `certain`: items that are read by their numbers are worth a trial, though nothing shows that they are of tensors.
    """
    source, scope = loops.source, loops.scope
    torch = next((name for name, dotted in source.names.imports.items() if dotted == "torch"), "")
    if not torch:
        return False
    own = [node for node in ast.walk(scope) if isinstance(node, _Loop) and source.scope(node) is scope]
    found = [each for loop in own for each in _of(loop.target, loop.iter, loop)]
    found = [each for each in found if stays(loops, _statement(source, each.loop), ast.unparse(_root(each.whole)))]
    items = items_in_loops(loops)
    while True:  # what is compared with an element that stays one stays, too
        numbers = _Numbers(loops, {each.name for each in found}, {node for nodes in items.values() for node in nodes})
        kept = [each for each in found if _is_number(each, numbers)]
        left = {key: [node for node in nodes if _means_the_same(node, numbers)] for key, nodes in items.items()}
        if len(kept) == len(found) and left == items:
            break
        found, items = kept, {key: nodes for key, nodes in left.items() if nodes}
    shown = any(_is_flat(each.whole) or is_of_torch(loops, each.whole) for each in found)
    by_number = bool(items) and (certain or any(is_of_torch(loops, each[0].value) for each in items.values()))
    if not (shown or by_number):
        return False
    for each in found:
        whole = held = changes.text(each.whole)
        if _is_flat(each.whole):
            held = fresh_name(source, f"elements_of_{ast.unparse(_root(each.whole)).rpartition('.')[2]}")
            whole = f"({held} := {whole})"
        changes.replace(each.whole, f"({held}.tolist() if {is_plain_tensor(torch, whole, held)} else {held})")
    write_lists(source, items, torch, changes)
    return True


def _of(target: ast.expr, whole: ast.expr, loop: _Loop) -> Iterator[_Elements]:
    """Yield the names that a loop gives elements to: directly, by `zip` and by `enumerate`."""
    called = whole.func.id if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Name) else ""
    if isinstance(target, ast.Name):
        flat = _is_flat(whole) and isinstance(loop, ast.For)  # `:=` has no place in a comprehension
        if not called and (isinstance(whole, ast.Name) or flat):
            yield _Elements(target.id, whole, loop)
    elif isinstance(target, ast.Tuple) and isinstance(whole, ast.Call) and not whole.keywords:
        if called == "zip" and len(target.elts) == len(whole.args):
            for each, part in zip(target.elts, whole.args, strict=True):
                yield from _of(each, part, loop)
        elif called == "enumerate" and len(target.elts) == 2 and whole.args:
            yield from _of(target.elts[1], whole.args[0], loop)


def _is_flat(whole: ast.expr) -> bool:
    """Return whether an expression is a tensor or array in one dimension: `x.view(-1)`, `x.flatten()`."""
    if not isinstance(whole, ast.Call) or not isinstance(whole.func, ast.Attribute) or whole.keywords:
        return False
    shaped = whole.func.attr in _SHAPED and [ast.unparse(each) for each in whole.args] == ["-1"]
    plain = isinstance(_root(whole), ast.Name | ast.Attribute)
    return plain and (shaped or (whole.func.attr in _FLAT and not whole.args))


def _root(whole: ast.expr) -> ast.expr:
    """Return `x` of `x.view(-1)`."""
    return whole.func.value if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute) else whole


def _statement(source: SourceFile, loop: _Loop) -> ast.stmt:
    return loop if isinstance(loop, ast.For) else source.statement(loop)


def _is_number(each: _Elements, numbers: _Numbers) -> bool:
    """Return whether all that is done with the name is alike for a number."""
    nodes = [*ast.walk(numbers.loops.scope)]
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == each.name]
    read = [node for node in uses if isinstance(node.ctx, ast.Load)]
    loop = each.loop if isinstance(each.loop, ast.For) else numbers.loops.source.parents[each.loop]
    if len(uses) != len(read) + 1 or not read or not {*read} <= {*ast.walk(loop)}:
        return False
    mentioned = any(isinstance(node, ast.Global | ast.Nonlocal) and each.name in node.names for node in nodes)
    return not mentioned and all(_means_the_same(node, numbers) for node in read)


def _means_the_same(node: ast.Name | ast.Subscript, numbers: _Numbers) -> bool:
    """Return whether a use of an element gives the same for a number."""
    source = numbers.loops.source
    above = source.parents[node]
    if isinstance(above, ast.Call):
        return is_builtin(source, above.func, _CONVERTS) and above.args == [node] and not above.keywords
    if isinstance(above, ast.Tuple):
        around = source.parents[above]
        return isinstance(around, ast.Subscript) and around.slice is above and numbers.is_place(around)
    if isinstance(above, ast.Subscript):
        return above.slice is node and numbers.is_place(above)
    if isinstance(above, ast.Compare):
        return _is_asked(source, above) and all(map(numbers.is_number, (above.left, *above.comparators)))
    return False


def _is_asked(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a comparison is asked for its truth alone."""
    above = source.parents[node]
    if isinstance(above, ast.BoolOp) or (isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not)):
        return _is_asked(source, above)
    if isinstance(above, ast.If | ast.While | ast.IfExp):
        return above.test is node
    if isinstance(above, ast.comprehension):
        return node in above.ifs
    return isinstance(above, ast.Call) and is_builtin(source, above.func, _CONVERTS)
