"""What a function under translation returns: numbers with their kinds, arrays and lists of its own, its arguments."""

import ast
from collections.abc import Sequence

from flatout.numeric.arithmetic import Untranslatable
from flatout.numeric.kinds import NONE, Kind, is_array, is_number
from flatout.numeric.scope import Typed, VariableScope, as_carried, carried

__all__ = ["Results"]

_NOT_RETURNED = ("listed", "text", "tuple", "letter", "none", "several", "element", "tensor")


_FRESH = {"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "arange", "linspace"}
_FRESH |= {"copy", "array", "list", "sorted"}


class Results:
    """The values that all `return` statements of a function give, at the same places."""

    def __init__(self, scope: VariableScope) -> None:
        """Take the variables, among which each place has one of its own."""
        self.as_tuple = False
        self._scope = scope
        self._number: int | None = None
        self._arguments: dict[int, str] = {}

    def statement(self, value: Typed, written: ast.expr | None = None, body: Sequence[ast.stmt] = ()) -> ast.stmt:
        """Return the statement that returns `value`: each part with the number of its kind.

        `written`: how the function, whose `body` that is, says what it returns.

        Raises:
            Untranslatable: Python would return something else, or in another form, or one thing at two places.
        """
        own = [part for part in value.parts if _is_own(part)] if value.form == "tuple" else []
        if len(own) > 1 and not _are_apart(written, value.parts, body):
            raise Untranslatable("it returns several arrays or lists, which may be one to Python")
        parts = () if value.kinds == {NONE} else value.parts if value.form == "tuple" else (value,)
        as_tuple = value.kinds != {NONE} and value.form == "tuple"
        if self._number is not None and (self._number, self.as_tuple) != (len(parts), as_tuple):
            raise Untranslatable("it returns different numbers of values")
        self._number, self.as_tuple = len(parts), as_tuple
        made = [each for at, part in enumerate(parts) for each in self._returned(at, part)]
        return ast.Return(ast.Tuple(made or [ast.Constant(0)], ast.Load()))

    def shape(self) -> tuple[tuple[Kind, ...] | str, ...]:
        """Return for each place the kinds that may come there, or the argument that does."""
        names = (f"returned_{at}__" for at in range(self._number or 0))
        kinds = [tuple(self._scope.variables[name].kinds) for name in names]
        return tuple(self._arguments.get(at) or each for at, each in enumerate(kinds))

    def _returned(self, at: int, part: Typed) -> list[ast.expr]:
        variable = self._scope.learn(f"returned_{at}__", part)
        kind = next(iter(part.kinds))
        if is_array(kind) and part.origins:
            origin = next(iter(part.origins))
            if not part.whole or len(part.origins) > 1 or self._arguments.setdefault(at, origin) != origin:
                raise Untranslatable("it returns a part of an array that it was given")
            return [ast.Constant(0), ast.Constant(0)]
        if at in self._arguments or kind.name in _NOT_RETURNED:
            raise Untranslatable("it returns something that Python would return in another form")
        if kind.name == "list" and not (kind.inner and is_number(kind.inner[0])):
            raise Untranslatable("it returns a list of lists")
        return [as_carried(part, carried(variable.kinds)), part.tagged]


def _is_own(part: Typed) -> bool:
    """Return whether a part is an array or a list that the function has made."""
    kind = next(iter(part.kinds))
    return (is_array(kind) and not part.origins) or kind.name == "list"


def _are_apart(written: ast.expr | None, parts: Sequence[Typed], body: Sequence[ast.stmt]) -> bool:
    """Return whether the arrays and lists among the parts are surely different ones: made anew, each for its name."""
    if not isinstance(written, ast.Tuple) or len(written.elts) != len(parts):
        return False
    own = [element for element, part in zip(written.elts, parts, strict=True) if _is_own(part)]
    names = [element.id for element in own if isinstance(element, ast.Name)]
    if len(set(names)) < len(names) or not all(isinstance(each, ast.Name) or _is_fresh(each) for each in own):
        return False
    nodes = [node for statement in body for node in ast.walk(statement)]
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        stored = {name for target in targets if target is not None for name in _stored_in(target)}
        if stored & set(names) and not (isinstance(node, ast.Assign) and _makes_one(node)):
            return False
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(value, ast.expr):
            held = {each.id for each in _held(value) if isinstance(each, ast.Name)}
            if held & set(names):
                return False
    return True


def _makes_one(node: ast.Assign) -> bool:
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and _is_fresh(node.value)


def _stored_in(target: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _is_fresh(value: ast.expr) -> bool:
    """Return whether an expression makes a new array or list each time."""
    if isinstance(value, ast.Call):
        called = value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name in _FRESH
    return isinstance(value, ast.List | ast.ListComp | ast.BinOp)


def _held(value: ast.expr) -> list[ast.expr]:
    """Return what of an expression the variable holds that it is assigned to, where nothing is made anew."""
    if isinstance(value, ast.IfExp):
        return [*_held(value.body), *_held(value.orelse)]
    if isinstance(value, ast.Tuple | ast.List):
        return [each for element in value.elts for each in _held(element)]
    if isinstance(value, ast.Subscript | ast.Attribute | ast.Starred):
        return _held(value.value)
    if isinstance(value, ast.Call) and not _is_fresh(value):
        own = [value.func.value] if isinstance(value.func, ast.Attribute) else []
        return [each for one in (*own, *value.args) for each in _held(one)]
    return [value]
