"""Conditions that come out the same at two places of one block, whatever is called between them.

They are made of numbers that nothing between binds anew: counters of loops, variables that are bound to numbers alone,
settings of the command line, attributes that are set in no function that may run between.
"""

import ast
from collections.abc import Sequence

from flatout.edits.reading.blocks import stores
from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import IN_PLACE_METHODS
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import class_around

__all__ = ["SteadyConditions"]

_NUMBERS = frozenset({"int", "float", "len", "bool", "str", "round", "abs"})
_SETTINGS = frozenset({"parse_args", "parse_known_args", "Namespace", "SimpleNamespace"})
_TYPES = frozenset({"int", "float", "bool", "str"})
_MOST = 5  # names that are followed, one after the other


class SteadyConditions:
    """Tells whether a condition may change between two places."""

    def __init__(self, project: Project, source: SourceFile, between: Sequence[ast.stmt]) -> None:
        """Take the statements between the two places, the first one's own among them."""
        self._project, self._source, self._between = project, source, between
        self._bound = stores(between)
        self._shared = {name for _, node in project.nodes(ast.Global, ast.Nonlocal) for name in node.names}
        self._flow = Flow(project)
        self._open: list[tuple[ast.AST, str]] = []  # variables that are being read

    def is_steady(self, node: ast.expr) -> bool:
        """Return whether an expression has the same value at both places."""
        match node:
            case ast.Constant():
                return True
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                return isinstance(node.left, ast.Name) and self._is_bound_once(node.left)
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp() | ast.BinOp() | ast.Tuple():
                parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
                return all(map(self.is_steady, parts))
            case ast.Name():
                return self._is_bound_once(node) and self._is_number(self._source, node, _MOST)
            case ast.Attribute():
                return self._is_setting(node)
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as owner], keywords=[]):
                return "len" not in self._source.names.bound and self._keeps_length(owner)
        return False

    def _is_bound_once(self, node: ast.Name) -> bool:
        return node.id not in self._bound and node.id not in self._shared

    # -- variables ----------------------------------------------------------------------------------------------

    def _is_number(self, source: SourceFile, node: ast.expr, most: int) -> bool:
        """Return whether a value is a number or a string, which nobody can change in place."""
        match node:
            case ast.Constant() | ast.JoinedStr():
                return True
            case ast.Call(func=ast.Name(id=name)):
                return name in _NUMBERS and name not in source.names.bound
            case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
                return True
            case ast.BoolOp() | ast.BinOp() | ast.UnaryOp() | ast.Compare():
                parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
                return all(self._is_number(source, each, most) for each in parts)
            case ast.Attribute():
                return bool(most) and self._is_of_settings(source, node)
            case ast.Name():
                return bool(most) and self._is_variable_of_numbers(source, node, most - 1)
        return False

    def _is_variable_of_numbers(self, source: SourceFile, node: ast.Name, most: int) -> bool:
        own = source.scope(node)
        for scope in (own, *(each for each in source.above(own) if isinstance(each, Function | ast.Module))):
            nodes = [each for each in ast.walk(scope) if source.scope(each) is scope]
            stored = [each for each in nodes if isinstance(each, ast.Name) and each.id == node.id]
            stored = [each for each in stored if not isinstance(each.ctx, ast.Load)]
            is_argument = any(isinstance(each, ast.arg) and each.arg == node.id for each in nodes)
            if is_argument and not self._is_given_numbers(source, scope, node.id, most):
                return False
            if (scope, node.id) in self._open:
                return True
            if stored:
                self._open.append((scope, node.id))
                found = all(self._stores_number(source, each, most) for each in stored)
                self._open.pop()
                return found
            if is_argument:
                return True
        return False

    def _stores_number(self, source: SourceFile, node: ast.Name, most: int) -> bool:
        above = source.parents[node]
        if isinstance(above, ast.AugAssign):
            return self._is_number(source, above.value, most)
        loop = source.parents[above]
        if isinstance(above, ast.Tuple) and isinstance(loop, ast.For):
            return above.elts[0] is node and _is_call_of(loop.iter, "enumerate")
        if isinstance(above, ast.For):
            return above.target is node and _is_call_of(above.iter, "range", "trange")
        values = [value for target, value in pairs(source.statement(node)) if target is node]
        return bool(values) and all(self._is_number(source, each, most) for each in values)

    def _is_given_numbers(self, source: SourceFile, scope: ast.AST, name: str, most: int) -> bool:
        """Return whether an argument is annotated as a number, or given one by all callers that are seen."""
        if not isinstance(scope, Function):
            return False
        given = scope.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        argument = next((each for each in every if each.arg == name), None)
        if argument is None:
            return False
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id in _TYPES:
            return True
        values = self._given(source, scope, name)
        return bool(values) and all(self._is_number(place, each, most) for place, each in values or ())

    def _given(self, source: SourceFile, function: Function, name: str) -> list[tuple[SourceFile, ast.expr]]:
        """Return what an argument is given by default and by all callers, nothing where that cannot be seen."""
        given = function.args
        names = [each.arg for each in (*given.posonlyargs, *given.args)]
        defaults = dict(zip(reversed(names), reversed(given.defaults), strict=False))
        defaults |= {each.arg: value for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
        values = [(source, defaults[name])] if name in defaults else []
        at = names.index(name) - (names[0] in ("self", "cls")) if name in names else -1
        around = class_around(source, function)
        called = around.name if around is not None and function.name == "__init__" else function.name
        for place, call in self._project.nodes(ast.Call):
            if last_name(call.func) == called:
                if any(isinstance(each, ast.Starred) for each in call.args) or any(not k.arg for k in call.keywords):
                    return []
                values += [(place, each) for each in call.args[at : at + 1] if at >= 0]
                values += [(place, each.value) for each in call.keywords if each.arg == name]
        return values

    # -- attributes ---------------------------------------------------------------------------------------------

    def _is_setting(self, node: ast.Attribute) -> bool:
        """Return whether an attribute is a number that nothing between sets."""
        if not self._is_of_settings(self._source, node):
            return False
        return not isinstance(node.value, ast.Name) or self._is_bound_once(node.value)

    def _is_of_settings(self, source: SourceFile, node: ast.Attribute) -> bool:
        if not isinstance(node.value, ast.Name):
            return False
        if node.value.id == "self":
            around = class_around(source, node)
            is_known = around is not None and self._has(around.name, node.attr)
        else:
            made = [last_name(call.func) for _, call in self._flow.origins(source, node.value)]
            is_known = bool(made) and all(name in _SETTINGS or self._has(name, node.attr) for name in made)
        return is_known and self._is_set_before(node.attr)

    def _has(self, name: str, attribute: str) -> bool:
        """Return whether a class of the user's sets an attribute, in its body or as one of `self`."""
        for _, around in self._project.classes.get(name, ()):
            for each in ast.walk(around):
                if isinstance(each, ast.Attribute) and each.attr == attribute and isinstance(each.ctx, ast.Store):
                    return True
                if isinstance(each, ast.AnnAssign) and each in around.body and ast.unparse(each.target) == attribute:
                    return True
        return False

    def _is_set_before(self, attribute: str) -> bool:
        """Return whether an attribute is set to numbers alone, in `__init__` or here, outside of `between`."""
        here = self._source.scope(self._between[0])
        inside = {node for each in self._between for node in ast.walk(each)}
        for source, node in self._project.nodes(ast.Attribute):
            if node.attr != attribute or isinstance(node.ctx, ast.Load):
                continue
            scope, above = source.scope(node), source.parents[node]
            if node in inside or not (scope is here or getattr(scope, "name", "__init__") == "__init__"):
                return False
            values = [value for target, value in pairs(source.statement(node)) if target is node]
            values += [above.value] if isinstance(above, ast.AugAssign) else []
            if not values or not all(self._is_number(source, each, 2) for each in values):
                return False
        return True

    def _keeps_length(self, owner: ast.Name | ast.Attribute) -> bool:
        """Return whether nothing in the project makes what is called like that longer or shorter."""
        name = last_name(owner)
        if name in self._bound or name in self._shared:
            return False
        for _, call in self._project.nodes(ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in IN_PLACE_METHODS and last_name(func.value) == name:
                return False
        places = self._project.nodes(ast.Subscript)
        return not any(not isinstance(node.ctx, ast.Load) and last_name(node.value) == name for _, node in places)


def _is_call_of(node: ast.expr, *names: str) -> bool:
    while isinstance(node, ast.Call) and last_name(node.func) == "tqdm" and node.args:
        node = node.args[0]
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
