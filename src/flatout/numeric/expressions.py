"""Expressions of Python translated to those that compiled code computes with the same results."""

import ast
import copy
from collections.abc import Callable, Mapping

from flatout.numeric.arithmetic import Untranslatable, binary, call, compared, negative, truth
from flatout.numeric.calls import Calls
from flatout.numeric.kinds import (
    BOOL,
    FLOAT,
    INT,
    LARGEST,
    LETTER,
    NONE,
    NUMPY_BOOL,
    Kind,
    is_array,
    is_whole,
    list_of,
    number,
)
from flatout.numeric.scope import (
    FLOAT64,
    TAGS,
    NotYet,
    Typed,
    Variable,
    VariableScope,
    as_carried,
    carried,
    carrier,
    joined,
    packed_tuple,
    single,
)

__all__ = ["Expressions"]

Outer = Mapping[str, "Typed | str"]
"""What names of the surroundings are: an argument of the compiled function, or the name of a known function."""


class Expressions:
    """Translates the expressions of one function."""

    def __init__(self, scope: VariableScope, outer: Outer) -> None:
        """Take the variables, and what other names stand for, by how they are written (`math.sqrt`)."""
        self.scope = scope
        self.outer = outer
        self.calls = Calls(self)
        self._known: dict[type[ast.expr], Callable[..., Typed]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.BoolOp: self._bool,
            ast.IfExp: self._either,
            ast.Subscript: self._subscript,
            ast.Call: self.calls.translated,
            ast.Tuple: self._tuple,
            ast.List: self._list,
            ast.ListComp: self._comprehension,
        }

    def translated(self, node: ast.expr) -> Typed:
        """Return an expression that gives what `node` gives.

        Raises:
            Untranslatable, NotYet: there is none, or a variable in it is not known yet.
        """
        how = self._known.get(type(node))
        if how is None:
            raise Untranslatable(f"{type(node).__name__} has no compiled form")
        return how(node)

    def condition(self, node: ast.expr) -> ast.expr:
        """Return whether Python takes `node` for true."""
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.condition(each) for each in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ast.UnaryOp(ast.Not(), self.condition(node.operand))
        found = self.translated(node)
        if found.kinds <= {BOOL, NUMPY_BOOL}:
            return found.node
        return truth(found.node, carrier(found))

    def whole(self, node: ast.expr) -> ast.expr:
        """Return a whole number, as an index or a bound of a range is."""
        found = self.translated(node)
        if not all(map(is_whole, found.kinds)):
            raise Untranslatable("an index is no whole number")
        return found.node

    # -- names and constants ------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Typed:
        value = node.value
        if type(value) is bool:
            return single(ast.Constant(value), BOOL)
        if type(value) is int and abs(value) <= LARGEST:
            return single(ast.Constant(value), INT)
        if type(value) is float:
            return single(ast.Constant(value), FLOAT)
        if isinstance(value, str) and len(value) == 1:
            return single(ast.Constant(ord(value)), LETTER)
        if value is None:
            return single(ast.Constant(0), NONE)
        raise Untranslatable("a constant is neither a number nor a letter")

    def _name(self, node: ast.Name) -> Typed:
        return self.outside(node) or self.scope.load(node.id)

    def outside(self, node: ast.expr) -> Typed | None:
        """Return what `node` is where it stands for something outside of the function."""
        dotted = self.dotted(node)
        found = self.outer.get(dotted) if dotted else None
        return found if isinstance(found, Typed) else None

    def dotted(self, node: ast.expr) -> str:
        """Return how a name with attributes is written, "" for other expressions and for variables."""
        if isinstance(node, ast.Name):
            return "" if node.id in self.scope.variables else node.id
        if isinstance(node, ast.Attribute):
            base = node.value
            above = base.id if isinstance(base, ast.Name) and base.id == "self" else self.dotted(base)
            return f"{above}.{node.attr}" if above else ""
        return ""

    def _attribute(self, node: ast.Attribute) -> Typed:
        if (found := self.outside(node)) is not None:
            return found
        value = self.translated(node.value)
        if not is_array(value.kind):
            raise Untranslatable(f".{node.attr} is read")
        if node.attr == "shape":
            shape = ast.Attribute(value.node, "shape", ast.Load())
            sizes = tuple(single(_at(shape, place), INT) for place in range(value.kind.ndim))
            return packed_tuple(sizes)
        if node.attr == "size" and value.form == "array":
            return single(ast.Attribute(value.node, "size", ast.Load()), INT)
        if node.attr == "ndim":
            return single(ast.Constant(value.kind.ndim), INT)
        raise Untranslatable(f".{node.attr} of an array is read")

    # -- operators ----------------------------------------------------------------------------------------------

    def _binary(self, node: ast.BinOp) -> Typed:
        left, right = self.translated(node.left), self.translated(node.right)
        if left.form == "list":
            return self._repeated(node, left, right)
        results = {binary(node.op, left.node, one, right.node, other)[1] for one in left.kinds for other in right.kinds}
        if results == {FLOAT, FLOAT64}:
            return self._of_either(node.op, left, right)
        made, kind = binary(node.op, left.node, carrier(left), right.node, carrier(right))
        if results != {kind}:
            raise Untranslatable("what a sum or product is depends on how the program went")
        return single(made, kind)

    def _of_either(self, op: ast.operator, left: Typed, right: Typed) -> Typed:
        """Return what is a float of numpy's where an operand is one, and else one of Python's."""
        if not all(each.kinds <= {INT, FLOAT, FLOAT64} for each in (left, right)):
            raise Untranslatable("what a sum or product is depends on how the program went")
        sides = [as_carried(each, "float64") for each in (left, right)]
        made, _ = binary(op, sides[0], FLOAT64, sides[1], FLOAT64)
        of_numpy = ast.Constant(TAGS[FLOAT64])
        tests: list[ast.expr] = [ast.Compare(each.tagged, [ast.Eq()], [of_numpy]) for each in (left, right)]
        tag = ast.IfExp(ast.BoolOp(ast.Or(), tests), of_numpy, ast.Constant(TAGS[FLOAT]))
        return Typed(made, frozenset({FLOAT, FLOAT64}), tag)

    def _repeated(self, node: ast.BinOp, left: Typed, right: Typed) -> Typed:
        if not isinstance(node.op, ast.Mult) or right.kinds != {INT} or left.kind.inner[:1] == ():
            raise Untranslatable("lists are put together")
        if left.kind.inner[0].name == "list":
            raise Untranslatable("a list holds the same list several times")
        return single(ast.BinOp(left.node, ast.Mult(), right.node), left.kind)

    def _unary(self, node: ast.UnaryOp) -> Typed:
        if isinstance(node.op, ast.Not):
            return single(ast.UnaryOp(ast.Not(), self.condition(node.operand)), BOOL)
        found = self.translated(node.operand)
        if isinstance(node.op, ast.USub):
            return single(*negative(found.node, found.kind))
        if isinstance(node.op, ast.Invert) and found.kinds == {INT}:
            return single(ast.UnaryOp(ast.Invert(), found.node), INT)
        raise Untranslatable("a sign has no compiled form")

    def _compare(self, node: ast.Compare) -> Typed:
        sides = [self.translated(each) for each in (node.left, *node.comparators)]
        parts, kinds = [], set[Kind]()
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            made, _ = compared(op, left.node, carrier(left), right.node, carrier(right))
            kinds |= {compared(op, left.node, one, right.node, other)[1] for one in left.kinds for other in right.kinds}
            parts.append(made)
        whole = parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)
        return Typed(whole, frozenset(kinds))

    def _bool(self, node: ast.BoolOp) -> Typed:
        parts = [self.translated(each) for each in node.values]
        kinds = {kind for part in parts for kind in part.kinds}
        if kinds != {BOOL} and kinds != {NUMPY_BOOL}:
            raise Untranslatable("`and` or `or` gives something else than a truth value")
        return single(ast.BoolOp(node.op, [part.node for part in parts]), next(iter(kinds)))

    def _either(self, node: ast.IfExp) -> Typed:
        return self.chosen(self.condition(node.test), self.translated(node.body), self.translated(node.orelse))

    def chosen(self, condition: ast.expr, one: Typed, other: Typed) -> Typed:
        """Return one of two values."""
        kinds = joined([*one.kinds, *other.kinds])
        wanted = carried(kinds)
        if any(kind.name in ("array", "element", "tensor", "tuple") for kind in kinds):
            raise Untranslatable("one of two arrays is taken")
        made = ast.IfExp(condition, as_carried(one, wanted), as_carried(other, wanted))
        tag = ast.IfExp(condition, one.tagged, other.tagged) if len(kinds) > 1 else None
        return Typed(made, kinds, tag)

    # -- what has parts -----------------------------------------------------------------------------------------

    def _tuple(self, node: ast.Tuple) -> Typed:
        return packed_tuple(tuple(self.translated(each) for each in node.elts))

    def _list(self, node: ast.List) -> Typed:
        if not node.elts:
            raise Untranslatable("an empty list is made inside of an expression")
        parts = [self.translated(each) for each in node.elts]
        kinds = joined(kind for part in parts for kind in part.kinds)
        if len(kinds) != 1 or any(kind.name in ("array", "element", "tensor", "tuple") for kind in kinds):
            raise Untranslatable("a list holds things of different kinds")
        return single(ast.List([part.node for part in parts], ast.Load()), list_of(next(iter(kinds))))

    def _comprehension(self, node: ast.ListComp) -> Typed:
        generator = node.generators[0]
        if len(node.generators) > 1 or generator.ifs or not isinstance(generator.target, ast.Name):
            raise Untranslatable("a list is made by more than one simple loop")
        walked = self.calls.ranged(generator.iter)
        name = f"each_{generator.target.id}__"
        element_of = _renamed(node.elt, generator.target.id, name)
        if walked is None:
            raise Untranslatable("a list is made from something else than a range")
        self.scope.variables[name] = Variable(frozenset({INT}))
        self.scope.bound.add(name)
        try:
            element = self.translated(element_of)
        finally:
            self.scope.variables.pop(name)
            self.scope.bound.discard(name)
        if any(kind.name not in ("list", "number", "int", "float", "bool") for kind in element.kinds):
            raise Untranslatable("a list holds something else than numbers")
        target = ast.Name(name, ast.Store())
        made = ast.ListComp(element.node, [ast.comprehension(target, walked, [], 0)])
        return single(made, list_of(element.kind))

    def _subscript(self, node: ast.Subscript) -> Typed:
        value = self.translated(node.value)
        kind = value.kind
        if kind.name == "tuple":
            return self._part(value, node.slice)
        if is_array(kind):
            return self.element(value, node.slice, ast.Load())
        if kind.name not in ("list", "listed", "text"):
            raise Untranslatable("something is indexed that is no array")
        if isinstance(node.slice, ast.Slice):
            return single(ast.Subscript(value.node, self._slice(node.slice), ast.Load()), kind)
        if kind.name != "text" and not kind.inner:
            raise NotYet("an element")
        element = LETTER if kind.name == "text" else kind.inner[0]
        return single(ast.Subscript(value.node, self.whole(node.slice), ast.Load()), element)

    def _part(self, value: Typed, at: ast.expr) -> Typed:
        if isinstance(at, ast.Slice):
            bounds = [None if each is None else ast.literal_eval(each) for each in (at.lower, at.upper, at.step)]
            return packed_tuple(value.parts[slice(*bounds)])
        place = ast.literal_eval(at) if isinstance(at, ast.Constant | ast.UnaryOp) else None
        if type(place) is not int or not -len(value.parts) <= place < len(value.parts):
            raise Untranslatable("a tuple is indexed by something else than a number")
        return value.parts[place]

    def element(self, value: Typed, at: ast.expr, context: ast.expr_context) -> Typed:
        """Return an element, or a part, of an array."""
        places = at.elts if isinstance(at, ast.Tuple) else [at]
        made = [self._slice(each) if isinstance(each, ast.Slice) else self.whole(each) for each in places]
        return self.element_at(value, made, context)

    def element_at(self, value: Typed, places: list[ast.expr], context: ast.expr_context) -> Typed:
        """Return an element, or a part, at indices that are translated already."""
        if len(places) > value.kind.ndim:
            raise Untranslatable("an array has fewer dimensions than indices")
        left = value.kind.ndim - sum(not isinstance(each, ast.Slice) for each in places)
        index = places[0] if len(places) == 1 else ast.Tuple(places, ast.Load())
        node: ast.expr = ast.Subscript(value.node, index, context)
        if left:
            part = Kind(value.form, value.kind.dtype, left, "A")
            return Typed(node, frozenset({part}), origins=value.origins)
        kind = number(value.kind.dtype)
        assert kind is not None
        made_of = Kind("element", value.kind.dtype) if value.form == "tensor" else kind
        if isinstance(context, ast.Load):
            if is_whole(kind) and kind.dtype != "i8":
                node = call("int64", node)
            if kind == NUMPY_BOOL:
                node = ast.Compare(node, [ast.NotEq()], [ast.Constant(0)])
        return single(node, made_of)

    def _slice(self, node: ast.Slice) -> ast.expr:
        if node.step is not None:
            raise Untranslatable("a slice has a step")
        lower, upper = (None if each is None else self.whole(each) for each in (node.lower, node.upper))
        return ast.Slice(lower, upper)


def _renamed(node: ast.expr, name: str, other: str) -> ast.expr:
    made = copy.deepcopy(node)
    for each in ast.walk(made):
        if isinstance(each, ast.Name) and each.id == name:
            each.id = other
    return made


def _at(node: ast.expr, place: int) -> ast.expr:
    return ast.Subscript(node, ast.Constant(place), ast.Load())
