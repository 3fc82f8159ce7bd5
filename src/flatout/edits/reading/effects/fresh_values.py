"""Values that a function makes itself, so that nobody else sees what it does to them.

The ranks: HELD, somebody else may have it; OWN, the object is new, not what is in it; DEEP, what is in it is new, too;
NUMBERS, a number or an array of them, which copies what is written to it.
"""

import ast
from collections.abc import Container, Iterator, Mapping

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.effects.pure_calls import IN_PLACE_METHODS, MAKERS, NUMBER_BUILTINS
from flatout.edits.reading.source_file import SourceFile

__all__ = ["DEEP", "HELD", "NUMBERS", "OWN", "FreshValues", "root_name"]

HELD, OWN, DEEP, NUMBERS = range(4)

_CONTAINERS = frozenset({"list", "dict", "set", "tuple", "frozenset", "sorted"})
_ITERATORS = frozenset({"zip", "map", "filter", "enumerate", "reversed", "iter"})
_COUNTERS = frozenset(f"collections.{each}" for each in ("Counter", "defaultdict", "deque", "OrderedDict"))
_NUMBER_METHODS = MAKERS - {"sort", "unique"} | {"item", "numel", "size", "dim", "count", "index", "clone", "eq", "ne"}
_NAMED = ast.ExceptHandler | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.MatchAs | ast.MatchStar
_KINDS = ("int", "float", "list", "dict", "set", "str")


