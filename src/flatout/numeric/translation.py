"""One function of Python translated, statement by statement, for given kinds of its arguments.

It is gone through until no variable is found to hold anything new; then the code is written. Whatever it does that is
not known to come out as in Python ends the translation, with the reason.
"""

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flatout.numeric.arithmetic import Untranslatable, call
from flatout.numeric.expressions import Expressions
from flatout.numeric.kinds import INT, LETTER, NONE, Kind, is_array, is_number, list_of
from flatout.numeric.results import Results
from flatout.numeric.scope import NotYet, Typed, VariableScope, as_carried, carried, packed_tuple, single
from flatout.numeric.subset import ends_by_itself, has_to_run

__all__ = ["Translation", "translated"]

_MOST_PASSES = 12
_RAN = "ran__"


@dataclass(frozen=True)
class Translation:
    """Code for numba, what it returns, and the arguments whose memory it writes to.

    `returned` has for each value the kinds that it may be, or the argument that it is; `single`: it is no tuple.
    """

    function: ast.FunctionDef
    returned: tuple[tuple[Kind, ...] | str, ...]
    single: bool
    written: frozenset[str]


def translated(
    body: Sequence[ast.stmt], arguments: Mapping[str, Kind], outer: Mapping[str, "Typed | str"], name: str
) -> Translation:
    """Return the translation of a function's body.

    `arguments`: what it is given, by the names of its variables; `outer`: what other names stand for.

    Raises:
        Untranslatable: it cannot be translated so that it gives what Python gives.
    """
    given = dict(arguments)
    given.update((each.node.id, each.kind) for each in outer.values() if isinstance(each, Typed))  # type: ignore[attr-defined]
    scope = VariableScope.of_arguments(given)
    for _ in range(_MOST_PASSES):
        scope.changed = False
        _Statements(scope, outer, arguments).translated(body, given)
        if not scope.changed:
            break
    else:
        raise Untranslatable("its variables change their kinds all the time")
    scope.final = True
    found = _Statements(scope, outer, arguments)
    made = found.translated(body, given)
    for variable in scope.variables.values():
        if any(kind.name == "list" and not kind.inner for kind in variable.kinds):
            raise Untranslatable("a list is made that is never filled")
    _refuse_views(scope)
    names, first = _entered(scope, given)
    function = ast.FunctionDef(name, ast.arguments([], names, None, [], [], None, []), [*first, *made], [])
    return Translation(function, found.results.shape(), not found.results.as_tuple, frozenset(scope.written))


def _refuse_views(scope: VariableScope) -> None:
    """Refuse variables that hold elements of tensors where tensors are written to: they are views, and change along."""
    forms = [kind.name for variable in scope.variables.values() for kind in variable.kinds]
    written = [kind.name for name in scope.written for kind in scope.variables[name].kinds]
    if "element" in forms and "tensor" in written:
        raise Untranslatable("an element of a tensor is kept while a tensor is written to")


def _entered(scope: VariableScope, given: Mapping[str, Kind]) -> tuple[list[ast.arg], list[ast.stmt]]:
    """Return the names of the arguments, and what makes variables of those that may hold something else later."""
    names, first = [], list[ast.stmt]()
    for name, kind in given.items():
        several = len(scope.variables[name].kinds) > 1
        names.append(ast.arg(f"{name}__given__" if several else name))
        if several:
            first += scope.store(name, single(ast.Name(names[-1].arg, ast.Load()), kind))
    return names, first


