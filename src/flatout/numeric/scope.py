"""Variables of code under translation: what each may hold, where its arrays come from, and whether it has a value."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flatout.numeric.arithmetic import Untranslatable, converted
from flatout.numeric.kinds import (
    BOOL,
    FLOAT,
    INT,
    LETTER,
    NUMPY_BOOL,
    Kind,
    is_array,
    is_float,
    is_whole,
    list_of,
    number,
)

__all__ = [
    "FLOAT64",
    "TAGS",
    "NotYet",
    "Typed",
    "Variable",
    "VariableScope",
    "as_carried",
    "carried",
    "carrier",
    "joined",
    "packed_tuple",
    "single",
    "tag_of",
]

FLOAT64 = Kind("number", "f8")
_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8", "b1")
TAGS: dict[Kind, int] = {kind: tag for tag, kind in enumerate((INT, FLOAT, BOOL, *filter(None, map(number, _NUMBERS))))}
"""Numbers by which compiled code tells which kind a value has, where it may have one of several."""


_SEVERAL = Kind("several")


class NotYet(Exception):
    """A variable is read of which no kind is known yet: what is stored in it is translated further down."""


@dataclass(frozen=True)
class Typed:
    """An expression: what it may be, which of it (`tag`, where that is more than one), parts of a tuple.

    `origins`: the arguments whose memory an array is part of; `whole`: it is one of them, not a part of it.
    """

    node: ast.expr
    kinds: frozenset[Kind]
    tag: ast.expr | None = None
    parts: tuple["Typed", ...] = ()
    origins: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def kind(self) -> Kind:
        """Return its only kind.

        Raises:
            Untranslatable: it has several.
        """
        if len(self.kinds) != 1:
            raise Untranslatable("a value is a whole number or has a fraction, as it comes")
        return next(iter(self.kinds))

    @property
    def form(self) -> str:
        """Return what it is, numbers of several kinds being numbers: the name of its kind."""
        return next(iter(self.kinds)).name

    @property
    def tagged(self) -> ast.expr:
        """Return the number of its kind."""
        return self.tag if self.tag is not None else ast.Constant(TAGS.get(self.kind, 0))


def single(node: ast.expr, kind: Kind) -> Typed:
    """Return an expression of one kind."""
    return Typed(node, frozenset({kind}))


def carried(kinds: Iterable[Kind]) -> str:
    """Return the machine's type that holds all of `kinds`, "" for what is no number.

    Raises:
        Untranslatable: none holds them all.
    """
    several = frozenset(kinds)
    if all(map(is_whole, several)):
        return "int64"
    if several <= {BOOL} or several <= {NUMPY_BOOL}:
        return "bool"
    if all(is_whole(kind) or (is_float(kind) and kind.dtype != "f4") for kind in several):
        return "float64"
    if len(several) == 1:
        return "float32" if is_float(next(iter(several))) else ""
    raise Untranslatable("a variable holds things of different kinds")


def carrier(value: Typed) -> Kind:
    """Return a kind that is carried as all that a value may be; that of its operations with others is the same."""
    if len(value.kinds) == 1:
        return next(iter(value.kinds))
    return INT if carried(value.kinds) == "int64" else FLOAT


def packed_tuple(parts: tuple[Typed, ...]) -> Typed:
    """Return a tuple of several values."""
    kind = Kind("tuple", inner=tuple(part.kind if len(part.kinds) == 1 else _SEVERAL for part in parts))
    return Typed(ast.Tuple([part.node for part in parts], ast.Load()), frozenset({kind}), parts=parts)


def joined(kinds: Iterable[Kind]) -> frozenset[Kind]:
    """Return what a variable may hold that is given all of `kinds`: empty lists are lists of what others hold.

    Raises:
        Untranslatable: no variable of compiled code holds them all.
    """
    found = frozenset(kinds)
    lists = [kind for kind in found if kind.name == "list"]
    if len(found) > 1 and is_array(next(iter(found))) and len({(kind.name, *_type_of(kind)) for kind in found}) == 1:
        first = next(iter(found))
        return frozenset({Kind(first.name, *_type_of(first), "A")})
    if not lists:
        carried(found)
        return found
    inner = joined(element for kind in lists for element in kind.inner) if any(kind.inner for kind in lists) else ()
    if len(lists) != len(found):
        raise Untranslatable("a variable holds a list and something else")
    if len(inner) > 1:
        raise Untranslatable("a list holds numbers of different kinds")
    return frozenset({list_of(next(iter(inner), None))})


def _type_of(kind: Kind) -> tuple[str, int]:
    return kind.dtype, kind.ndim


@dataclass
class Variable:
    """What is known of one variable."""

    kinds: frozenset[Kind] = frozenset()
    origins: frozenset[str] = frozenset()
    whole: bool = True  # every array in it is one of the arguments


@dataclass
class VariableScope:
    """The variables of one function; `changed` says that something new was learnt of them in this pass."""

    variables: dict[str, Variable] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)  # arguments whose memory is written to
    changed: bool = False
    final: bool = False
    numbers: dict[int, int] = field(default_factory=dict)

    def number_of(self, node: ast.AST) -> int:
        """Return a number for a node of Python's tree, the same in every pass: for the names of what is made of it."""
        return self.numbers.setdefault(id(node), len(self.numbers))

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Kind]) -> "VariableScope":
        """Return the scope in which a function begins."""
        scope = cls()
        for name, kind in arguments.items():
            origins = frozenset({name}) if is_array(kind) else frozenset[str]()
            scope.variables[name] = Variable(frozenset({kind}), origins)
            scope.bound.add(name)
        return scope

    def load(self, name: str) -> Typed:
        """Return the variable `name` as it is read.

        Raises:
            NotYet, Untranslatable: it has no kind yet, or may have no value.
        """
        found = self.variables.get(name)
        if found is None or not found.kinds:
            raise NotYet(name)
        if self.final and name not in self.bound:
            raise Untranslatable(f"{name} may have no value")
        node = ast.Name(name, ast.Load())
        tag = ast.Name(tag_of(name), ast.Load()) if len(found.kinds) > 1 else None
        parts: tuple[Typed, ...] = ()
        kind = next(iter(found.kinds))
        if kind.name == "tuple":
            at = (ast.Subscript(node, ast.Constant(place), ast.Load()) for place in range(len(kind.inner)))
            parts = tuple(single(part, inner) for part, inner in zip(at, kind.inner, strict=True))
        return Typed(node, found.kinds, tag, parts, found.origins, found.whole)

    def learn(self, name: str, value: Typed) -> Variable:
        """Note that `value` is stored in a variable."""
        if any(_SEVERAL in kind.inner for kind in value.kinds):
            raise Untranslatable("a tuple is kept whose parts are of one kind or another, as it comes")
        variable = self.variables.setdefault(name, Variable())
        kinds = joined([*variable.kinds, *value.kinds])
        same = not variable.kinds or (variable.whole and value.origins == variable.origins)
        whole = value.whole and same
        origins = variable.origins | value.origins
        if (kinds, origins, whole) != (variable.kinds, variable.origins, variable.whole):
            self.changed = True
            variable.kinds, variable.origins, variable.whole = kinds, origins, whole
        return variable

    def store(self, name: str, value: Typed) -> list[ast.stmt]:
        """Return the statements that store `value` in a variable."""
        variable = self.learn(name, value)
        self.bound.add(name)
        made = [_assign(name, as_carried(value, carried(variable.kinds)))]
        if len(variable.kinds) > 1:
            made.append(_assign(tag_of(name), value.tagged))
        return made


def tag_of(name: str) -> str:
    """Return the variable that says which kind another one has."""
    return f"{name}__kind__"


def as_carried(value: Typed, wanted: str) -> ast.expr:
    """Return a value in the machine's type `wanted`; whole numbers become floats only where that is exact."""
    if not wanted or carried(value.kinds) == wanted:
        return value.node
    kind = LETTER if not value.kinds else next(iter(value.kinds))
    if wanted == "float64" and is_whole(kind):
        node = value.node
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) <= 2**53:
            return ast.Constant(float(node.value))
        return ast.Call(ast.Name("flatout_exact64", ast.Load()), [node], [])
    return converted(value.node, value.kind, wanted)


def _assign(name: str, node: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], node)
