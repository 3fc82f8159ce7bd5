"""Expressions followed through the kinds of their values (`PlainKind`): what is not known is not proven to be plain.

Variables that are bound elsewhere are asked about when the script runs: `asked` are those that must then be a tensor,
an array or a model. All containers that are met are made by the work itself, since nothing that is asked about holds
any: only tensors and arrays can be of others. One kind, `_stored`, stands for whatever any of the containers holds.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import (
    ATTRIBUTES,
    PlainKind,
    is_constant,
    is_plain_constant,
)
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["AskedVariable", "PlainValues", "ReadBody", "Unproven"]

NUMBER, OWN, PLAIN = PlainKind
_MODEL_ITERATORS = frozenset({"parameters", "named_parameters"})
_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Unproven(Exception):
    """Something may do more than to compute; the message says what."""


@dataclass(frozen=True)
class AskedVariable:
    """A variable of the work that the work does not bind."""

    name: str


_Value = PlainKind | AskedVariable
_Items = PlainKind | tuple[PlainKind, ...]


@dataclass
class ReadBody:
    """One function, or the work itself, while it is read: kinds of all its variables, and those surely bound."""

    source: SourceFile
    locals: set[str]
    kinds: dict[str, _Value] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    result: PlainKind = PlainKind.NUMBER


class PlainValues:
    """Reads expressions; what they call is read by the classes made from this one.

    Attributes:
        asked: what the variables from outside are used as: "tensor", "array", "number", "model"; "sure" where one is
            read in any case, so that it is bound.
        reached: the user's functions that are called.
    """

    def __init__(self, project: Project, home: ReadBody) -> None:
        """Read nothing yet; `home`: the work itself."""
        self._project, self._home = project, home
        self.asked: dict[str, set[str]] = {}
        self.reached: dict[Function, ReadBody] = {}
        self._stored, self._depth = NUMBER, 0

    def _call(self, body: ReadBody, node: ast.Call) -> PlainKind:
        raise NotImplementedError

    # -- variables ----------------------------------------------------------------------------------------------

    def _bind(self, body: ReadBody, target: ast.expr, value: _Value, of: ast.expr | None = None) -> None:
        match target:
            case ast.Name():
                self._set(body, target.id, value)
                body.bound.add(target.id)
            case ast.Tuple() | ast.List():
                parts = of.elts if isinstance(of, ast.Tuple | ast.List) and len(of.elts) == len(target.elts) else None
                for at, each in enumerate(target.elts):
                    kind = self._kind(body, parts[at]) if parts else self._item(self._plain(value, "tensor"))
                    self._bind(body, each, kind, parts[at] if parts else None)
            case ast.Subscript():
                if self._kind(body, target.value) > OWN:
                    raise Unproven(f"{ast.unparse(target)} may be changed for others")
                self._index(body, target.slice)
                self._store(self._plain(value))
            case _:
                raise Unproven(f"{ast.unparse(target)} is changed")

    def _set(self, body: ReadBody, name: str, value: _Value) -> None:
        known = body.kinds.get(name, value)
        if known != value:
            value = max(self._plain(known), self._plain(value))
        body.kinds[name] = value

    def _store(self, kind: PlainKind) -> None:
        self._stored = max(self._stored, kind)

    def _item(self, kind: PlainKind) -> PlainKind:
        """Return the kind of an item of something."""
        return max(kind, self._stored) if kind != NUMBER else NUMBER

    def _plain(self, value: _Value, use: str = "number") -> PlainKind:
        """Return a kind; a variable of outside is asked to be what it is used as."""
        if isinstance(value, PlainKind):
            return value
        self.asked[value.name].add(use)
        return PLAIN

    def _name(self, body: ReadBody, node: ast.Name) -> _Value:
        if node.id in body.kinds and node.id in body.bound:
            value = body.kinds[node.id]
        elif node.id in body.locals:
            raise Unproven(f"{node.id} may be unbound, or as an earlier turn left it")
        elif is_builtin(body.source, node, ("int", "float", "bool")) or _is_constant_of_module(body.source, node.id):
            return NUMBER
        else:
            is_seen = body is self._home or _is_of_module_alone(body.source, node.id)
            if node.id not in body.source.names.bound or not is_seen or body.source is not self._home.source:
                raise Unproven(f"{node.id} is not known to be a plain value")
            value = AskedVariable(node.id)
        if isinstance(value, AskedVariable):
            uses = self.asked.setdefault(value.name, set())
            uses |= {"sure"} if self._depth == 0 else set()
        return value

    def _index(self, body: ReadBody, node: ast.expr) -> None:
        match node:
            case ast.Tuple():
                for each in node.elts:
                    self._index(body, each)
            case ast.Slice():
                for part in (node.lower, node.upper, node.step):
                    if part is not None:
                        self._kind(body, part)
            case _:
                self._kind(body, node)

    # -- expressions --------------------------------------------------------------------------------------------

    def _kind(self, body: ReadBody, node: ast.expr, use: str = "number") -> PlainKind:
        return self._plain(self._value(body, node, use), use)

    def _value(self, body: ReadBody, node: ast.expr, use: str = "number") -> _Value:
        match node:
            case ast.Constant():
                return NUMBER
            case ast.Name():
                return self._name(body, node)
            case ast.Call():
                return self._call(body, node)
            case ast.Attribute():
                return self._attribute(body, node)
            case ast.Subscript():
                kind = self._kind(body, node.value, "tensor")
                self._index(body, node.slice)
                return self._item(kind)
            case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                return self._container(body, node, use)
        parts = list(_parts(node))
        if not parts:
            raise Unproven(f"{ast.unparse(node)} may do more than to compute")
        kinds = [self._kind(body, parts[0], use), *self._kinds_of_rest(body, node, parts[1:], use)]
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.UnaryOp):  # one of them, or itself
            return max(kinds)
        return NUMBER if max(kinds) == NUMBER or isinstance(node, ast.JoinedStr) else OWN

    def _container(self, body: ReadBody, node: ast.expr, use: str) -> PlainKind:
        """Read a list, tuple, set or dictionary as it is shown."""
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                for each in node.elts:
                    self._store(self._kind(body, each, use))
            case ast.Dict():
                for key in (*node.keys, *node.values):
                    if key is None:
                        raise Unproven(f"{ast.unparse(node)} may do more than to compute")
                    self._store(self._kind(body, key))
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                self._store(self._comprehension(body, node))
        return OWN

    def _kinds_of_rest(
        self, body: ReadBody, node: ast.expr, parts: Sequence[ast.expr], use: str
    ) -> Iterator[PlainKind]:
        """Yield the kinds of further operands, which may be left out at run time."""
        is_seldom = isinstance(node, ast.IfExp | ast.BoolOp | ast.Compare)
        for at, each in enumerate(parts):
            leaves = is_seldom and not (isinstance(node, ast.Compare) and at == 0)
            self._depth += leaves
            yield self._kind(body, each, use)
            self._depth -= leaves

    def _attribute(self, body: ReadBody, node: ast.Attribute) -> PlainKind:
        dotted = body.source.names.dotted(node)
        if dotted:
            if not is_plain_constant(dotted):
                raise Unproven(f"{dotted} is not known to be a plain value")
            return NUMBER
        if node.attr not in ATTRIBUTES:
            raise Unproven(f"reading {ast.unparse(node)} may do something")
        self._kind(body, node.value, "tensor")
        return ATTRIBUTES[node.attr]

    def _comprehension(self, body: ReadBody, node: _COMPREHENSION) -> PlainKind:
        """Return the kind of what a comprehension yields; its variables are its own."""
        kinds, bound, depth = dict(body.kinds), set(body.bound), self._depth
        own = {each.id for part in node.generators for each in ast.walk(part.target) if isinstance(each, ast.Name)}
        for at, part in enumerate(node.generators):
            items = self._items(body, part.iter)
            if at == 0:
                body.kinds = {name: kind for name, kind in kinds.items() if name not in own}
                body.bound = bound - own
                self._depth += 1
            self._bind_items(body, part.target, items)
            for test in part.ifs:
                self._kind(body, test)
            if part.is_async:
                raise Unproven(f"{ast.unparse(node)} waits")
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        kind = max(self._kind(body, each) for each in parts)
        body.kinds = {name: known for name, known in body.kinds.items() if name not in own}
        body.kinds |= {name: kinds[name] for name in own & kinds.keys()}
        body.bound, self._depth = bound, depth
        return kind

    # -- what is walked through -----------------------------------------------------------------------------------

    def _items(self, body: ReadBody, node: ast.expr) -> _Items:
        """Return the kinds of what a loop over an expression walks through: several, where each item is a tuple."""
        if isinstance(node, ast.GeneratorExp):
            return self._comprehension(body, node)
        if isinstance(node, ast.Call) and not node.keywords:
            if is_builtin(body.source, node.func, ("enumerate", "zip", "reversed")):
                return self._items_of_builtin(body, node)
            if isinstance(node.func, ast.Attribute) and node.func.attr in _MODEL_ITERATORS and not node.args:
                model = self._value(body, node.func.value)
                if not isinstance(model, AskedVariable):
                    raise Unproven(f"{ast.unparse(node.func.value)} is not known to be a model")
                self.asked[model.name].add("model")
                return PLAIN if node.func.attr == "parameters" else (NUMBER, PLAIN)
        return self._item(self._kind(body, node, "tensor"))

    def _items_of_builtin(self, body: ReadBody, node: ast.Call) -> _Items:
        parts = [self._items(body, each) for each in node.args]
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "zip":
            return tuple(map(self._flat, parts))
        if len(parts) != 1:
            raise Unproven(f"{ast.unparse(node)} is not known")
        return (NUMBER, self._flat(parts[0])) if name == "enumerate" else parts[0]

    def _flat(self, items: _Items) -> PlainKind:
        """Return the kind of one item; a tuple holds others."""
        if isinstance(items, PlainKind):
            return items
        for each in items:
            self._store(each)
        return OWN

    def _bind_items(self, body: ReadBody, target: ast.expr, items: _Items) -> None:
        is_tuple = isinstance(target, ast.Tuple | ast.List) and not isinstance(items, PlainKind)
        if is_tuple and len(target.elts) == len(items):  # type: ignore[attr-defined, arg-type]
            for one, kind in zip(target.elts, items, strict=True):  # type: ignore[attr-defined, arg-type]
                self._bind(body, one, kind)
        else:
            self._bind(body, target, self._flat(items))


def _is_of_module_alone(source: SourceFile, name: str) -> bool:
    """Return whether a name is a variable of the first level, and of no function."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.arg) and node.arg == name:
            return False
        is_set = isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        if is_set and source.scope(node) is not source.tree:
            return False
    return name not in bound_as_words([source.tree])


def _is_constant_of_module(source: SourceFile, name: str) -> bool:
    """Return whether a name is bound once in its file, to a number or a text, at the first level."""
    stored = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == name]
    stored = [node for node in stored if not isinstance(node.ctx, ast.Load)]
    given = any(isinstance(node, ast.arg) and node.arg == name for node in ast.walk(source.tree))
    made = [each for each in source.tree.body if isinstance(each, ast.Assign) and each.targets == stored]
    return bool(made) and not given and name not in bound_as_words([source.tree]) and is_constant(made[0].value)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the operands of an expression that reads nothing else."""
    match node:
        case ast.BinOp():
            yield from (node.left, node.right)
        case ast.UnaryOp():
            yield node.operand
        case ast.BoolOp() | ast.JoinedStr():
            yield from node.values
        case ast.Compare():
            yield from (node.left, *node.comparators)
        case ast.IfExp():
            yield from (node.test, node.body, node.orelse)
        case ast.FormattedValue():
            yield from (node.value, *([node.format_spec] if node.format_spec else []))
