"""Calls that compiled code knows: some of Python's own functions, of `math`, and of numpy's makers of arrays."""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from flatout.numeric.arithmetic import Untranslatable, call, compared, converted, truth
from flatout.numeric.kinds import BOOL, FLOAT, INT, Kind, is_float, is_number, is_whole, limits, list_of, number
from flatout.numeric.known_functions import TYPES
from flatout.numeric.operations import operations
from flatout.numeric.scope import Typed, carried, carrier, single

if TYPE_CHECKING:
    from flatout.numeric.expressions import Expressions

__all__ = ["Calls"]


_INFINITE = ("inf", "-inf", "nan", "infinity", "-infinity")


class Calls:
    """Translates calls, and what a loop runs over."""

    def __init__(self, expressions: "Expressions") -> None:
        """Take what translates their arguments."""
        self._of = expressions
        self._known: dict[str, Callable[[ast.Call], Typed]] = {
            "abs": self._absolute,
            "bool": self._bool,
            "float": self._float,
            "int": self._int,
            "len": self._length,
            "list": self._list,
            "max": self._extreme,
            "min": self._extreme,
            "round": self._round,
        }

    def name(self, node: ast.expr) -> str:
        """Return which known function `node` is, "" for all others."""
        dotted = self._of.dotted(node)
        found = self._of.outer.get(dotted) if dotted else None
        return found if isinstance(found, str) else ""

    def translated(self, node: ast.Call) -> Typed:
        """Return what a call gives.

        Raises:
            Untranslatable: compiled code does not know the function, or not with such arguments.
        """
        name = self.name(node.func)
        if not name and isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if any(isinstance(each, ast.Starred) for each in node.args):
            raise Untranslatable("a call has unpacked arguments")
        if name.startswith("np."):
            return self._array(node, name.removeprefix("np."))
        if node.keywords or not (name in self._known or name.startswith("math.")):
            raise Untranslatable(f"{ast.unparse(node.func)} is called")
        return self._math(node, name.removeprefix("math.")) if name.startswith("math.") else self._known[name](node)

    def ranged(self, node: ast.expr) -> ast.expr | None:
        """Return a range over which a loop runs, None for all else."""
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        name = self.name(node.func)
        if name == "range" and 1 <= len(node.args) <= 3:
            return call("range", *[self._of.whole(each) for each in node.args])
        inner = node.args[0] if name == "reversed" and len(node.args) == 1 else None
        if not isinstance(inner, ast.Call) or self.name(inner.func) != "range" or not 1 <= len(inner.args) <= 2:
            return None
        bounds = [self._of.whole(each) for each in inner.args]
        first = call("subtract", bounds[-1], ast.Constant(1))
        last = call("subtract", bounds[0], ast.Constant(1)) if len(bounds) > 1 else ast.Constant(-1)
        return call("range", first, last, ast.Constant(-1))

    # -- Python's own functions ---------------------------------------------------------------------------------

    def _arguments(self, node: ast.Call, least: int, most: int) -> list[Typed]:
        if not least <= len(node.args) <= most:
            raise Untranslatable(f"{ast.unparse(node.func)} is called with {len(node.args)} arguments")
        return [self._of.translated(each) for each in node.args]

    def _absolute(self, node: ast.Call) -> Typed:
        (value,) = self._arguments(node, 1, 1)
        kind = value.kind
        if is_float(kind):
            return single(call("real_absolute", value.node), kind)
        if not is_whole(kind):
            raise Untranslatable("the size of something is asked for that is no number")
        made = call("whole_absolute", value.node)
        return single(made if kind == INT else call("within", made, *map(ast.Constant, limits(kind.dtype))), kind)

    def _number(self, value: Typed) -> Typed:
        """Return an element of a tensor as the number that it holds, and all else as it is."""
        kind = number(value.kind.dtype) if value.form == "element" else None
        return value if kind is None else single(value.node, kind)

    def _bool(self, node: ast.Call) -> Typed:
        value = self._number(self._arguments(node, 1, 1)[0])
        return single(truth(value.node, value.kind), BOOL)

    def _float(self, node: ast.Call) -> Typed:
        if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value in _INFINITE:
            return single(ast.Constant(float(node.args[0].value)), FLOAT)
        value = self._number(self._arguments(node, 1, 1)[0])
        if len(value.kinds) > 1 and carried(value.kinds) == "float64":
            return single(value.node, FLOAT)
        if not is_number(value.kind):
            raise Untranslatable("something becomes a float that is no number")
        return single(converted(value.node, value.kind, "float64"), FLOAT)

    def _int(self, node: ast.Call) -> Typed:
        value = self._number(self._arguments(node, 1, 1)[0])
        kind = value.kind
        if is_float(kind):
            return single(call("truncated", value.node), INT)
        if not is_number(kind):
            raise Untranslatable("something becomes a whole number that is no number")
        return single(converted(value.node, kind, "int64"), INT)

    def _round(self, node: ast.Call) -> Typed:
        (value,) = self._arguments(node, 1, 1)
        if value.kind != FLOAT:
            raise Untranslatable("something is rounded that is no float of Python's")
        return single(call("rounded", value.node), INT)

    def _length(self, node: ast.Call) -> Typed:
        (value,) = self._arguments(node, 1, 1)
        kind = value.kind
        if kind.name == "tuple":
            return single(ast.Constant(len(value.parts)), INT)
        if kind.name not in ("array", "tensor", "list", "listed", "text"):
            raise Untranslatable("the length of something is asked for that has none")
        return single(call("len", value.node), INT)

    def _list(self, node: ast.Call) -> Typed:
        if len(node.args) != 1:
            raise Untranslatable("list() is called with other things than one")
        ranged = self.ranged(node.args[0])
        if ranged is not None:
            return single(call("list", ranged), list_of(INT))
        value = self._of.translated(node.args[0])
        if value.form == "list":
            return single(ast.Subscript(value.node, ast.Slice(), ast.Load()), value.kind)
        if value.form == "listed":
            name = ast.Name("each__", ast.Store())
            copied = ast.ListComp(ast.Name("each__", ast.Load()), [ast.comprehension(name, value.node, [], 0)])
            return single(copied, list_of(value.kind.inner[0]))
        raise Untranslatable("a list is made from something else than a range or a list")

    def _extreme(self, node: ast.Call) -> Typed:
        values = self._arguments(node, 2, 4)
        smallest = self.name(node.func) == "min"
        found = values[0]
        for value in values[1:]:
            if found.kinds == value.kinds and len(found.kinds) == 1 and is_number(found.kind):
                name = "least" if smallest else "largest"
                found = single(call(name, found.node, value.node), found.kind)
                continue
            op = ast.Lt() if smallest else ast.Gt()
            takes, _ = compared(op, value.node, carrier(value), found.node, carrier(found))
            found = self._of.chosen(takes, value, found)
        return found

    # -- math and numpy -----------------------------------------------------------------------------------------

    def _math(self, node: ast.Call, name: str) -> Typed:
        (value,) = self._arguments(node, 1, 1)
        if not is_number(value.kind):
            raise Untranslatable(f"math.{name} is called with something that is no number")
        if name in ("floor", "ceil") and is_whole(value.kind):
            if value.kind != INT:
                raise Untranslatable(f"math.{name} is called with a whole number of numpy's")
            return value
        real = converted(value.node, value.kind, "float64")
        if name in ("isnan", "isinf", "isfinite"):
            written = ast.Attribute(ast.Name("flatout_math", ast.Load()), name, ast.Load())
            return single(ast.Call(written, [real], []), BOOL)
        if name in ("floor", "ceil"):
            if value.kind != FLOAT and value.kind.dtype == "f4":
                raise Untranslatable(f"math.{name} is called with a float32")
            return single(call(name, real), INT)
        named = "real_absolute" if name == "fabs" else name
        if named not in operations():
            raise Untranslatable(f"math.{name} is called")
        return single(call(named, real), FLOAT)

    def _array(self, node: ast.Call, name: str) -> Typed:
        if name in TYPES:
            return self._numpy_number(node, number(TYPES[name]))
        given = {each.arg: each.value for each in node.keywords}
        places = ("shape", "fill_value", "dtype") if name == "full" else ("shape", "dtype")
        given |= dict(zip(places, node.args, strict=False))
        if len(node.args) > len(places) or set(given) - {*places}:
            raise Untranslatable(f"np.{name} is called with such arguments")
        if name.endswith("_like"):
            return self._like(name, given)
        dtype = self._dtype(given.get("dtype"))
        if name == "full" and "dtype" not in given:
            raise Untranslatable("np.full is called without a type")
        sizes = given["shape"].elts if isinstance(given["shape"], ast.Tuple) else [given["shape"]]
        if len(sizes) == 1 and self._of.translated(sizes[0]).form == "tuple":
            made = [part.node for part in self._of.translated(sizes[0]).parts]
        else:
            made = [self._of.whole(each) for each in sizes]
        arguments: list[ast.expr] = [ast.Tuple(made, ast.Load())]
        if name == "full":
            fill = self._of.translated(given["fill_value"])
            arguments.append(self.stored(fill, dtype))
        return self._made(name, arguments, dtype, len(made))

    def _like(self, name: str, given: dict[str | None, ast.expr]) -> Typed:
        like = self._of.translated(given["shape"])
        if like.form != "array" or like.kind.layout.upper() != "C" or "dtype" in given:
            raise Untranslatable(f"np.{name} is called with such an argument")
        sizes = [
            ast.Subscript(ast.Attribute(like.node, "shape", ast.Load()), ast.Constant(place), ast.Load())
            for place in range(like.kind.ndim)
        ]
        shape: list[ast.expr] = [ast.Tuple([*sizes], ast.Load())]
        return self._made(name.removesuffix("_like"), shape, like.kind.dtype, like.kind.ndim)

    def _made(self, name: str, arguments: list[ast.expr], dtype: str, ndim: int) -> Typed:
        maker = ast.Attribute(ast.Name("flatout_np", ast.Load()), name, ast.Load())
        stored = np.dtype("u1" if dtype == "b1" else dtype).name
        made = ast.Call(maker, [*arguments, ast.Name(f"flatout_type{stored}", ast.Load())], [])
        return single(made, Kind("array", dtype, ndim, "C"))

    def _dtype(self, node: ast.expr | None) -> str:
        name = "float" if node is None else self.name(node)
        found = {"float": "f8", "int": "i8", "bool": "b1"}.get(name) or TYPES.get(name.removeprefix("np."))
        if found is None or number(found) is None:
            raise Untranslatable("an array is made of a type that is not known")
        return found

    def _numpy_number(self, node: ast.Call, kind: Kind | None) -> Typed:
        """Return one of numpy's numbers, made from another number."""
        (value,) = self._arguments(node, 1, 1)
        if kind is None or not is_number(value.kind) or kind.dtype == "b1" or (is_whole(kind) and is_float(value.kind)):
            raise Untranslatable("a number of numpy's is made from something else than a number")
        if is_whole(kind):
            made = call("within", converted(value.node, value.kind, "int64"), *map(ast.Constant, limits(kind.dtype)))
            return single(made, kind)
        return single(self.stored(value, kind.dtype), kind)

    def stored_in(self, value: Typed, kind: Kind) -> ast.expr:
        """Return a number as an array or a tensor of that kind holds it.

        A tensor takes numbers of Python's of its own sort, and elements of its own type.
        """
        if kind.name == "array":
            return self.stored(value, kind.dtype)
        inner = number(kind.dtype)
        if value.form == "element" and value.kind.dtype == kind.dtype:
            return call("int64", value.node) if kind.dtype == "b1" else value.node
        native = {FLOAT, INT} if inner is not None and is_float(inner) else {BOOL} if kind.dtype == "b1" else {INT}
        if not value.kinds <= native:
            raise Untranslatable("something is stored in a tensor that is no number of its sort")
        return self.stored(value, kind.dtype)

    def stored(self, value: Typed, dtype: str) -> ast.expr:
        """Return a number as an array of that type holds it; what numpy refuses, or warns of, is left to Python."""
        kind = number(dtype)
        if kind is None or not all(map(is_number, value.kinds)):
            raise Untranslatable("something is stored in an array that is no number")
        of = next(iter(value.kinds)) if len(value.kinds) == 1 else FLOAT if carried(value.kinds) == "float64" else INT
        if dtype == "b1":
            if carried(value.kinds) != "bool":
                raise Untranslatable("a number is stored among truth values")
            return call("int64", value.node)
        if is_whole(kind):
            whole = call("truncated", value.node) if is_float(of) else converted(value.node, of, "int64")
            return whole if dtype == "i8" else call("within", whole, *map(ast.Constant, limits(dtype)))
        if is_whole(of):
            return call("exact32" if dtype == "f4" else "exact64", value.node)
        return converted(value.node, of, "float32" if dtype == "f4" else "float64")

    # -- methods ------------------------------------------------------------------------------------------------

    def _method(self, node: ast.Call, function: ast.Attribute) -> Typed:
        value = self._of.translated(function.value)
        kind = value.kind
        if function.attr == "size" and kind.name == "tensor" and len(node.args) == 1 and not node.keywords:
            shape = ast.Attribute(function.value, "shape", ast.Load())
            return self._of.translated(ast.Subscript(shape, node.args[0], ast.Load()))
        if node.args or node.keywords:
            raise Untranslatable(f".{function.attr} is called")
        if function.attr == "item" and kind.name in ("element", "number"):
            kind = self._number(value).kind
            native = FLOAT if is_float(kind) else INT if is_whole(kind) else BOOL
            return single(converted(value.node, kind, "float64") if native == FLOAT else value.node, native)
        if function.attr == "copy" and kind.name == "array":
            made = ast.Call(ast.Attribute(value.node, "copy", ast.Load()), [], [])
            return single(made, Kind("array", kind.dtype, kind.ndim, "C"))
        raise Untranslatable(f".{function.attr} is called")