class _Statements:
    """Translates the statements of one function, in one pass."""

    def __init__(self, scope: VariableScope, outer: Mapping[str, "Typed | str"], arguments: Mapping[str, Kind]) -> None:
        self.scope = scope
        self.results = Results(scope)
        self._of = Expressions(scope, outer)
        self._arguments = arguments
        self._known: dict[type[ast.stmt], Callable[..., list[ast.stmt]]] = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.If: self._if,
            ast.For: self._for,
            ast.While: self._while,
            ast.Return: self._return,
            ast.Expr: self._expression,
            ast.Pass: lambda node: [],
            ast.Break: lambda node: [ast.Break()],
            ast.Continue: lambda node: [ast.Continue()],
            ast.Raise: lambda node: [_give_up()],
            ast.Assert: self._assert,
        }

    def translated(self, body: Sequence[ast.stmt], arguments: Mapping[str, Kind]) -> list[ast.stmt]:
        """Return the statements of the whole function."""
        self.scope.bound, self._body = set(arguments), body
        made = self._block(body)
        if not _ends(body):
            made.append(self.results.statement(single(ast.Constant(0), NONE)))
        return made

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for node in body:
            how = self._known.get(type(node))
            if how is None:
                raise Untranslatable(f"{type(node).__name__} has no compiled form")
            try:
                made += how(node)
            except NotYet as error:
                if self.scope.final:
                    raise Untranslatable(f"{error} may have no value") from None
            except ValueError:  # a constant that is none
                raise Untranslatable("a tuple is indexed by something else than a number") from None
        return made or [ast.Pass()]

    # -- what stores --------------------------------------------------------------------------------------------

    def _assign(self, node: ast.Assign) -> list[ast.stmt]:
        if len(node.targets) > 1:
            if not isinstance(node.value, ast.Constant):
                raise Untranslatable("one value is stored in several places")
            return [made for target in node.targets for made in self._assign(ast.Assign([target], node.value))]
        return self._stored(node.targets[0], self._value(node.targets[0], node.value))

    def _annotated(self, node: ast.AnnAssign) -> list[ast.stmt]:
        return [] if node.value is None else self._assign(ast.Assign([node.target], node.value))

    def _value(self, target: ast.expr, value: ast.expr) -> Typed:
        """Translate what is stored; an empty list takes its kind from the variable, of which more is learnt later."""
        if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) and len(value.elts) == len(target.elts):
            return packed_tuple(tuple(map(self._value, target.elts, value.elts)))
        if isinstance(value, ast.List) and not value.elts and isinstance(target, ast.Name):
            known = self.scope.variables.get(target.id)
            kind = next(iter(known.kinds), list_of(None)) if known is not None else list_of(None)
            if kind.name != "list":
                raise Untranslatable("a variable holds a list and something else")
            return single(_empty(kind), kind)
        return self._of.translated(value)

    def _stored(self, target: ast.expr, value: Typed) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            if target.id in self._of.outer or target.id == "self":
                raise Untranslatable(f"{target.id} is stored that stands outside")
            return self.scope.store(target.id, value)
        if isinstance(target, ast.Tuple | ast.List):
            return self._unpacked(target.elts, value)
        if isinstance(target, ast.Subscript):
            return self._put(target, value)
        raise Untranslatable("something else than a variable or an element is stored")

    def _unpacked(self, targets: Sequence[ast.expr], value: Typed) -> list[ast.stmt]:
        if value.form != "tuple" or len(value.parts) != len(targets):
            raise Untranslatable("something is unpacked that is no tuple")
        made: list[ast.stmt] = []
        held = []
        for target, part in zip(targets, value.parts, strict=True):  # all are worked out before the first is stored
            name = f"part_{self.scope.number_of(target)}__"
            made += self.scope.store(name, part)
            held.append(self.scope.load(name))
        for target, each in zip(targets, held, strict=True):
            made += self._stored(target, each)
        return made

    def _put(self, target: ast.Subscript, value: Typed) -> list[ast.stmt]:
        into = self._of.translated(target.value)
        if into.form == "list":
            self._fill(target.value, value)
            if isinstance(target.slice, ast.Slice) or not into.kind.inner:
                raise NotYet("an element")
            place: ast.expr = ast.Subscript(into.node, self._of.whole(target.slice), ast.Store())
            return [ast.Assign([place], as_carried(value, carried(into.kind.inner)))]
        if not is_array(into.kind):
            raise Untranslatable("an element of something else than an array is stored")
        self.scope.written |= into.origins
        element = self._of.element(into, target.slice, ast.Store())
        if not is_array(element.kind) or all(map(is_number, value.kinds)):
            return [ast.Assign([element.node], self._of.calls.stored_in(value, into.kind))]
        if value.form != into.form or value.kind.dtype != into.kind.dtype or value.kind.ndim != element.kind.ndim:
            raise Untranslatable("a part of an array is stored in another kind of array")
        return [ast.Assign([element.node], value.node)]

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        read = copy.deepcopy(node.target)
        for each in ast.walk(read):
            if isinstance(each, ast.Name | ast.Subscript) and isinstance(each.ctx, ast.Store):
                each.ctx = ast.Load()
        left = self._of.translated(read)
        of_tensor = isinstance(read, ast.Subscript) and left.form == "element"
        if not of_tensor and not all(map(is_number, left.kinds)):
            raise Untranslatable("a list or an array is changed as a whole")
        return self._stored(node.target, self._of.translated(ast.BinOp(read, node.op, node.value)))

    def _expression(self, node: ast.Expr) -> list[ast.stmt]:
        value = node.value
        if isinstance(value, ast.Constant):
            return []
        function = value.func if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords else None
        if not isinstance(value, ast.Call) or not isinstance(function, ast.Attribute) or function.attr != "append":
            raise Untranslatable(f"{ast.unparse(value)[:60]} stands by itself")
        onto, element = self._of.translated(function.value), self._of.translated(value.args[0])
        if onto.form != "list":
            raise Untranslatable("something is appended to what the code has not made")
        self._fill(function.value, element)
        made = as_carried(element, carried(element.kinds))
        return [ast.Expr(ast.Call(ast.Attribute(onto.node, "append", ast.Load()), [made], []))]

    def _fill(self, node: ast.expr, element: Typed) -> None:
        """Note what a list holds from now on: that of a variable, or one in a list of lists."""
        if element.form in ("array", "tensor", "element", "tuple", "listed", "text"):
            raise Untranslatable("a list holds arrays or tuples")
        kind = list_of(element.kind)
        while isinstance(node, ast.Subscript):
            node, kind = node.value, list_of(kind)
        if not isinstance(node, ast.Name):
            raise Untranslatable("a list without a name is filled")
        self.scope.learn(node.id, single(node, kind))

    # -- what branches ------------------------------------------------------------------------------------------

    def _if(self, node: ast.If) -> list[ast.stmt]:
        test = self._of.condition(node.test)
        before = set(self.scope.bound)
        body = self._block(node.body)
        after, self.scope.bound = self.scope.bound, set(before)
        orelse = self._block(node.orelse) if node.orelse else []
        if _ends(node.body):
            after = self.scope.bound
        elif not _ends(node.orelse):
            after &= self.scope.bound
        self.scope.bound = after
        return [ast.If(test, body, orelse)]

    def _assert(self, node: ast.Assert) -> list[ast.stmt]:
        return [ast.If(ast.UnaryOp(ast.Not(), self._of.condition(node.test)), [_give_up()], [])]

    def _while(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            raise Untranslatable("a loop has an else")
        if not ends_by_itself(node):
            raise Untranslatable("a loop waits for what is done elsewhere")
        test, before = self._of.condition(node.test), set(self.scope.bound)
        body = self._block(node.body)
        return self._looped(node, ast.While(test, body, []), before, [])

    def _for(self, node: ast.For) -> list[ast.stmt]:
        if node.orelse:
            raise Untranslatable("a loop has an else")
        before = set(self.scope.bound)
        first, target, walked, stored = self._walked(node)
        before |= self.scope.bound - ({*before} | _names_in(node.target))
        body = [*stored, *self._block(node.body)]
        return [*first, *self._looped(node, ast.For(target, walked, body, []), before, stored)]

    def _looped(
        self, node: ast.For | ast.While, made: ast.For | ast.While, before: set[str], stored: Sequence[ast.stmt]
    ) -> list[ast.stmt]:
        inside, self.scope.bound = self.scope.bound, before
        if not has_to_run(node):
            return [made]
        surely = _names_in(node.target) if isinstance(node, ast.For) else set[str]()
        for each in node.body:
            if any(isinstance(inner, ast.Break | ast.Continue) for inner in ast.walk(each)):
                break
            surely |= _names_in(each)
        self.scope.bound = before | (surely & inside)
        flag = ast.Name(_RAN, ast.Store())
        made.body = [ast.Assign([flag], ast.Constant(True)), *made.body]
        ran = call("require", ast.Name(_RAN, ast.Load()))
        return [ast.Assign([flag], ast.Constant(False)), made, ast.Expr(ran)]

    def _walked(self, node: ast.For) -> tuple[list[ast.stmt], ast.expr, ast.expr, list[ast.stmt]]:
        """Return what stands before a loop, its target, what it runs over, and what begins each turn."""
        loop = self.scope.number_of(node)
        counter = f"turn_{loop}__"
        ranged = self._of.calls.ranged(node.iter)
        if ranged is not None:
            at = single(ast.Name(counter, ast.Load()), INT)
            return [], ast.Name(counter, ast.Store()), ranged, self._stored(node.target, at)
        sources, start = self._sources(node.iter)
        made: list[ast.stmt] = []
        elements, lengths = [], []
        for number, source in enumerate(sources):
            if source.form == "list" and any(_changes_lists(each) for each in node.body):
                raise Untranslatable("a list is changed while a loop runs over it")
            name = f"walked_{loop}_{number}__"
            made += self.scope.store(name, source)
            over, at_name = ast.Name(name, ast.Load()), ast.Name(counter, ast.Load())
            elements.append(self._element(self.scope.load(name), at_name))
            lengths.append(call("len", over))
        length = lengths[0]
        for other in lengths[1:]:
            length = call("least", length, other)
        value = elements[0] if len(elements) == 1 else packed_tuple(tuple(elements))
        if start is not None:
            number_of = call("add", ast.Name(counter, ast.Load()), start)
            value = packed_tuple((single(number_of, INT), value))
        walked = call("range", length)
        return made, ast.Name(counter, ast.Store()), walked, self._stored_parts(node.target, value)

    def _stored_parts(self, target: ast.expr, value: Typed) -> list[ast.stmt]:
        """Store an element in a target that may be nested, as in `for i, (a, b) in enumerate(zip(...))`."""
        if not isinstance(target, ast.Tuple) or not value.parts:
            return self._stored(target, value)
        if len(target.elts) != len(value.parts):
            raise Untranslatable("something is unpacked into another number of variables")
        both = zip(target.elts, value.parts, strict=True)
        return [made for inner, part in both for made in self._stored_parts(inner, part)]

    def _sources(self, node: ast.expr) -> tuple[list[Typed], ast.expr | None]:
        """Return what a loop runs over side by side, and the number that `enumerate` begins with."""
        name = self._of.calls.name(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in ("enumerate", "zip"):
            if name == "enumerate" and 1 <= len(node.args) <= 2:
                start = self._of.whole(node.args[1]) if len(node.args) > 1 else ast.Constant(0)
                sources, inner = self._sources(node.args[0])
                if inner is None:
                    return sources, start
            elif name == "zip" and 1 < len(node.args) <= 4:
                return [self._source(each) for each in node.args], None
            raise Untranslatable("a loop runs over something that has no compiled form")
        return [self._source(node)], None

    def _source(self, node: ast.expr) -> Typed:
        found = self._of.translated(node)
        if found.form not in ("array", "tensor", "list", "listed", "text"):
            raise Untranslatable("a loop runs over something that has no compiled form")
        return found

    def _element(self, source: Typed, at: ast.expr) -> Typed:
        place = ast.Subscript(source.node, at, ast.Load())
        if is_array(source.kind):
            return self._of.element_at(source, [at], ast.Load())
        if source.form == "text":
            return single(place, LETTER)
        if not source.kind.inner:
            raise NotYet("an element")
        return single(place, source.kind.inner[0])

    def _return(self, node: ast.Return) -> list[ast.stmt]:
        value = single(ast.Constant(0), NONE) if node.value is None else self._of.translated(node.value)
        return [self.results.statement(value, node.value, self._body)]


def _give_up() -> ast.stmt:
    """Return a statement that leaves the rest to Python."""
    return ast.Raise(ast.Name("flatout_error", ast.Load()), None)


def _empty(kind: Kind) -> ast.expr:
    """Return an empty list whose kind shows in its making."""
    if not kind.inner:
        return ast.List([], ast.Load())
    element = kind.inner[0]
    inner: ast.expr = _empty(element) if element.name == "list" else _zero(element)
    none = call("range", ast.Constant(0))
    return ast.ListComp(inner, [ast.comprehension(ast.Name("none__", ast.Store()), none, [], 0)])


def _zero(kind: Kind) -> ast.expr:
    wanted = carried([kind])
    return ast.Constant({"int64": 0, "float64": 0.0, "bool": False}.get(wanted, 0))


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether what follows a block is never reached from its end."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue)


def _names_in(node: ast.AST) -> set[str]:
    """Return the variables that a statement or a target stores."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _changes_lists(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in ("append", "pop") for each in ast.walk(node))
