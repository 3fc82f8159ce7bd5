"""Expressions that have no effect but their value, proven from the text, with the functions of the user's they call.

What is not known to be pure counts as an effect: a call of a module (hooks, dropout, batch norm), a metric object of a
library, a draw, a clock, a print, a file, an iterator moved on, something of others changed in place. Errors are none:
who drops or moves a pure expression may lose an error that it raised.
"""

import ast
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass

from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.effects.fresh_values import DEEP, OWN, FreshValues, root_name
from flatout.edits.reading.effects.moving_values import moving_names
from flatout.edits.reading.effects.operator_classes import SEES_ALL, operators, wrapper_of
from flatout.edits.reading.effects.pure_calls import (
    IN_PLACE_METHODS,
    is_pure_builtin,
    is_pure_function,
    is_pure_method,
)
from flatout.edits.reading.effects.set_attributes import SetAttributes
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import class_around

__all__ = ["Effects"]

_CONTEXTS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.enable_grad"})
_DECORATORS = frozenset({"staticmethod", "classmethod", "property", "abstractmethod"})
_INTO = frozenset({"out", "inplace", "overwrite_input", "overwrite_a", "overwrite_b"})
_CONVERTS = frozenset({"to", "cpu", "cuda", "float", "double", "half", "bfloat16"})  # of a module: in place
_CALLING = frozenset({"map", "filter", "reduce", "defaultdict"})
_FUNCTION_ARGUMENTS = frozenset({"key", "default", "default_factory", "func", "metric"})
_PLAIN = (
    ast.Return | ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Raise | ast.Assert | ast.Pass | ast.Break
    | ast.Continue | ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete | ast.FunctionDef
)  # fmt: skip
_LIBRARIES = frozenset({"torch", "numpy", "math", "sklearn", "scipy", "statistics", "itertools", "collections"})
_MOST_FUNCTIONS = 200


@dataclass(frozen=True)
class _Body:
    """The function that is read, and what it makes itself."""

    source: SourceFile
    fresh: FreshValues | None  # None: the expression stands where its names are of others

    def rank(self, node: ast.expr) -> int:
        return self.fresh.rank(node) if self.fresh is not None else 0