class FreshValues:
    """The ranks of the variables of one function, and of expressions in it."""

    def __init__(self, source: SourceFile, scope: ast.AST, known: Container[str] = ()) -> None:
        """Read the assignments of a function or a module; `known`: the user's functions, which may return anything."""
        self._source = source
        self._known = known
        self._nodes = [node for node in ast.walk(scope) if source.scope(node) is scope]
        self._ranks = self._read()

    def rank(self, node: ast.expr) -> int:
        """Return the rank of an expression's value."""
        return self._rank(node, self._ranks)

    def _read(self) -> dict[str, int]:
        bound: dict[str, list[ast.expr]] = {}
        for node in self._nodes:
            for target, value in pairs(node):
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(value)
        stored: dict[str, int] = {}
        for node in self._nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not self._is_added_to(node):
                stored[node.id] = stored.get(node.id, 0) + 1
        counted = [name for node in self._nodes for name in _counted(node)]
        assigned = {name: len(bound.get(name, ())) + counted.count(name) for name in {*bound, *counted}}
        ranks = {name: NUMBERS for name in assigned if assigned[name] == stored[name] and self._is_own(name)}
        size = -1
        while size != sum(ranks.values()):
            size = sum(ranks.values())
            for name in ranks:
                ranks[name] = min([ranks[name], *(self._rank(each, ranks) for each in bound.get(name, ()))])
            if any(self._holds_others(node, ranks) for node in self._nodes):
                ranks = {name: OWN if rank == DEEP else rank for name, rank in ranks.items()}
        return ranks

    def _is_own(self, name: str) -> bool:
        """Return whether a variable is of this function alone, and bound by nothing but what binds names as such."""
        for node in self._nodes:
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return False
            if isinstance(node, ast.arg) and node.arg == name:
                return False
            if isinstance(node, ast.alias) and (node.asname or node.name).split(".")[0] == name:
                return False
            if isinstance(node, _NAMED) and node.name == name:
                return False
        return True

    def _is_added_to(self, node: ast.Name) -> bool:
        above = self._source.parents[node]
        return isinstance(above, ast.AugAssign) and above.target is node

    def _holds_others(self, node: ast.AST, ranks: Mapping[str, int]) -> bool:
        """Return whether a statement puts something of others into a container that is new all through."""
        if isinstance(node, ast.Assign):
            into = [each for each in node.targets if isinstance(each, ast.Subscript)]
            given = [node.value]
        elif isinstance(node, ast.AugAssign):
            into, given = [node.target], [node.value]  # type: ignore[list-item]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            into, given = [node.func.value], node.args  # type: ignore[list-item]
            if node.func.attr not in IN_PLACE_METHODS:
                return False
        else:
            return False
        is_deep = any(ranks.get(root_name(each)) == DEEP for each in into)
        return is_deep and any(self._rank(each, ranks) < DEEP for each in given)

    # -- expressions --------------------------------------------------------------------------------------------

    def _rank(self, node: ast.expr, ranks: Mapping[str, int]) -> int:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):  # of a tensor: itself
            return self._rank(node.operand, ranks)
        if isinstance(node, ast.Constant | ast.Compare | ast.UnaryOp | ast.JoinedStr):
            return NUMBERS
        parts = _parts(node)
        if parts is not None:
            return self._container(parts, ranks)
        match node:
            case ast.Name():
                return ranks.get(node.id, HELD)
            case ast.IfExp():
                return min(self._rank(node.body, ranks), self._rank(node.orelse, ranks))
            case ast.BinOp():
                return self._arithmetic(node, ranks)
            case ast.Subscript():
                rank = self._rank(node.value, ranks)
                return rank if rank >= DEEP else HELD
            case ast.Call():
                return self._call(node, ranks)
        return OWN if isinstance(node, ast.GeneratorExp) else HELD

    def _container(self, parts: list[ast.expr], ranks: Mapping[str, int]) -> int:
        return DEEP if all(self._rank(each, ranks) >= DEEP for each in parts) else OWN

    def _arithmetic(self, node: ast.BinOp, ranks: Mapping[str, int]) -> int:
        """Return the rank of a new value; of lists put together, the parts are the old ones."""
        both = [self._rank(node.left, ranks), self._rank(node.right, ranks)]
        if isinstance(node.op, ast.Add):
            return NUMBERS if max(both) == NUMBERS else min(OWN if min(both) < DEEP else DEEP, DEEP)
        if isinstance(node.op, ast.Mult):  # [0] * n
            shown = [self._rank(each, ranks) for each in (node.left, node.right) if isinstance(each, ast.List)]
            return max(OWN, min(shown or both))
        return NUMBERS if max(both) == NUMBERS else OWN

    def _call(self, node: ast.Call, ranks: Mapping[str, int]) -> int:
        dotted = self._source.names.dotted(node.func)
        if any(each.arg in ("out", "copy") for each in node.keywords) or _last(node.func) in self._known:
            return HELD
        if dotted:
            return self._of_library(node, dotted)
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            return DEEP if name == "tolist" else NUMBERS if name in _NUMBER_METHODS else OWN if name == "copy" else HELD
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self._source.names.bound:
            return HELD
        if name in ("min", "max") and len(node.args) > 1:
            return min(self._rank(each, ranks) for each in node.args)
        if name in _CONTAINERS:
            return self._container([*node.args, *(each.value for each in node.keywords)], ranks)
        return NUMBERS if name in NUMBER_BUILTINS else OWN if name in _ITERATORS else HELD

    def _of_library(self, node: ast.Call, dotted: str) -> int:
        root, _, name = dotted.rpartition(".")
        if dotted in _COUNTERS:
            kinds = all(isinstance(each, ast.Name) and each.id in _KINDS for each in node.args)
            return DEEP if kinds or dotted.endswith("Counter") else OWN
        if dotted == "copy.deepcopy":
            return DEEP
        return NUMBERS if root == "math" or (root in ("torch", "numpy") and name in MAKERS) else HELD


def root_name(node: ast.expr) -> str:
    """Return the variable that an item or an item's item belongs to, "" for others."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _parts(node: ast.expr) -> list[ast.expr] | None:
    """Return what a container is shown with, None for what is none."""
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return node.elts
        case ast.Dict():
            return node.values
        case ast.ListComp() | ast.SetComp():
            return [node.elt]
        case ast.DictComp():
            return [node.value]
    return None


def _counted(node: ast.AST) -> Iterator[str]:
    """Yield what a loop over a range counts in."""
    match node:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            yield name
