"""Whether what is done with a value only reads it, so that others may have the same object.

A part of an array or tensor is the same memory: it has to end in something new (`torch.tensor(x[a:b])`, arithmetic,
`.copy()`), wherever it goes until then. What is returned, kept in an object, or handed to a function that is not known
counts as changed.
"""

import ast
from collections.abc import Iterable, Iterator

from flatout.edits.cures.kept_files.value_kinds import ATOM, DEEP, Value, ValueKind
from flatout.edits.reading.effects.pure_calls import IN_PLACE_METHODS, MAKERS, is_pure_builtin, words
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["SharedUses"]

_FACTS = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "device", "width", "height", "mode", "itemsize"})
_SAME_MEMORY = words(
    "reshape ravel transpose squeeze unsqueeze view view_as permute swapaxes contiguous t flatten float double long "
    "int half bool byte short to type type_as numpy chunk split narrow unbind diag diagonal expand expand_as real cpu "
    "movedim tensor_split unfold unflatten detach conj select where reshape_as broadcast_to bfloat16 cuda char "
)
_TO_NEW = frozenset({"torch.tensor", "numpy.array", "numpy.copy", "torch.stack", "torch.cat", "numpy.stack",
                     "numpy.concatenate", "torch.nn.functional.one_hot"})  # fmt: skip
_SAME_THING = frozenset({"torch.from_numpy", "torch.as_tensor", "numpy.asarray", "numpy.ascontiguousarray"})
_READ_BY = ("random.choice", "random.sample", "random.choices", "collections.Counter", "json.dumps", "bisect.")
_NEW_METHODS = MAKERS - {"diagonal"} | words("copy clone astype tolist item clip clamp repeat abs max min amax amin")
_OF_IMAGE = words("crop resize convert rotate transpose getpixel copy")
_TOLD = words("numel dim ne eq lt gt le ge")
_OF_TABLE = words("get keys values items index count copy")
_FLAT = (ValueKind.LIST, ValueKind.TABLE)
_READING = ast.Compare | ast.FormattedValue | ast.If | ast.While | ast.Assert | ast.Expr | ast.Slice
_BINDING = ast.Assign | ast.AnnAssign | ast.For | ast.comprehension
_HOLDING = ast.List | ast.Tuple | ast.ListComp | ast.GeneratorExp | ast.Dict | ast.DictComp
_MOST = 12  # names that are followed, one after the other


