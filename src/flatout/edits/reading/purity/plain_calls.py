"""Calls of functions that compute something of plain values and do nothing else: known ones, and the user's."""

import ast
from collections.abc import Sequence

from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.direct_calls import function_called
from flatout.edits.reading.purity.plain_values import AskedVariable, PlainValues, ReadBody, Unproven
from flatout.edits.reading.purity.pure_calls import (
    CONSUMERS,
    PURE_FUNCTIONS,
    PURE_METHODS,
    PlainKind,
    is_constant,
    is_within,
    words,
)
from flatout.edits.reading.purity.seldom_names import bound_names
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["GROWING_METHODS", "PlainCalls"]

NUMBER, OWN, PLAIN = PlainKind
_WALKING = words("list tuple set dict sorted sum max min any all")
_HOLDING = words("list tuple set dict sorted")
_NAMED = {"sorted": words("key reverse"), "max": words("key default"), "min": words("key default")}
_VIEWING = words("get items values keys copy most_common")
GROWING_METHODS = words("append appendleft extend insert setdefault update clear remove discard reverse pop add sort")
"""Methods that change lists, dictionaries and sets; tensors have some of these names, and change nothing there."""


class PlainCalls(PlainValues):
    """Reads calls; the statements of the user's functions are read by the class made from this one."""

    def __init__(self, project: Project, home: ReadBody) -> None:
        """Read nothing yet; `home`: the work itself."""
        super().__init__(project, home)
        self._calling: list[Function] = []
        self._loops: frozenset[ast.AST] = frozenset()  # those being read, of the function that is being read

    def _block(self, body: ReadBody, statements: Sequence[ast.stmt]) -> bool:
        raise NotImplementedError

    def _call(self, body: ReadBody, node: ast.Call) -> PlainKind:
        func, dotted = node.func, body.source.names.dotted(node.func)
        if dotted == "collections.defaultdict":
            return self._defaults(body, node)
        if dotted in PURE_FUNCTIONS:
            return self._library(body, node, dotted)
        if isinstance(func, ast.Name) and func.id not in body.locals and is_builtin(body.source, func, CONSUMERS):
            return self._builtin(body, node, func.id)
        if isinstance(func, ast.Attribute) and not dotted:
            return self._method(body, node, func)
        known = function_called(self._project, body.source, func)
        if known is None or (isinstance(func, ast.Name) and func.id in body.locals):
            raise Unproven(f"{ast.unparse(func)}() may do more than to compute")
        return self._function(body, node, *known)

    def _defaults(self, body: ReadBody, node: ast.Call) -> PlainKind:
        """Read `defaultdict(int)`."""
        is_plain = len(node.args) == 1 and not node.keywords
        if not is_plain or not is_builtin(body.source, node.args[0], ("int", "float", "list", "set")):
            raise Unproven(f"{ast.unparse(node)} may make anything")
        self._store(NUMBER if ast.unparse(node.args[0]) in ("int", "float") else OWN)
        return OWN

    def _library(self, body: ReadBody, node: ast.Call, dotted: str) -> PlainKind:
        most, kind = PURE_FUNCTIONS[dotted]
        is_torch = dotted.startswith("torch.") and not dotted.startswith("torch.nn.")
        if not is_within(node, most, method=is_torch):
            raise Unproven(f"{ast.unparse(node.func)}() is given more than is known here")
        use = {"math": "number", "torch": "tensor", "torchvision": "tensor"}.get(dotted.partition(".")[0], "array")
        for each in (*node.args, *(each.value for each in node.keywords)):
            given = self._kind(body, each, use)
            if dotted.startswith("collections."):
                self._store(self._item(given))
        return kind

    def _builtin(self, body: ReadBody, node: ast.Call, name: str) -> PlainKind:
        named = {each.arg for each in node.keywords}
        is_odd = any(isinstance(each, ast.Starred) for each in node.args) or named - _NAMED.get(name, frozenset())
        if is_odd or (name in _WALKING - {"max", "min"} and len(node.args) > 1):
            raise Unproven(f"{name}() is given more than is known here")
        if name not in _WALKING or len(node.args) != 1:
            kinds = [self._kind(body, each, "tensor" if name == "len" else "number") for each in node.args]
        else:
            kinds = [self._flat(self._items(body, node.args[0]))]
            if name in _HOLDING:
                self._store(kinds[0])
        for each in node.keywords:
            if each.arg == "key":
                self._key(body, each.value, max(kinds, default=NUMBER))
            else:
                kinds.append(self._kind(body, each.value))
                self._store(kinds[-1])
        most = max(kinds, default=NUMBER)
        if name in _HOLDING:
            return OWN
        return most if name in ("max", "min") else NUMBER if most == NUMBER else CONSUMERS[name]

    def _key(self, body: ReadBody, node: ast.expr, item: PlainKind) -> None:
        """Read the function that values are compared by."""
        if is_builtin(body.source, node, ("len", "abs", "int", "float", "str")):
            return
        if not isinstance(node, ast.Lambda) or len(node.args.args) != 1 or len(ast.unparse(node.args).split()) != 1:
            raise Unproven(f"key={ast.unparse(node)} may do more than to compute")
        name, before = node.args.args[0].arg, dict(body.kinds)
        bound = set(body.bound)
        body.kinds[name], self._depth = item, self._depth + 1
        body.bound.add(name)
        self._kind(body, node.body)
        self._depth -= 1
        body.kinds.pop(name)
        body.kinds |= {name: before[name]} if name in before else {}
        body.bound = bound

    def _method(self, body: ReadBody, node: ast.Call, func: ast.Attribute) -> PlainKind:
        name = func.attr
        value = self._value(body, func.value)
        if name in GROWING_METHODS - {"add"} and isinstance(value, AskedVariable):
            raise Unproven(f"{ast.unparse(func)}() may change what others have")
        receiver = self._plain(value, "array" if name == "astype" else "tensor")
        kinds = [self._kind(body, each) for each in node.args if not isinstance(each, ast.Starred)]
        most = max(kinds, default=NUMBER)
        if name in GROWING_METHODS:
            if len(kinds) != len(node.args) or node.keywords or (name == "sort" and receiver > OWN):
                raise Unproven(f"{ast.unparse(func)}() may change what others have")
            self._store(self._item(most) if name in ("extend", "update") else most)
            return self._item(max(receiver, OWN))
        entry = PURE_METHODS.get(name)
        if entry is None or not is_within(node, entry[0], method=True):
            raise Unproven(f"{ast.unparse(func)}() may do more than to compute")
        for each in node.keywords:
            self._kind(body, each.value)
        if name in _VIEWING:
            self._store(most)
            return self._item(max(receiver, OWN))
        return entry[1]

    def _function(self, body: ReadBody, node: ast.Call, source: SourceFile, function: Function) -> PlainKind:
        """Read a function of the user's with what it is given."""
        given = function.args
        named = [each.arg for each in (*given.posonlyargs, *given.args)]
        values = {name: self._value(body, each) for name, each in zip(named, node.args, strict=False)}
        values |= {each.arg or "": self._value(body, each.value) for each in node.keywords}
        defaults: list[tuple[str, ast.expr | None]] = [*zip(reversed(named), reversed(given.defaults), strict=False)]
        defaults += zip([each.arg for each in given.kwonlyargs], given.kw_defaults, strict=True)
        for name, default in defaults:
            if name not in values and default is not None and is_constant(default):
                values[name] = NUMBER
        named += [each.arg for each in given.kwonlyargs]
        is_odd = given.vararg or given.kwarg or any(isinstance(each, ast.Starred) for each in node.args)
        if is_odd or function in self._calling or {*values} != {*named} or len(node.args) > len(named):
            raise Unproven(f"{function.name}() is given more or less than is known here")
        own = {*bound_names(source, function.body), *named}
        inner = self.reached.setdefault(function, ReadBody(source, own))
        for name, value in values.items():
            self._set(inner, name, value)
        inner.bound = {*named}
        self._calling.append(function)
        loops, self._loops = self._loops, frozenset()
        self._block(inner, function.body)
        self._loops = loops
        self._calling.pop()
        return inner.result
