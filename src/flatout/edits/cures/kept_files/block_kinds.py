"""The kinds of the values in a block of statements that reads a file, one statement after the other."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence

from flatout.edits.cures.kept_files.call_kinds import MOVES, CallKinds, changed_by
from flatout.edits.cures.kept_files.file_reads import file_read
from flatout.edits.cures.kept_files.value_kinds import ATOM, DEEP, NUMBER, UNKNOWN, Value, ValueKind, joined
from flatout.edits.reading.effects.fresh_values import root_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["RETURNED", "BlockKinds", "Unkept", "not_followed"]

_FLAT = (ValueKind.ATOM, ValueKind.LIST, ValueKind.TABLE)
_SAME = frozenset({"T", "mT"})
_FACTS = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "width", "height", "mode", "device", "name", "stem",
                    "suffix", "parent", "n_frames", "format", "itemsize"})  # fmt: skip
_DEPTH = 3  # functions of the user's within one another
RETURNED = "return"
"""What stands for the value that a block returns."""

Known = dict[str, Value]


class Unkept(Exception):
    """What a block does cannot be kept, with the reason."""


class BlockKinds:
    """Follows values through statements, with the functions of the user's that they call."""

    def __init__(
        self, project: Project, source: SourceFile, names: NameKinds, constant: Callable[[SourceFile, str], Value]
    ) -> None:
        """`constant`: what a variable of a module is, UNKNOWN where it may change."""
        self.project, self.source, self.names = project, source, names
        self._constant = constant
        self._depth = 0
        self._calls = CallKinds(project, source, names, self.of, self.called)
        self._expressions: Mapping[type[ast.expr], Callable[..., Value]] = {
            ast.Constant: _constant,
            ast.JoinedStr: _constant,
            ast.Compare: self._compared,
            ast.Name: self._name,
            ast.Call: self._calls.of,
            ast.Subscript: self._part,
            ast.Attribute: self._attribute,
            ast.BinOp: self._arithmetic,
            ast.UnaryOp: self._signed,
            ast.IfExp: self._either,
            ast.BoolOp: self._either,
        }
        self._statements: Mapping[type[ast.stmt], Callable[..., None]] = {
            ast.Assign: self._assigned,
            ast.AnnAssign: self._assigned,
            ast.AugAssign: self._added,
            ast.With: self._opened,
            ast.For: self._repeated,
            ast.If: self._branched,
            ast.Return: self._returned,
            ast.Expr: self._called_alone,
            ast.Pass: _nothing,
        }

    def run(self, statements: Iterable[ast.stmt], known: Known) -> None:
        """Add what statements bind to `known`.

        Raises:
            Unkept: one of them is of no kind that is followed.
        """
        for each in statements:
            follow = self._statements.get(type(each))
            if follow is None:
                raise Unkept(not_followed(each))
            follow(each, known)

    def of(self, node: ast.expr, known: Mapping[str, Value]) -> Value:
        """Return what an expression gives."""
        return self._expressions.get(type(node), self._container)(node, known)

    # -- expressions --------------------------------------------------------------------------------------------

    def _name(self, node: ast.Name, known: Mapping[str, Value]) -> Value:
        if node.id in known:
            return known[node.id]
        kind = self.names.kind(self.source, node)
        if kind is NameKind.VARIABLE or (kind is NameKind.IMPORT and node.id in self.source.names.imports):
            return self._constant(self.source, node.id)
        return UNKNOWN

    def _part(self, node: ast.Subscript, known: Mapping[str, Value]) -> Value:
        whole = self.of(node.value, known)
        if whole.kind in (ValueKind.NPY, ValueKind.LAZY) and file_of(self, node.value):
            return Value(ValueKind.MEMBER)
        if isinstance(node.slice, ast.Slice) and whole.kind in (*_FLAT, ValueKind.DEEP):
            return whole
        if len(whole.items) > 1 and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return whole.items[node.slice.value] if -1 <= node.slice.value < len(whole.items) else UNKNOWN
        return UNKNOWN if whole.kind is ValueKind.LAZY else Value(ValueKind.VIEW) if whole.is_numeric else whole.item

    def _attribute(self, node: ast.Attribute, known: Mapping[str, Value]) -> Value:
        if self.source.names.dotted(node):
            library = self.source.names.dotted(node).startswith(("torch.", "numpy.", "string.", "math.", "PIL."))
            return ATOM if library else UNKNOWN
        whole = self.of(node.value, known)
        if node.attr in _SAME and whole.is_numeric:
            return whole
        return ATOM if node.attr in _FACTS and whole.kind is not ValueKind.UNKNOWN and not whole.opaque else UNKNOWN

    def _signed(self, node: ast.UnaryOp, known: Mapping[str, Value]) -> Value:
        inner = ATOM if isinstance(node.op, ast.Not) else self.of(node.operand, known)
        return Value(ValueKind.ARRAY) if inner.is_numeric and inner.kind is not ValueKind.TENSOR else _plain(inner)

    def _either(self, node: ast.IfExp | ast.BoolOp, known: Mapping[str, Value]) -> Value:
        first, *others = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
        found = self.of(first, known)
        for each in others:
            found = joined(found, self.of(each, known))
        return found

    def _compared(self, node: ast.Compare, known: Mapping[str, Value]) -> Value:
        parts = [self.of(each, known) for each in (node.left, *node.comparators)]
        if all(isinstance(each, ast.In | ast.NotIn | ast.Is | ast.IsNot) for each in node.ops):
            return ATOM
        numeric = next((each for each in parts if each.is_numeric), None)
        if numeric is not None and len(node.ops) == 1:
            return Value(ValueKind.TENSOR if numeric.kind is ValueKind.TENSOR else ValueKind.ARRAY)
        return ATOM if all(each.kind in _FLAT or each == DEEP for each in parts) else UNKNOWN

    def _arithmetic(self, node: ast.BinOp, known: Mapping[str, Value]) -> Value:
        both = [self.of(node.left, known), self.of(node.right, known)]
        if any(each.kind in (ValueKind.LAZY, ValueKind.UNKNOWN) or each.opaque for each in both):
            return UNKNOWN
        if isinstance(node.op, ast.Mod) and both[0].kind is ValueKind.ATOM and not both[1].is_numeric:
            return ATOM
        for each in both:
            if each.is_numeric:
                return Value(ValueKind.TENSOR if each.kind is ValueKind.TENSOR else ValueKind.ARRAY)
        return joined(*both) if both[0].kind in _FLAT and both[1].kind in _FLAT else DEEP

    def _container(self, node: ast.expr, known: Mapping[str, Value]) -> Value:
        match node:
            case ast.List(elts=parts) | ast.Set(elts=parts):
                items = [self.of(each, known) for each in parts]
                return self._holding(ValueKind.LIST if isinstance(node, ast.List) else ValueKind.TABLE, items)
            case ast.Tuple(elts=parts):
                found = self._holding(ValueKind.ATOM, [self.of(each, known) for each in parts])
                return Value(found.kind, tuple(self.of(each, known) for each in parts))
            case ast.Dict(values=parts):
                return self._holding(ValueKind.TABLE, [self.of(each, known) for each in parts])
            case ast.ListComp(elt=one) | ast.SetComp(elt=one) | ast.GeneratorExp(elt=one):
                item = self.of(one, inner := self._looped(node.generators, known))
                if isinstance(node, ast.GeneratorExp):
                    return Value(ValueKind.LAZY, (item,)) if item.kind is not ValueKind.UNKNOWN else UNKNOWN
                is_table = isinstance(one, ast.Subscript) and self.of(one.value, inner).kind is ValueKind.TABLE
                return self._holding(
                    ValueKind.LIST if isinstance(node, ast.ListComp) else ValueKind.TABLE, [item], is_table
                )
            case ast.DictComp(value=one):
                return self._holding(ValueKind.TABLE, [self.of(one, self._looped(node.generators, known))])
        return UNKNOWN

    def _holding(self, flat: ValueKind, items: Sequence[Value], slots: bool = False) -> Value:
        if any(each.kind in (ValueKind.UNKNOWN, ValueKind.LAZY, ValueKind.NPY) for each in items):
            return UNKNOWN
        numbers = bool(items) and all(each.numbers for each in items)
        opaque = any(each.opaque for each in items)
        is_flat = all(each.kind is ValueKind.ATOM for each in items)
        return Value(flat if is_flat else ValueKind.DEEP, (), slots and is_flat, numbers, opaque)

    def _looped(self, generators: Sequence[ast.comprehension], known: Mapping[str, Value]) -> Known:
        inner = dict(known)
        for each in generators:
            bind(each.target, self.of(each.iter, inner).item, inner)
        return inner

    # -- statements ---------------------------------------------------------------------------------------------

    def _assigned(self, node: ast.Assign | ast.AnnAssign, known: Known) -> None:
        if node.value is None:
            raise Unkept(not_followed(node))
        value = self.of(node.value, known)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._bound(target, value, known)

    def _added(self, node: ast.AugAssign, known: Known) -> None:
        made = self.of(ast.BinOp(_loaded(node.target), node.op, node.value), known)
        self._bound(node.target, made, known)

    def _opened(self, node: ast.With, known: Known) -> None:
        for item in node.items:
            value = self.of(item.context_expr, known)
            if value.kind not in (ValueKind.LAZY, ValueKind.NPY):
                raise Unkept(f"`with {ast.unparse(item)}` may do more than to open a file")
            if item.optional_vars is not None:
                bind(item.optional_vars, value, known)
        self.run(node.body, known)

    def _repeated(self, node: ast.For, known: Known) -> None:
        if node.orelse:
            raise Unkept(not_followed(node))
        before = dict(known)
        for _ in range(2):
            bind(node.target, self.of(node.iter, known).item, known)
            self.run(node.body, known)
        known.update({name: joined(value, known[name]) for name, value in before.items()})

    def _branched(self, node: ast.If, known: Known) -> None:
        other = dict(known)
        self.run(node.body, known)
        self.run(node.orelse, other)
        known.update({name: joined(value, known.get(name, value)) for name, value in other.items()})

    def _returned(self, node: ast.Return, known: Known) -> None:
        known[RETURNED] = self.of(node.value, known) if node.value is not None else ATOM

    def _called_alone(self, node: ast.Expr, known: Known) -> None:
        if isinstance(node.value, ast.Call):
            self._changing(node.value, known)
        elif not isinstance(node.value, ast.Constant):
            raise Unkept(not_followed(node))

    def _bound(self, target: ast.expr, value: Value, known: Known) -> None:
        if isinstance(target, ast.Subscript):
            self._put_into(root_name(target), value, known)
        elif isinstance(target, ast.Attribute):
            raise Unkept(f"{ast.unparse(target)} is set")
        else:
            bind(target, value, known)

    def _put_into(self, name: str, value: Value, known: Known) -> None:
        whole = known.get(name, UNKNOWN)
        if whole.is_numeric:
            return
        if whole.kind not in (*_FLAT, ValueKind.DEEP) or value.kind in (
            ValueKind.UNKNOWN,
            ValueKind.LAZY,
            ValueKind.NPY,
        ):
            raise Unkept(f"what {name} holds is not known")
        is_first = whole == Value(ValueKind.LIST)  # an empty one
        numbers = value.numbers and (whole.numbers or is_first)
        is_flat = value.kind is ValueKind.ATOM and whole.kind is not ValueKind.DEEP
        kind = whole.kind if is_flat else ValueKind.DEEP
        known[name] = Value(kind, (), False, numbers, value.opaque or whole.opaque)

    def _changing(self, call: ast.Call, known: Known) -> None:
        """Follow a call whose value nobody takes: a method that changes a list of the block's, or moves a file."""
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in MOVES:
            if self.of(func.value, known).kind is ValueKind.LAZY:
                return
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in known:
            added = changed_by(func.attr, [self.of(each, known) for each in call.args])
            if added is not None:
                self._put_into(func.value.id, added, known)
                return
        raise Unkept(f"{ast.unparse(func)}() is not reading and decoding alone")

    # -- functions of the user's ----------------------------------------------------------------------------------

    def called(self, function: Function, source: SourceFile, given: Sequence[Value]) -> Value:
        """Return what a function of the user's gives for values in their order."""
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        *body, last = function.body
        is_plain = isinstance(function, ast.FunctionDef) and isinstance(last, ast.Return) and last.value is not None
        if not is_plain or len(given) > len(names) or self._depth == _DEPTH or function.decorator_list:
            return UNKNOWN
        plain = [ATOM if isinstance(each, ast.Constant) else UNKNOWN for each in function.args.defaults]
        known = dict(zip(reversed(names), reversed(plain), strict=False)) | dict(zip(names, given, strict=False))
        outer = BlockKinds(self.project, source, self.names, self._constant)
        outer._depth = self._depth + 1
        try:
            outer.run(body, known)
        except Unkept:
            return UNKNOWN
        assert isinstance(last, ast.Return) and last.value is not None
        return outer.of(last.value, known)