class SharedUses:
    """What a project does with values that several places would share."""

    def __init__(self, project: Project, names: NameKinds) -> None:
        """Take the project as it is now."""
        self._project, self._names = project, names

    def change_of(self, source: SourceFile, name: str, value: Value, scope: ast.AST, without: Iterable[ast.AST]) -> str:
        """Return what may change a value that a variable stands for, "" where it is only read outside of `without`."""
        inside = {inner for each in without for inner in ast.walk(each)}
        return next(self._of_name(source, name, value, scope, inside, _MOST), "")

    def change_at(self, source: SourceFile, node: ast.expr, value: Value) -> str:
        """Return what may change the value of an expression where it stands, "" where it is only read."""
        return next(self._use(source, node, value, _MOST), "")

    # -- names --------------------------------------------------------------------------------------------------

    def _of_name(
        self, source: SourceFile, name: str, value: Value, scope: ast.AST, inside: set[ast.AST], most: int
    ) -> Iterator[str]:
        if value.kind is ValueKind.ATOM:
            return
        if most == 0:
            yield f"{name} goes further than is followed"
            return
        for node in ast.walk(scope):
            if not isinstance(node, ast.Name) or node.id != name or node in inside:
                continue
            above = source.parents[node]
            if isinstance(above, ast.AugAssign) and above.target is node:
                yield f"`{ast.unparse(above)}` changes {name}"
            elif isinstance(node.ctx, ast.Load):
                inner = _functions_within(source, node, scope)
                if any(_is_local(each, name) for each in inner):
                    continue  # another variable
                if inner and not isinstance(scope, ast.Module):
                    yield f"{name} is read by a function in this one"
                yield from self._use(source, node, value, most)

    def _targets(self, source: SourceFile, target: ast.expr, value: Value, within: ast.AST, most: int) -> Iterator[str]:
        """Yield what may change a value that is bound to a target, or to several."""
        if value.kind is ValueKind.ATOM:
            return
        if isinstance(target, ast.Name):
            shared = (each.names for _, each in self._project.nodes(ast.Global, ast.Nonlocal))
            if any(target.id in names for names in shared):
                yield f"{target.id} is a name of other functions, too"
            yield from self._of_name(source, target.id, value, within, {target}, most - 1)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.items if len(value.items) == len(target.elts) else [value.item] * len(target.elts)
            for each, part in zip(target.elts, parts, strict=True):
                yield from self._targets(source, each, part, within, most)
        else:
            yield f"it is kept in {ast.unparse(target)}"

    # -- one place ----------------------------------------------------------------------------------------------

    def _use(self, source: SourceFile, node: ast.expr, value: Value, most: int) -> Iterator[str]:
        """Yield what is done with the value of an expression that is no reading."""
        above = source.parents[node]
        if value.kind is ValueKind.ATOM or isinstance(above, _READING):
            return
        if isinstance(above, ast.Subscript):
            yield from self._item(source, node, above, value, most)
        elif isinstance(above, ast.Attribute):
            yield from self._attribute(source, above, value, most)
        elif isinstance(above, ast.Call | ast.keyword):
            call = source.parents[above] if isinstance(above, ast.keyword) else above
            assert isinstance(call, ast.Call)
            yield from self._given(source, call, value, most)
        elif isinstance(above, _BINDING):
            yield from self._bound(source, above, value, most)
        elif isinstance(above, ast.expr):
            yield from self._within(source, node, above, value, most)
        elif not (isinstance(above, ast.AugAssign) and _only_adds(above, value)):
            yield f"`{ast.unparse(source.statement(node)).splitlines()[0]}` hands it on"

    def _within(self, source: SourceFile, node: ast.expr, above: ast.expr, value: Value, most: int) -> Iterator[str]:
        """Yield what becomes of a value in an expression that may have it, or a part of it."""
        if isinstance(above, ast.BinOp):
            if not _makes_new(above, value):
                yield from self._use(source, above, DEEP, most)
        elif isinstance(above, ast.UnaryOp):
            yield from self._use(source, above, value, most) if isinstance(above.op, ast.UAdd) else ()
        elif isinstance(above, ast.BoolOp) or (isinstance(above, ast.IfExp) and node is not above.test):
            yield from self._use(source, above, value, most)
        elif isinstance(above, _HOLDING):
            yield from self._use(source, above, DEEP, most)
        elif not isinstance(above, ast.IfExp) and not (isinstance(above, ast.Starred) and value.kind in _FLAT):
            yield f"`{ast.unparse(source.statement(node)).splitlines()[0]}` hands it on"

    def _bound(self, source: SourceFile, above: ast.AST, value: Value, most: int) -> Iterator[str]:
        """Yield what is done with a value, or its items, under another name."""
        scope: ast.AST = source.scope(above)
        if isinstance(above, ast.Assign):
            for target in above.targets:
                yield from self._targets(source, target, value, scope, most)
        elif isinstance(above, ast.AnnAssign):
            yield from self._targets(source, above.target, value, scope, most)
        elif isinstance(above, ast.For | ast.comprehension):
            within = source.parents[above] if isinstance(above, ast.comprehension) else scope
            yield from self._targets(source, above.target, value.item, within, most)

    def _item(self, source: SourceFile, node: ast.expr, above: ast.Subscript, value: Value, most: int) -> Iterator[str]:
        if above.slice is node:
            return
        if not isinstance(above.ctx, ast.Load):
            yield f"`{ast.unparse(source.statement(above))}` changes it"
        elif value.is_numeric:
            yield from self._use(source, above, Value(ValueKind.VIEW), most)
        elif value.kind is ValueKind.DEEP:
            whole = isinstance(above.slice, ast.Slice)
            yield from self._use(source, above, value if whole else _part(value, above.slice), most)

    def _attribute(self, source: SourceFile, above: ast.Attribute, value: Value, most: int) -> Iterator[str]:
        call = source.parents[above]
        if isinstance(call, ast.Call) and call.func is above:
            yield from self._method(source, call, above.attr, value, most)
        elif not isinstance(above.ctx, ast.Load):
            yield f"`{ast.unparse(source.statement(above))}` changes it"
        elif above.attr in ("T", "mT") and value.is_numeric:
            yield from self._use(source, above, Value(ValueKind.VIEW), most)
        elif above.attr not in _FACTS:
            yield f"{ast.unparse(above)} may be part of it"

    def _method(self, source: SourceFile, call: ast.Call, name: str, value: Value, most: int) -> Iterator[str]:
        shown = f"{ast.unparse(call.func)}()"
        if name in self._project.functions or name.endswith("_") or name in IN_PLACE_METHODS - {"fill"}:
            if not (value.kind in _FLAT and name in ("index", "count")):
                yield f"{shown} may change it"
        elif value.is_numeric:
            yield from self._of_numbers(source, call, name, most)
        elif value.kind is ValueKind.IMAGE:
            yield from [] if name in _OF_IMAGE else [f"{shown} may change it"]
        elif value.kind is ValueKind.DEEP and name in ("clone", "tolist", "item"):
            return
        elif name not in _OF_TABLE and not (value.kind is ValueKind.DEEP and name in _SAME_MEMORY - {"split"}):
            yield f"{shown} may change it"
        elif value.kind is ValueKind.DEEP:
            yield from self._use(source, call, value if name in ("items", "values") else DEEP, most)

    def _of_numbers(self, source: SourceFile, call: ast.Call, name: str, most: int) -> Iterator[str]:
        """Yield what a method of an array or a tensor does with its memory."""
        if name in _NEW_METHODS | _TOLD and not any(each.arg in ("out", "copy", "inplace") for each in call.keywords):
            return
        if name in _SAME_MEMORY:
            yield from self._use(source, call, Value(ValueKind.VIEW), most)
        else:
            yield f"{ast.unparse(call.func)}() may give or change the same memory"

    def _given(self, source: SourceFile, call: ast.Call, value: Value, most: int) -> Iterator[str]:
        """Yield what a function does with a value that it is given."""
        dotted = source.names.dotted(call.func)
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if dotted:
            yield from self._given_to_library(source, call, dotted, value, most)
        elif not isinstance(call.func, ast.Name) or self._names.kind(source, call.func) is not NameKind.BUILTIN:
            yield f"{ast.unparse(call.func)}() is given it"
        elif name in ("len", "print", "str", "repr", "float", "int", "bool", "range", "isinstance"):
            return
        elif not is_pure_builtin(name) or name in ("map", "filter"):
            yield f"{name}() is given it"
        elif value.kind not in _FLAT:
            yield from self._use(source, call, _through(name, value), most)

    def _given_to_library(
        self, source: SourceFile, call: ast.Call, dotted: str, value: Value, most: int
    ) -> Iterator[str]:
        of_torch, is_deep = dotted.startswith("torch."), value.kind is ValueKind.DEEP
        told = any(each.arg in ("copy", "out", "like") for each in call.keywords)
        if dotted in _TO_NEW and not told and (not is_deep or of_torch or _typed(call)):
            return
        if value.kind is ValueKind.IMAGE and dotted in ("numpy.array", "torchvision.transforms.functional.to_tensor"):
            return
        if dotted in _SAME_THING:
            is_copied = value.kind in (*_FLAT, ValueKind.IMAGE) or (is_deep and not value.opaque and of_torch)
            yield from (
                () if is_copied else self._use(source, call, Value(ValueKind.VIEW) if value.is_numeric else value, most)
            )
        elif value.kind not in _FLAT and dotted in ("random.choice", "random.sample", "random.choices"):
            yield from self._use(source, call, value.item if dotted == "random.choice" else DEEP, most)
        elif not (value.kind in _FLAT and dotted.startswith((*_READ_BY, "math."))):
            yield f"{ast.unparse(call.func)}() is given it"


