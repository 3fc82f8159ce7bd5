"""Conditions that can be told in advance: those of whole numbers that nothing binds between two places of a block.

They are made of counters of loops, of variables of one function, and of settings of the command line. Where the text
does not show that one is a whole number, the script asks before the condition is computed.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.edits.reading.blocks import block_of, bound_as_words, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.seldom_names import argument_names, is_comprehended
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["SteadyCondition", "is_bound_before", "module_name", "steady_condition"]

_ORDERS = ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE
_SUMS = ast.Add | ast.Sub | ast.Mult


@dataclass(frozen=True)
class SteadyCondition:
    """A condition as it is written at the earlier place: true there wherever it is true at the later one.

    Attributes:
        text: the condition.
        asked: conditions to be asked before; where one is true, nothing is known.
        whole: the variables in it that are whole numbers where none of these is true.
    """

    text: str
    asked: tuple[str, ...]
    whole: frozenset[str]


class _Unsteady(Exception):
    pass


def steady_condition(
    project: Project, source: SourceFile, between: Sequence[ast.stmt], test: ast.expr
) -> SteadyCondition | None:
    """Return a condition behind some statements of a block, as it is before them; None where it cannot be told."""
    try:
        reader = _Reader(project, source, between)
        found = reader.read(test, exact=False)
        owners = [each.value for each in ast.walk(found) if isinstance(each, ast.Attribute)]
        whole = {each.id for each in ast.walk(found) if isinstance(each, ast.Name) and each not in owners}
        return SteadyCondition(ast.unparse(found), tuple(dict.fromkeys(reader.asked)), frozenset(whole))
    except _Unsteady:
        return None


def is_bound_before(source: SourceFile, name: str, statement: ast.stmt) -> bool:
    """Return whether a variable is bound in any case where a statement is reached."""
    scope = source.scope(statement)
    if any(
        isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Del) for each in ast.walk(scope)
    ):
        return False
    if any(isinstance(each, ast.ExceptHandler) and each.name == name for each in ast.walk(scope)):
        return False
    if name in argument_names(scope):
        return True
    inner: ast.AST = statement
    for above in source.above(statement):
        if isinstance(inner, ast.stmt):
            block = block_of(source, inner)
            if any(name in _assigned(each) for each in block[: block.index(inner)]):
                return True
        if isinstance(above, ast.For) and inner in above.body and name in _names(above.target):
            return True
        if above is scope:
            return False
        inner = above
    return False


def module_name(source: SourceFile, module: str) -> str:
    """Return what a file calls a module that its own first level imports, "" where it does not."""
    found = ""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Import):
            continue
        for alias in node.names:
            name = alias.asname or alias.name
            if name in found.split() or source.names.imports.get(name) != module:
                continue
            found = name if node in source.tree.body and not found else found
    inner = [each for each in ast.walk(source.tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    inner = [each for each in inner if source.scope(each) is not source.tree]
    return "" if found in bound_as_words(inner) else found


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return {name for target in targets for name in _names(target)}


def _names(target: ast.expr) -> set[str]:
    return {e.id for e in ast.walk(target) if isinstance(e, ast.Name) and isinstance(e.ctx, ast.Store)}


class _Reader:
    """Reads one condition; `asked` grows meanwhile."""

    def __init__(self, project: Project, source: SourceFile, between: Sequence[ast.stmt]) -> None:
        self._project, self._source, self._first = project, source, between[0]
        self._scope = source.scope(between[0])
        self._moves: dict[str, int] = {}
        counting = [each for each in between if self._counts(each)]
        self._bound = stores(each for each in between if each not in counting) | bound_as_words(between)
        for node in ast.walk(source.tree):
            self._bound |= {*node.names} if isinstance(node, ast.Global | ast.Nonlocal) else set()
        self.asked: list[str] = []

    def _counts(self, node: ast.stmt) -> bool:
        """Note `step += 1`, which stands between, and return whether it is one."""
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Constant(value=int() as by)):
                self._moves[name] = self._moves.get(name, 0) + by
                return True
        return False

    def read(self, node: ast.expr, *, exact: bool) -> ast.expr:
        """Return a condition, or one that is true wherever it is true.

        Raises:
            _Unsteady: none is known.
        """
        match node:
            case ast.BoolOp(op=ast.And()) if not exact:
                parts = [each for each in map(self._read_or_not, node.values) if each is not None]
                if not parts:
                    raise _Unsteady
                return parts[0] if len(parts) == 1 else ast.BoolOp(node.op, parts)
            case ast.BoolOp():
                return ast.BoolOp(node.op, [self.read(each, exact=exact) for each in node.values])
            case ast.UnaryOp(op=ast.Not()):
                return ast.UnaryOp(node.op, self.read(node.operand, exact=True))
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Tuple() | ast.List() | ast.Set() as among]):
                if all(map(_is_whole, among.elts)):
                    return ast.Compare(self._number(node.left), node.ops, node.comparators)
            case ast.Compare() if all(isinstance(each, _ORDERS) for each in node.ops):
                return ast.Compare(self._number(node.left), node.ops, [self._number(each) for each in node.comparators])
            case ast.BinOp():
                return self._number(node)
        raise _Unsteady

    def _read_or_not(self, node: ast.expr) -> ast.expr | None:
        asked = [*self.asked]
        try:
            return self.read(node, exact=False)
        except _Unsteady:
            self.asked = asked
            return None

    def _number(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Constant() if _is_whole(node):
                return node
            case ast.UnaryOp(op=ast.USub()):
                return ast.UnaryOp(node.op, self._number(node.operand))
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                return ast.BinOp(self._number(node.left), node.op, self._number(node.right))
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv()):
                left, right = self._number(node.left), self._number(node.right)
                self._ask_nonzero(node.right)
                return ast.BinOp(left, node.op, right)
            case ast.Name():
                return self._variable(node)
            case ast.Attribute(value=ast.Name() as owner):
                self._ask_setting(owner, node)
                return node
        raise _Unsteady

    def _ask_nonzero(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and node.value != 0:
            return
        if isinstance(node, ast.Name) and node.id not in self._moves:
            values = self._values(node.id)
            if values and all(isinstance(each, ast.Constant) and each.value != 0 for each in values):
                return
        elif not isinstance(node, ast.Attribute):
            raise _Unsteady
        self.asked.append(f"{ast.unparse(node)} == 0")

    # -- variables ----------------------------------------------------------------------------------------------

    def _variable(self, node: ast.Name) -> ast.expr:
        """Return a variable of this function as it is at the earlier place, which is a whole number or asked to be."""
        self._check_variable(node.id)
        if not self._values(node.id):
            if not is_builtin(self._source, ast.Name("int"), ("int",)):
                raise _Unsteady
            self.asked.append(f"type({node.id}) is not int")
        by = self._moves.get(node.id, 0)
        return ast.BinOp(node, ast.Add(), ast.Constant(by)) if by else node

    def _check_variable(self, name: str) -> None:
        is_own = name in argument_names(self._scope) or any(each.id == name for each in self._stored())
        of_script = isinstance(self._scope, Function) or self._source is self._project.script
        if name in self._bound or not is_own or not of_script or not is_bound_before(self._source, name, self._first):
            raise _Unsteady

    def _stored(self) -> list[ast.Name]:
        return [
            node
            for node in ast.walk(self._scope)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and self._source.scope(node) is self._scope
            and not is_comprehended(self._source, node)
        ]

    def _values(self, name: str) -> list[ast.expr]:
        """Return what a variable is bound to, where all of that are whole numbers; nothing otherwise."""
        if name in argument_names(self._scope) or name in bound_as_words([self._scope]):
            return []
        found = [self._value(node) for node in self._stored() if node.id == name]
        return [each for each in found if each is not None] if None not in found else []

    def _value(self, node: ast.Name) -> ast.expr | None:
        """Return the whole number that one statement binds a variable to, or the loop that counts in it."""
        above = self._source.parents[node]
        if isinstance(above, ast.AugAssign):
            is_sum = isinstance(above.op, _SUMS) and _is_whole(above.value)
            return ast.BinOp(node, above.op, above.value) if is_sum else None
        if isinstance(above, ast.For) and above.target is node and self._counts_in(above.iter, "range"):
            return above.iter
        loop = self._source.parents[above]
        if isinstance(loop, ast.For) and isinstance(above, ast.Tuple) and above is loop.target:
            return loop.iter if above.elts[0] is node and self._counts_in(loop.iter, "enumerate") else None
        values = [value for target, value in pairs(self._source.statement(node)) if target is node]
        return values[0] if len(values) == 1 and _is_whole(values[0]) else None

    def _counts_in(self, node: ast.expr, name: str) -> bool:
        while isinstance(node, ast.Call) and self._source.names.dotted(node.func) in ("tqdm.tqdm", "tqdm.auto.tqdm"):
            node = node.args[0] if node.args else node.func
        if not isinstance(node, ast.Call) or not is_builtin(self._source, node.func, (name,)):
            return False
        return name == "range" or all(map(_is_whole, [*node.args[1:], *(each.value for each in node.keywords)]))

    def _ask_setting(self, owner: ast.Name, node: ast.Attribute) -> None:
        """Ask whether `args.every` is one of the command line's, which nothing in the project sets."""
        module = module_name(self._source, "argparse")
        self._check_variable(owner.id)
        stored = [each for _, each in self._project.nodes(ast.Attribute) if each.attr == node.attr]
        if not module or owner.id in self._moves or any(not isinstance(each.ctx, ast.Load) for each in stored):
            raise _Unsteady
        for _, call in self._project.nodes(ast.Call):
            if isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr", "vars"):
                raise _Unsteady
            if any(each.arg == "namespace" for each in call.keywords):
                raise _Unsteady
        self.asked.append(f"type({owner.id}) is not {module}.Namespace")
        self.asked.append(f'type(getattr({owner.id}, "{node.attr}", None)) is not int')


def _is_whole(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_whole(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) is int