def file_of(kinds: BlockKinds, node: ast.expr) -> bool:
    """Return whether an item of an expression is that of a file which NumPy has opened."""
    read = file_read(kinds.source, kinds.names, node)
    return isinstance(node, ast.Name) or (read is not None and read.gives.kind is ValueKind.NPY)


def bind(target: ast.expr, value: Value, known: Known) -> None:
    """Bind a name, or several names to the parts of a value."""
    if isinstance(target, ast.Name):
        known[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List) and not any(isinstance(each, ast.Starred) for each in target.elts):
        parts = value.items if len(value.items) == len(target.elts) else [value.item] * len(target.elts)
        for each, part in zip(target.elts, parts, strict=True):
            bind(each, part, known)
    else:
        raise Unkept(f"{ast.unparse(target)} is bound in a way that is not followed")


def not_followed(node: ast.AST) -> str:
    """Return the reason that a statement is of no kind that is followed."""
    return f"`{ast.unparse(node).splitlines()[0]}` is not reading and decoding alone"


def _constant(node: ast.expr, known: Mapping[str, Value]) -> Value:
    return NUMBER if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else ATOM


def _nothing(node: ast.Pass, known: Known) -> None:
    pass


def _plain(value: Value) -> Value:
    return value if value.kind in (ValueKind.ATOM, ValueKind.TENSOR) else UNKNOWN


def _loaded(target: ast.expr) -> ast.expr:
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target