class Effects:
    """What the expressions of a project do besides having a value."""

    def __init__(self, project: Project) -> None:
        """Take the project as it is now."""
        self._project = project
        self._flow = Flow(project)
        self._kinds = NameKinds()
        self._readers: Mapping[type[ast.AST], Callable[..., Iterator[str]]] = {
            ast.Call: self._call,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._item,
            ast.AugAssign: self._added,
            ast.Lambda: self._lambda,
            ast.FunctionDef: self._definition,
            ast.withitem: self._context,
        }
        self._set = SetAttributes(project)
        self._found: dict[ast.AST, str] = {}
        self._open = 0
        self._odd, classes = "", operators(project)
        self._classes = {*classes}
        self._moving = moving_names(project, self._classes)
        self._classes = {
            name
            for name, functions in classes.items()
            if any(function is None or self._function(place, function) for place, function in functions)
        }
        self._moving = moving_names(project, self._classes)
        self._odd = next((name for name in self._classes if _sees_all(classes[name])), "")
        self._found = {}

    def of(self, source: SourceFile, node: ast.expr | ast.stmt) -> str:
        """Return what evaluating an expression may do besides, "" where it does nothing.

        Of a statement: besides binding variables of the scope that it stands in.
        """
        return next(self._reasons(_Body(source, None), node), "")

    def reached(self, source: SourceFile, node: ast.AST) -> list[Function]:
        """Return the user's functions that an expression may call, by their names, and those that these call."""
        found: dict[Function, None] = {}
        todo: list[ast.AST] = [node]
        while todo:
            for inner in ast.walk(todo.pop()):
                name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
                for _, function in self._project.functions.get(name, ()):
                    if function not in found:
                        found[function] = None
                        todo.append(function)
        return list(found)

    # -- functions ----------------------------------------------------------------------------------------------

    def _function(self, source: SourceFile, function: Function) -> str:
        """Return what calling a function does besides returning something; while that is read, it does nothing."""
        if function in self._found:
            return self._found[function]
        if len(self._found) > _MOST_FUNCTIONS:
            return f"{function.name}() calls more functions than are read"
        known = {*self._found}
        self._found[function] = ""
        self._open += 1
        body = _Body(source, FreshValues(source, function, self._project.functions))
        reason = next(self._of_function(body, function), "")
        self._open -= 1
        self._found[function] = f"{function.name}(): {reason}" if reason else ""
        if reason and not self._open:  # what was found pure may call what was being read
            self._found = {each: why for each, why in self._found.items() if why or each in known}
        return self._found[function]

    def _of_function(self, body: _Body, function: Function) -> Iterator[str]:
        if isinstance(function, ast.AsyncFunctionDef):
            yield "it is a coroutine"
        for each in function.decorator_list:
            node = each.func if isinstance(each, ast.Call) else each
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name not in _DECORATORS and body.source.names.dotted(node) not in _CONTEXTS:
                yield f"{ast.unparse(each)} may do more than to call it"
        around = class_around(body.source, function)
        wrapper = wrapper_of(self._project, around) if around is not None else ""
        if wrapper:
            yield f"{wrapper} may do more than to call it"
        for statement in function.body:
            yield from self._reasons(body, statement)

    def _named(self, name: str) -> Iterator[str]:
        for place, function in self._project.functions.get(name, ()):
            reason = self._function(place, function)
            if reason:
                yield reason

    # -- statements and expressions -----------------------------------------------------------------------------

    def _reasons(self, body: _Body, node: ast.AST) -> Iterator[str]:
        if self._odd:
            yield f"{self._odd} may act whenever something is looked at"
        refused = _refused(body, node)
        reader = self._readers.get(type(node))
        if refused:
            yield refused
        elif reader is not None:
            yield from reader(body, node)
        else:
            yield from self._of_parts(body, node)

    def _of_parts(self, body: _Body, node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            yield from self._reasons(body, child)

    def _lambda(self, body: _Body, node: ast.Lambda) -> Iterator[str]:
        yield from self._defaults(body, node.args)
        yield from self._reasons(_Body(body.source, FreshValues(body.source, node)), node.body)

    def _definition(self, body: _Body, node: ast.FunctionDef) -> Iterator[str]:
        """Yield what a definition does; what the function does, it does where it is called."""
        yield from self._defaults(body, node.args)
        yield from (f"@{ast.unparse(each)} may do more than to call it" for each in node.decorator_list)

    def _defaults(self, body: _Body, given: ast.arguments) -> Iterator[str]:
        for each in (*given.defaults, *given.kw_defaults):
            yield from self._reasons(body, each) if each is not None else ()

    def _name(self, body: _Body, node: ast.Name) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            return
        if node.id == "self" and self._classes:
            yield "self may act where an operator is applied to it"
        if node.id in self._moving and body.rank(node) < OWN:
            yield f"{node.id} may be an iterator or the like, which a look moves on"
        if self._kinds.kind(body.source, node) is NameKind.FUNCTION:
            yield from self._named(node.id)

    def _attribute(self, body: _Body, node: ast.Attribute) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            yield f"{ast.unparse(node)} is changed"
        if node.attr in self._moving:
            yield f"{ast.unparse(node)} may be an iterator or the like, which a look moves on"
        for place, function in self._project.functions.get(node.attr, ()):
            if function.decorator_list:  # a property
                yield from filter(None, [self._function(place, function)])
        if not isinstance(node.value, ast.Name):
            yield from self._reasons(body, node.value)

    def _item(self, body: _Body, node: ast.Subscript) -> Iterator[str]:
        """Yield why a place that is written to, or deleted, may be one of somebody else's."""
        if isinstance(node.ctx, ast.Load):
            yield from self._of_parts(body, node)
            return
        rank = OWN if isinstance(node.value, ast.Name) else DEEP
        if body.rank(ast.Name(root_name(node), ast.Load())) < rank:
            yield f"{ast.unparse(node)} is changed, which may not be its own"
        yield from self._reasons(body, node.slice)

    def _added(self, body: _Body, node: ast.AugAssign) -> Iterator[str]:
        """Yield why `x += 1` may change something of others in place."""
        rank = OWN if isinstance(node.target, ast.Name) else DEEP
        if body.rank(ast.Name(root_name(node.target), ast.Load())) < rank:
            yield f"{ast.unparse(node.target)} is changed, which may not be its own"
        if isinstance(node.target, ast.Subscript):
            yield from self._reasons(body, node.target.slice)
        yield from self._reasons(body, node.value)

    def _context(self, body: _Body, node: ast.withitem) -> Iterator[str]:
        call = node.context_expr
        dotted = body.source.names.dotted(call.func) if isinstance(call, ast.Call) else ""
        if dotted not in _CONTEXTS or node.optional_vars is not None:
            yield f"`with {ast.unparse(call)}` may do more than to compute"

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, body: _Body, call: ast.Call) -> Iterator[str]:
        into = next((each for each in call.keywords if each.arg in _INTO), None)
        if into is not None:
            yield f"{ast.unparse(call.func)}() may write to what it is given ({into.arg}=)"
        is_ours = False
        if isinstance(call.func, ast.Name):
            is_ours = yield from self._call_by_name(body, call, call.func)
        elif isinstance(call.func, ast.Attribute):
            is_ours = yield from self._call_of_attribute(body, call, call.func)
        else:
            yield f"{ast.unparse(call.func)}() may do more than to compute"
        is_length = isinstance(call.func, ast.Name) and call.func.id == "len"
        if is_length:
            yield from self._named("__len__")
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            is_handed_on = isinstance(each, ast.Name) and self._kinds.kind(body.source, each) is not NameKind.FUNCTION
            if not (is_handed_on and (is_ours or is_length)):
                yield from self._reasons(body, each)
        yield from self._given_functions(body, call)

    def _call_by_name(self, body: _Body, call: ast.Call, func: ast.Name) -> Generator[str, None, bool]:
        """Yield what a call `name(...)` may do; return whether it is one of a function of the user's."""
        kind, dotted = self._kinds.kind(body.source, func), body.source.names.dotted(func)
        name = dotted.rpartition(".")[2] or func.id
        is_ours = kind is NameKind.FUNCTION or (kind is NameKind.IMPORT and self._is_ours(dotted))
        if name in self._set.on_modules:
            yield f"{name} is set in the script: {func.id}() may do more than to compute"
        elif is_ours:
            yield from self._named(name)
        elif kind is NameKind.IMPORT and is_pure_function(dotted):
            pass
        elif kind is not NameKind.BUILTIN or not (is_pure_builtin(name) or name.endswith("Error")):
            yield f"{func.id}() may do more than to compute"
        return is_ours

    def _call_of_attribute(self, body: _Body, call: ast.Call, func: ast.Attribute) -> Generator[str, None, bool]:
        """Yield what a call `x.name(...)` may do; return whether it is one of a function of the user's."""
        name, dotted = func.attr, body.source.names.dotted(func)
        shown = f"{ast.unparse(func)}()"
        if name in (self._set.on_modules if dotted else self._set.made) or self._is_handed(body.source, func):
            yield f"{name} is set in the script: {shown} may do more than to compute"
        if dotted:
            if self._is_ours(dotted):
                yield from self._named(name)
                return True
            if not is_pure_function(dotted):
                yield f"{shown} may do more than to compute"
            return False
        if name in self._project.functions:
            known = [each for _, each in self._project.functions[name]]
            is_property = any("property" in ast.unparse(one) for each in known for one in each.decorator_list)
            if is_property and (not is_pure_method(call) or self._is_of_users(body.source, func.value)):
                yield f"{shown} calls what a property returns"
            yield from self._named(name)
            if not is_pure_method(call):
                yield from self._of_others(body, func)
            yield from self._receiver(body, func)
            return not is_pure_method(call)
        if name in IN_PLACE_METHODS or (name.endswith("_") and not name.endswith("__")):
            yield from self._in_place(body, call, func)
        elif not is_pure_method(call) or (name in _CONVERTS and self._is_module(body.source, func.value)):
            yield f"{shown} may do more than to compute"
        yield from self._receiver(body, func)
        return False

    def _is_handed(self, source: SourceFile, func: ast.Attribute) -> bool:
        """Return whether what is called may be an attribute that an object of the user's was given."""
        return func.attr in self._set.handed and self._is_of_users(source, func.value)

    def _is_of_users(self, source: SourceFile, owner: ast.expr) -> bool:
        """Return whether an object may be one of a class of the user's, as far as it can be followed."""
        return ast.unparse(owner) in ("self", "cls") or any(
            isinstance(call.func, ast.Name | ast.Attribute)
            and ast.unparse(call.func).rpartition(".")[2] in self._project.classes
            for _, call in self._flow.origins(source, owner)
        )

    def _receiver(self, body: _Body, func: ast.Attribute) -> Iterator[str]:
        if not isinstance(func.value, ast.Name):
            yield from self._reasons(body, func.value)
        elif func.attr == "get" and func.value.id in self._moving:
            yield f"{ast.unparse(func)}() may do more than to compute"

    def _in_place(self, body: _Body, call: ast.Call, func: ast.Attribute) -> Iterator[str]:
        """Yield why a method that changes what it is called on may change something of others."""
        if func.attr == "sort" and isinstance(body.source.parents[call], ast.Subscript | ast.Attribute):
            return  # that of a tensor, which returns what is sorted
        rank = OWN if isinstance(func.value, ast.Name) and func.attr in IN_PLACE_METHODS else DEEP
        if body.rank(ast.Name(root_name(func.value), ast.Load())) < rank:
            yield f"{ast.unparse(func)}() changes what may not be its own"

    def _of_others(self, body: _Body, func: ast.Attribute) -> Iterator[str]:
        """Yield why a method with the name of one of the user's may be one of a library's."""
        owner = func.value
        if isinstance(owner, ast.Name) and (owner.id in ("self", "cls") or owner.id in self._project.classes):
            return
        origins = self._flow.origins(body.source, owner)
        made = [call.func for _, call in origins]
        names = [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in made]
        other = next((name for name in names if name not in self._project.classes), None)
        if other is not None or not names:
            what = f"what {other}() makes" if other else "of a class that is not seen"
            yield f"{ast.unparse(owner)} may be {what}, with another {func.attr}()"

    def _given_functions(self, body: _Body, call: ast.Call) -> Iterator[str]:
        """Yield functions that are handed to what calls them, and are not read."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        given = [each.value for each in call.keywords if each.arg in _FUNCTION_ARGUMENTS]
        given += call.args[:1] if name in _CALLING or (name == "iter" and len(call.args) == 2) else []
        for each in given:
            known = isinstance(each, ast.Lambda | ast.Constant)
            if isinstance(each, ast.Name):
                kind = self._kinds.kind(body.source, each)
                known = kind is NameKind.FUNCTION or (kind is NameKind.BUILTIN and is_pure_builtin(each.id))
            elif isinstance(each, ast.Attribute):  # str.lower
                known = isinstance(each.value, ast.Name) and is_pure_builtin(each.value.id)
            elif isinstance(each, ast.Call):
                known = body.source.names.dotted(each.func).startswith("operator.")
            if not known and not is_pure_function(body.source.names.dotted(each)):
                yield f"{ast.unparse(each)} is called, and may do more than to compute"

    # -- names --------------------------------------------------------------------------------------------------

    def _is_ours(self, dotted: str) -> bool:
        """Return whether what an import stands for is a function in a file of the project."""
        module, _, name = dotted.rpartition(".")
        root, last = module.partition(".")[0], module.rpartition(".")[2]
        paths = [each.path for each in self._project.sources]
        is_here = any(root in (path.stem, *path.parent.parts) for path in paths)
        is_module = any(last in (path.stem, path.parent.name) for path in paths)
        return is_here and is_module and name in self._project.functions

    def _is_module(self, source: SourceFile, node: ast.expr) -> bool:
        """Return whether an object may be a module, as far as it can be followed."""
        if isinstance(node, ast.Name) and node.id == "self":
            return True
        for place, call in self._flow.origins(source, node):
            dotted = place.names.dotted(call.func)
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in self._project.classes or (dotted and not is_pure_function(dotted)):
                return True
        return False


def _sees_all(functions: list[tuple[SourceFile, Function | None]]) -> bool:
    return any(function is not None and function.name in SEES_ALL for _, function in functions)


def _refused(body: _Body, node: ast.AST) -> str:
    """Return why a node is none that computes alone, "" where its parts decide."""
    is_yield = isinstance(node, ast.Yield | ast.YieldFrom) and body.fresh is None
    if isinstance(node, ast.NamedExpr | ast.Await) or is_yield:
        return f"{ast.unparse(node)} does more than to compute"
    if isinstance(node, ast.comprehension) and node.is_async:
        return "an asynchronous loop does more than to compute"
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [node.module or "."] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        is_known = all(name.partition(".")[0] in _LIBRARIES for name in names)
        return "" if is_known else f"`{ast.unparse(node)}` may run something"
    if isinstance(node, ast.stmt) and not isinstance(node, _PLAIN):
        return f"`{ast.unparse(node).splitlines()[0]}` does more than to compute"
    return ""
