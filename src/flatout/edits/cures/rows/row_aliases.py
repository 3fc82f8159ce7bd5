"""Names that may stand for the memory of a tensor that a function has made."""

import ast

from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.effects.effects import Effects
from flatout.edits.reading.effects.fresh_values import NUMBERS, FreshValues
from flatout.edits.reading.effects.pure_calls import IN_PLACE_METHODS, is_pure_builtin, is_pure_function, is_pure_method
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["names_alike"]


def names_alike(project: Project, source: SourceFile, scope: ast.AST, name: str) -> tuple[set[str], bool]:
    """Return the names that may stand for a variable's memory, too, and whether others may have been handed it."""
    nodes = [node for node in ast.walk(scope) if node is not scope]
    reader = _Reader(project, source, scope)
    found, size, escapes = {name}, 0, any(isinstance(node, ast.Match) for node in nodes)
    while size != len(found):
        size = len(found)
        for node in nodes:
            for to, value in pairs(node):
                if _names(value) & found and not reader.is_copied(value):
                    found |= {ast.unparse(to), _root(to)}
                    escapes |= not isinstance(to, ast.Name)
            if isinstance(node, ast.For | ast.comprehension) and _names(node.iter) & found:
                found |= _names(node.target)
            if isinstance(node, ast.withitem) and node.optional_vars and _names(node.context_expr) & found:
                found |= _names(node.optional_vars)
            if isinstance(node, Function | ast.ClassDef) and _names(node) & found:
                found.add(node.name)
            if isinstance(node, ast.Call) and not reader.keeps_nothing(node, found):
                found |= _names(node) - {*source.names.imports}
                escapes |= name_called(node) not in IN_PLACE_METHODS
            escapes |= isinstance(node, ast.Yield) and bool(_names(node) & found)
    return found, escapes


class _Reader:
    """Reads values and calls of one function."""

    def __init__(self, project: Project, source: SourceFile, scope: ast.AST) -> None:
        self._project, self._source = project, source
        self._fresh = FreshValues(source, scope, project.functions)
        self._effects: Effects | None = None

    def is_copied(self, node: ast.expr) -> bool:
        """Return whether a value is new memory, whatever it is made of."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not self._source.names.dotted(node.func):
            return self._gives_new(node.func.id)
        is_new = isinstance(node, ast.Call | ast.BinOp | ast.Compare | ast.Constant)
        return is_new and self._fresh.rank(node) == NUMBERS

    def _gives_new(self, name: str) -> bool:
        """Return whether a function of the user's returns nothing but tensors that it has made."""
        known = self._project.functions.get(name, [])
        named = [node for node in ast.walk(self._source.tree) if isinstance(node, ast.Name | ast.arg)]
        bound = [node for node in named if isinstance(node, ast.arg) or not isinstance(node.ctx, ast.Load)]
        if len(known) != 1 or any(name == (node.arg if isinstance(node, ast.arg) else node.id) for node in bound):
            return False
        place, function = known[0]
        own = [node for node in ast.walk(function) if place.scope(node) is function]
        values = [node.value for node in own if isinstance(node, ast.Return)]
        ranks = FreshValues(place, function, self._project.functions)
        is_new = all(value is not None and ranks.rank(value) == NUMBERS for value in values)
        return is_new and bool(values) and not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own)

    def keeps_nothing(self, call: ast.Call, names: set[str]) -> bool:
        """Return whether a call leaves what it is given to nobody, where it is given one of `names`."""
        given = [*call.args, *(each.value for each in call.keywords)]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "set_":
            given.append(call.func.value)
        if not any(_names(each) & names for each in given):
            return True
        dotted = self._source.names.dotted(call.func)
        if dotted and is_pure_function(dotted):
            return True
        if isinstance(call.func, ast.Attribute) and not dotted:
            return is_pure_method(call)
        if is_builtin(self._source, call.func, ("print",)):
            return True
        if is_builtin(self._source, call.func):
            return is_pure_builtin(name_called(call))
        if name_called(call) not in self._project.functions:
            return False
        self._effects = self._effects or Effects(self._project)
        return not self._effects.of(self._source, call)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _root(node: ast.expr) -> str:
    """Return the variable that something is part of."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
