"""Code in which no weight of any model changes: statements and expressions of few kinds, each known to compute only.

What is not known counts as a change. Calls are those of a few functions of Python's and torch's, and methods of tensors
and strings whose origin is seen: a name alone, such as `norm`, may be that of a layer.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.own_meanings import own_names
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.states.state_dicts import is_deepcopy, state_of
from flatout.edits.reading.states.state_values import ASKED, FRESH, SAME, StateValues

__all__ = ["StillCode", "is_without_gradients"]

_OF_KEYS = ("startswith", "endswith", "split", "replace", "lower", "strip")
_OF_NUMBERS = ("abs", "bool", "float", "int", "isinstance", "type", "round", "range")
_OF_SEVERAL = ("max", "min")
_OF_DICTIONARIES = ("len", "list", "sorted", "enumerate", "zip", "range")
_NO_GRADIENTS = ("torch.no_grad", "torch.inference_mode")
_WORDS = ast.Pass | ast.Continue | ast.Break
_WRITES_BELOW = frozenset(("data", "grad", "real", "imag", "training", "requires_grad"))


def is_without_gradients(source: SourceFile, node: ast.AST, scope: ast.AST) -> bool:
    """Return whether torch records nothing where a node of a function stands."""
    if any(name in source.code for name in (b"enable_grad", b"set_grad_enabled")):
        return False
    calls = list(getattr(scope, "decorator_list", ()))
    for above in source.above(node):
        if above is scope:
            break
        calls += [each.context_expr for each in above.items] if isinstance(above, ast.With) else []
    called = (each for each in calls if isinstance(each, ast.Call) and not each.args and not each.keywords)
    return any(source.names.dotted(each.func) in _NO_GRADIENTS for each in called)


class StillCode:
    """Says what may change weights in the code of one function."""

    def __init__(self, project: Project, source: SourceFile, scope: ast.AST, values: StateValues) -> None:
        """Take the function or script, and what its names stand for."""
        self._project, self._source, self._scope, self._values = project, source, scope, values

    def change(self, nodes: Iterable[ast.AST], known: Iterable[ast.AST]) -> str:
        """Return the first thing that may change weights, "" where there is none; calls that are `known` do not."""
        self._known = {*known}
        for node in nodes:
            for found in self._changes(node):
                return ast.unparse(found).partition("\n")[0]
        return ""

    # -- statements ---------------------------------------------------------------------------------------------

    def _changes(self, node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.expr):
            yield from self._of_expression(node)
        elif isinstance(node, ast.Expr | ast.Return):
            yield from self._of_expression(node.value) if node.value is not None else ()
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from self._of_binding(node)
        elif isinstance(node, ast.AugAssign):
            yield from self._of_expression(node.value) if self._is_counter(node) else (node,)
        elif isinstance(node, ast.Delete):
            yield from (each for each in node.targets if not self._is_item_of_own(each))
        elif isinstance(node, ast.If | ast.For | ast.With | ast.withitem):
            yield from self._of_compound(node)
        elif not isinstance(node, _WORDS):
            yield node

    def _of_compound(self, node: ast.If | ast.For | ast.With | ast.withitem) -> Iterator[ast.AST]:
        if isinstance(node, ast.If):
            yield from self._of_test(node.test)
            yield from self._of_block([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from self._of_block([*node.items, *node.body])
        elif isinstance(node, ast.withitem):
            yield from () if self._is_switch(node) else (node,)
        elif self._values.is_walk(node.target, node.iter):
            yield from self._of_expression(node.iter)
            yield from self._of_block([*node.body, *node.orelse])
        else:
            yield node

    def _of_block(self, block: Iterable[ast.AST]) -> Iterator[ast.AST]:
        return (inner for each in block for inner in self._changes(each))

    def _of_binding(self, node: ast.Assign | ast.AnnAssign) -> Iterator[ast.AST]:
        if node.value is None:
            return
        yield from self._of_expression(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            names, values = (each.elts if isinstance(each, ast.Tuple) else [each] for each in (target, node.value))
            names = names if len(names) == len(values) else [target]
            yield from (each for each in names if not (isinstance(each, ast.Name) or self._is_item_of_own(each)))

    def _is_item_of_own(self, node: ast.expr) -> bool:
        """Return whether something is an item of a state dict's copy: binding it anew changes that alone."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            return False
        return node.value.id in self._values.dictionaries and not any(self._of_expression(node.slice))

    def _is_switch(self, node: ast.withitem) -> bool:
        call = node.context_expr
        is_call = isinstance(call, ast.Call) and node.optional_vars is None and not call.args and not call.keywords
        return is_call and self._source.names.dotted(call.func) in _NO_GRADIENTS  # type: ignore[attr-defined]

    # -- expressions --------------------------------------------------------------------------------------------

    def _of_expression(self, node: ast.expr) -> Iterator[ast.AST]:
        if isinstance(node, ast.Constant | ast.Name):
            return
        if isinstance(node, ast.Call):
            yield from self._of_call(node)
        elif isinstance(node, ast.Attribute):
            yield from self._of_expression(node.value) if self._is_value(node) else (node,)
        elif isinstance(node, ast.Subscript):
            of_known = self._values.is_dictionary(node.value) or self._values.is_tensor(node.value)
            yield from self._of_all(node.value, node.slice) if of_known or self._values.is_key(node) else (node,)
        elif isinstance(node, ast.Tuple | ast.List | ast.Slice):
            yield from self._of_all(*(each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)))
        elif isinstance(node, ast.DictComp | ast.ListComp):
            yield from self._of_comprehension(node)
        else:
            yield from self._of_operator(node)

    def _of_operator(self, node: ast.expr) -> Iterator[ast.AST]:
        if isinstance(node, ast.BinOp):
            is_text = isinstance(node.op, ast.Mod) and not self._values.is_tensor(node.left)
            odd = isinstance(node.op, ast.MatMult) or (is_text and not _is_number(node.right))
            yield from (node,) if odd else self._of_all(node.left, node.right)
        elif isinstance(node, ast.UnaryOp):
            yield from self._of_test(node.operand) if isinstance(node.op, ast.Not) else self._of_all(node.operand)
        elif isinstance(node, ast.BoolOp):
            yield from (inner for each in node.values for inner in self._of_test(each))
        elif isinstance(node, ast.Compare):
            yield from self._of_comparison(node)
        elif isinstance(node, ast.IfExp):
            yield from self._of_test(node.test)
            yield from self._of_all(node.body, node.orelse)
        else:
            yield node

    def _of_all(self, *nodes: ast.expr) -> Iterator[ast.AST]:
        return (inner for each in nodes for inner in self._of_expression(each))

    def _of_test(self, node: ast.expr) -> Iterator[ast.AST]:
        """Yield what may change something where it is asked whether an expression is true, by `__len__` maybe."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        is_thing = isinstance(node, ast.Name | ast.Attribute) and not self._values.is_tensor(root)
        if is_thing and "__len__" in self._project.mentions:
            yield node
        yield from self._of_expression(node)

    def _of_comparison(self, node: ast.Compare) -> Iterator[ast.AST]:
        for operator, right in zip(node.ops, node.comparators, strict=True):
            known = self._values.is_dictionary(right) or self._values.is_key(right)
            if isinstance(operator, ast.In | ast.NotIn) and not (known or isinstance(right, ast.Tuple | ast.List)):
                yield node
        yield from self._of_all(node.left, *node.comparators)

    def _of_comprehension(self, node: ast.DictComp | ast.ListComp) -> Iterator[ast.AST]:
        for loop in node.generators:
            if loop.is_async or not self._values.is_walk(loop.target, loop.iter):
                yield loop.iter
                return
            yield from self._of_expression(loop.iter)
            yield from (inner for each in loop.ifs for inner in self._of_test(each))
        if isinstance(node, ast.DictComp) and not self._values.is_key(node.key):
            yield node.key
        yield from self._of_all(*([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]))

    def _is_value(self, node: ast.Attribute) -> bool:
        """Return whether an attribute is no property of the user's."""
        if self._source.names.dotted(node).startswith("torch."):
            return True
        return node.attr not in self._own

    # -- calls --------------------------------------------------------------------------------------------------

    def _of_call(self, call: ast.Call) -> Iterator[ast.AST]:
        if call in self._known:
            return
        given = [*call.args, *(each.value for each in call.keywords)]
        if any(isinstance(each, ast.Starred) for each in given) or any(each.arg is None for each in call.keywords):
            yield call
        elif state_of(call) is not None and is_plain(state_of(call)):  # type: ignore[arg-type]
            yield from self._of_expression(state_of(call))  # type: ignore[arg-type]
        elif isinstance(call.func, ast.Name):
            yield from self._of_all(*given) if self._is_of_python(call) else (call,)
        elif isinstance(call.func, ast.Attribute) and self._is_known_method(call, call.func):
            yield from self._of_all(*given, *([] if self._source.names.dotted(call.func) else [call.func.value]))
        else:
            yield call

    def _is_of_python(self, call: ast.Call) -> bool:
        if is_deepcopy(self._source, call):
            return self._values.is_dictionary(call.args[0])
        if call.keywords or not call.args:
            return False
        if is_builtin(self._source, call.func, _OF_SEVERAL):
            return len(call.args) > 1
        if is_builtin(self._source, call.func, _OF_DICTIONARIES) and name_called(call) != "range":
            return all(map(self._is_walked, call.args))
        return is_builtin(self._source, call.func, _OF_NUMBERS) and (name_called(call) != "type" or len(call.args) == 1)

    def _is_walked(self, node: ast.expr) -> bool:
        return (
            self._values.is_tensor(node)
            or self._values.is_walk(ast.Name("_", ast.Store()), node)
            or any(self._values.walked(ast.Tuple([ast.Name("_"), ast.Name("_")]), node))
        )

    def _is_known_method(self, call: ast.Call, method: ast.Attribute) -> bool:
        values, name = self._values, method.attr
        if any(each.arg in ("out", "inplace") for each in call.keywords) or name in self._renamed:
            return False
        dotted = self._source.names.dotted(method)
        if dotted:
            return values.is_function(call) or dotted.startswith("math.") or self._is_copy(call)
        if values.is_dictionary(method.value):
            return name in ("keys", "values", "items") and not call.args
        if values.is_tensor(method.value):
            return name in FRESH | SAME | ASKED
        return values.is_key(method.value) and name in _OF_KEYS

    def _is_copy(self, call: ast.Call) -> bool:
        return is_deepcopy(self._source, call) and self._values.is_dictionary(call.args[0])

    # -- what the user gives another meaning ----------------------------------------------------------------------

    @cached_property
    def _own(self) -> set[str]:
        return own_names(self._project)

    @cached_property
    def _renamed(self) -> set[str]:
        """Names of functions, and of attributes that are set anywhere."""
        stored = (each for _, each in self._project.nodes(ast.Attribute) if not isinstance(each.ctx, ast.Load))
        by_name = any(each in self._project.mentions for each in ("setattr", "patch"))
        return {each.attr for each in stored} | self._own | (self._strings if by_name else set())

    def _is_counter(self, node: ast.AugAssign) -> bool:
        """Return whether what is added to is a number, wherever else it is bound."""
        target = node.target
        if isinstance(target, ast.Name):
            scopes, owners = [self._scope], False
        elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            scopes, owners = [each.tree for each in self._project.sources], True
        else:
            return False
        name = target.id if isinstance(target, ast.Name) else target.attr
        if owners and (name in _WRITES_BELOW or name in self._strings or name in self._project.functions):
            return False
        return all(_is_number_in(scope, name, attribute=owners) for scope in scopes)

    @cached_property
    def _strings(self) -> set[str]:
        """Strings of the project: names for `setattr` or `register_buffer`."""
        found = (node.value for _, node in self._project.nodes(ast.Constant))
        return {each for each in found if isinstance(each, str)}


def _is_number_in(scope: ast.AST, name: str, *, attribute: bool) -> bool:
    """Return whether all that a scope binds a name, or an attribute of that name, to are numbers."""
    added = {each.target for each in ast.walk(scope) if isinstance(each, ast.AugAssign)}
    plain = {to for each in ast.walk(scope) for to, value in pairs(each) if _is_number(value)}
    given = ast.walk(scope.args) if isinstance(scope, Function) else ()
    if not attribute and any(isinstance(each, ast.arg) and each.arg == name for each in given):
        return False
    named = (each for each in ast.walk(scope) if isinstance(each, ast.Attribute if attribute else ast.Name))
    stored = (each for each in named if not isinstance(each.ctx, ast.Load))
    alike = (each for each in stored if (each.attr if isinstance(each, ast.Attribute) else each.id) == name)
    return all(each in added | plain for each in alike)


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
