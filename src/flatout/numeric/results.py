"""What a function under translation returns: numbers with their kinds, arrays and lists of its own, its arguments."""

import ast

from flatout.numeric.arithmetic import Untranslatable
from flatout.numeric.kinds import NONE, Kind, is_array, is_number
from flatout.numeric.scope import Typed, VariableScope, as_carried, carried

__all__ = ["Results"]

_NOT_RETURNED = ("listed", "text", "tuple", "letter", "none", "several", "element", "tensor")


class Results:
    """The values that all `return` statements of a function give, at the same places."""

    def __init__(self, scope: VariableScope) -> None:
        """Take the variables, among which each place has one of its own."""
        self.as_tuple = False
        self._scope = scope
        self._number: int | None = None
        self._arguments: dict[int, str] = {}

    def statement(self, value: Typed) -> ast.stmt:
        """Return the statement that returns `value`: each part with the number of its kind.

        Raises:
            Untranslatable: Python would return something else, or in another form.
        """
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