def _makes_new(node: ast.BinOp, value: Value) -> bool:
    """Return whether an operator gives something that has no part of a value."""
    return value.is_numeric or value.kind in _FLAT or isinstance(node.op, ast.Sub | ast.Div | ast.Pow | ast.FloorDiv)


def _only_adds(node: ast.AugAssign, value: Value) -> bool:
    """Return whether `x += value` takes nothing of it; a list would take the rows of an array."""
    return value.kind in _FLAT or (value.is_numeric and not isinstance(node.op, ast.Add))


def _part(value: Value, at: ast.expr) -> Value:
    if len(value.items) > 1 and isinstance(at, ast.Constant) and isinstance(at.value, int):
        return value.items[at.value] if -1 <= at.value < len(value.items) else DEEP
    return value.item


def _through(name: str, value: Value) -> Value:
    """Return what a function of Python's hands on of the items of a value."""
    if name == "enumerate":
        return Value(ValueKind.DEEP, (Value(ValueKind.DEEP, (ATOM, value.item)),))
    return DEEP if name == "zip" or not value.is_numeric else Value(ValueKind.VIEW)


def _typed(call: ast.Call) -> bool:
    return any(each.arg == "dtype" and last_name(each.value) not in ("object", "object_") for each in call.keywords)


def _functions_within(source: SourceFile, node: ast.AST, scope: ast.AST) -> list[Function | ast.Lambda]:
    """Return the functions between a node and the scope around it."""
    found: list[Function | ast.Lambda] = []
    for above in source.above(node):
        if above is scope:
            break
        if isinstance(above, Function | ast.Lambda):
            found.append(above)
    return found


def _is_local(function: Function | ast.Lambda, name: str) -> bool:
    """Return whether a name is a variable of a function's own."""
    nodes = [*ast.walk(function)]
    if any(isinstance(each, ast.Global | ast.Nonlocal) and name in each.names for each in nodes):
        return False
    if any(isinstance(each, ast.arg) and each.arg == name for each in nodes):
        return True
    stored = [each for each in nodes if isinstance(each, ast.Name) and each.id == name]
    return any(not isinstance(each.ctx, ast.Load) for each in stored)
