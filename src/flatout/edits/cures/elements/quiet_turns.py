"""What a turn of a loop does before it has used its elements for the last time.

An element of a tensor is a view: it shows what is written to the tensor until it is used. A number shows what was there
at the beginning of the turn. They are alike where nothing before the last use may write to a tensor, or run code of the
user's that does: nothing but numbers, comparisons of numbers, and lists that the function has made.
"""

import ast
from collections.abc import Callable, Iterable, Iterator

from flatout.edits.cures.elements.function_loops import LoopsOf, calls_builtin
from flatout.edits.cures.elements.whole_numbers import Numbers

__all__ = ["is_quiet", "until_last"]

_PLAIN = (
    ast.Constant | ast.Tuple | ast.ListComp | ast.GeneratorExp | ast.BoolOp | ast.If | ast.IfExp | ast.Pass | ast.Break
    | ast.Continue | ast.Expr | ast.expr_context | ast.operator | ast.unaryop | ast.boolop | ast.cmpop
)  # fmt: skip
_REPEATED = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_ADDS = ("add", "append")
_Knows = Callable[[ast.AST], bool]


def until_last(nodes: Iterable[ast.AST], uses: set[ast.AST]) -> list[ast.AST]:
    """Return what runs until the last of `uses` has, in the order of the run; of a loop within, all of it."""
    order = [part for node in nodes for part in _in_order(node)]
    last = max((at for at, part in enumerate(order) if uses & {*part}), default=-1)
    return [node for part in order[: last + 1] for node in part]


def _in_order(node: ast.AST) -> Iterator[list[ast.AST]]:
    if isinstance(node, _REPEATED):
        yield [*ast.walk(node)]
        return
    inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Assign):
        inner = (node.value, *node.targets)
    elif isinstance(node, ast.If | ast.IfExp | ast.BoolOp | ast.Compare):
        first, rest = _asked(node)
        yield from (part for each in first for part in _in_order(each))
        yield [node]
        yield from (part for each in rest for part in _in_order(each))
        return
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        inner = (node.target.value, node.target.slice, node.value)
    for each in inner:
        yield from _in_order(each)
    yield [node, node.target] if isinstance(node, ast.AugAssign) else [node]


def _asked(node: ast.If | ast.IfExp | ast.BoolOp | ast.Compare) -> tuple[list[ast.expr], list[ast.AST]]:
    """Return what is asked for its truth, or compared, before the rest runs, and the rest."""
    if isinstance(node, ast.If):
        return [node.test], [*node.body, *node.orelse]
    if isinstance(node, ast.IfExp):
        return [node.test], [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values[:1], [*node.values[1:]]
    return [node.left, node.comparators[0]], [*node.comparators[1:]]


def is_quiet(loops: LoopsOf, nodes: Iterable[ast.AST], knows: _Knows, counts: _Knows) -> bool:
    """Return whether nodes write to no tensor, and run no code but Python's own.

    `knows`: nodes that are known to be so; `counts`: elements that are numbers.
    """
    turn = _Turn(loops, knows, counts)
    return all(knows(node) or turn.is_quiet(node) for node in nodes)


class _Turn:
    def __init__(self, loops: LoopsOf, knows: _Knows, counts: _Knows) -> None:
        self._loops, self._knows, self._counts, self._numbers = loops, knows, counts, Numbers(loops)

    def is_quiet(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):  # deleting one may run code
            return not isinstance(node.ctx, ast.Del)
        if isinstance(node, ast.Compare):
            return all(map(self._is_number, (node.left, *node.comparators)))
        if isinstance(node, ast.BinOp):
            return self._numbers.is_real(node)
        if isinstance(node, ast.UnaryOp):
            return self._numbers.is_real(node.operand) or self._is_asked(node.operand)
        if isinstance(node, ast.Assign):
            return all(isinstance(each, ast.Name) or self._knows(each) for each in node.targets)
        if isinstance(node, ast.AugAssign):
            return self._knows(node.target) or (isinstance(node.target, ast.Name) and self._adds_numbers(node))
        if isinstance(node, ast.Attribute):
            return node.attr in _ADDS and self._is_own_list(node.value)
        if isinstance(node, ast.Call):
            return self._is_quiet_call(node)
        if isinstance(node, ast.For | ast.comprehension):
            return self._knows(node.iter) or calls_builtin(self._loops.source, node.iter, ("range",))
        return self._is_asked_for_truth(node) and isinstance(node, _PLAIN | ast.While)

    def _is_asked_for_truth(self, node: ast.AST) -> bool:
        """Return whether what a node asks for its truth is a number or a comparison."""
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            return self._is_asked(node.test)
        return not isinstance(node, ast.BoolOp) or all(map(self._is_asked, node.values))

    def _is_asked(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            return all(map(self._is_asked, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._is_asked(node.operand)
        return isinstance(node, ast.Compare) or self._is_number(node)

    def _is_number(self, node: ast.expr) -> bool:
        if isinstance(node, ast.UnaryOp):
            node = node.operand
        if self._counts(node) or calls_builtin(self._loops.source, node, ("bool", "float", "int")):
            return True
        return self._numbers.is_real(node) or self._numbers.is_text(node)

    def _adds_numbers(self, node: ast.AugAssign) -> bool:
        return self._numbers.is_real(node.target)

    def _is_quiet_call(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute):
            return call.func.attr in _ADDS and self._is_own_list(call.func.value)
        if calls_builtin(self._loops.source, call, ("bool", "float", "int", "abs", "min", "max", "range")):
            return not call.keywords and all(map(self._is_number, call.args))
        return False

    def _is_own_list(self, node: ast.expr) -> bool:
        """Return whether a name stands for an empty list or set that the function makes, wherever it is bound."""
        if not isinstance(node, ast.Name) or node.id in self._loops.arguments | self._loops.unfollowed:
            return False
        bound, stored = self._loops.bound(node.id), self._loops.stored(node.id)
        return len(bound) == len(stored) > 0 and all(isinstance(each, ast.List) and not each.elts for each in bound)
