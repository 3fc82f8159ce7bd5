"""Copies that nothing needs, left out: `clone`, `repeat` along a dimension of one, a cast that is cast back."""

import ast
from collections.abc import Iterator

from flatout.edits.cures.collected_pieces import collected
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.in_place import changed_in_place, is_in_place
from flatout.edits.text_changes import TextChanges, operand
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_broadcast", "without_copy"]

_WIDE = ("torch.float64", "torch.double")
_KEEPS = {"append", "appendleft", "add", "extend", "insert", "update", "put", "setdefault"}
_VIEWS = {  # methods and functions of torch's that may give back the memory that they are given
    "view", "reshape", "view_as", "reshape_as", "transpose", "permute", "t", "unsqueeze", "squeeze", "flatten",
    "unflatten", "narrow", "select", "chunk", "split", "unbind", "tensor_split", "hsplit", "vsplit", "expand",
    "expand_as", "broadcast_to", "detach", "contiguous", "to", "float", "double", "half", "bfloat16", "type",
    "type_as", "cpu", "cuda", "real", "imag", "diagonal", "movedim", "swapaxes", "swapdims", "unfold", "as_strided",
    "numpy", "atleast_1d", "atleast_2d", "dropout", "requires_grad_", "unsafe_chunk", "unsafe_split", "ravel",
    "alias", "positive",
}  # fmt: skip


def without_copy(place: EditPlace) -> WrittenEdit:
    """Leave out the copy on the finding's line."""
    kind = place.finding.argument("kind")
    if kind == "growing":
        return collected(place)
    wanted = {"clone": _clone, "cast": _wide_cast}.get(str(kind))
    nodes = [node for node in ast.walk(place.statement) if isinstance(node, ast.expr)]
    found = [(node, given) for node in nodes if wanted and (given := wanted(place, node)) is not None]
    if len(found) != 1:
        return place.left("a single copy of one tensor is not found on this line")
    ((whole, given),) = found
    reason = _refused(place, whole, given) if kind == "clone" else ""
    if reason:
        return place.left(reason)
    changes = TextChanges(place.source)
    around = place.source.parents[whole]
    stands_alone = isinstance(around, ast.Assign | ast.Call) and getattr(around, "func", None) is not whole
    changes.replace(whole, changes.text(given) if stands_alone else operand(changes, given))
    return WrittenEdit(changes.done(place.project), changed=1)


def by_broadcast(place: EditPlace) -> WrittenEdit:
    """Write `x.repeat(1, n)` as `x.expand(-1, n)`, which copies nothing; the copy of an expanded tensor goes."""
    if place.finding.argument("kind") != "repeat":
        return place.left("what is copied here is no repeated tensor")
    found = [node for node in ast.walk(place.statement) if isinstance(node, ast.Call) and _repeats(node)]
    method = found[0].func if len(found) == 1 else None
    if not isinstance(method, ast.Attribute):
        return place.left("a single repeat() of a tensor is not found on this line")
    (call,) = found
    changes = TextChanges(place.source)
    if method.attr != "repeat":
        changes.replace(call, operand(changes, method.value))
    else:
        given = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple) else call.args
        sizes = ["-1" if ast.unparse(each) == "1" else changes.text(each) for each in given]
        changes.replace(call, f"{operand(changes, method.value)}.expand({', '.join(sizes)})")
    return WrittenEdit(changes.done(place.project), changed=1)


def _repeats(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return False
    if node.func.attr == "repeat":
        given = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple) else node.args
        return len(given) > 1 and not any(isinstance(each, ast.Starred) for each in given)
    value = node.func.value
    expanded = isinstance(value, ast.Call) and last_name(value.func) in ("expand", "expand_as", "broadcast_to")
    return node.func.attr in ("clone", "contiguous") and not node.args and expanded


# -- copies -----------------------------------------------------------------------------------------------------------


def _clone(place: EditPlace, node: ast.AST) -> ast.expr | None:
    """Return what a call clones."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if place.source.names.dotted(node.func) == "torch.clone" and len(node.args) == 1:
        return node.args[0]
    method = isinstance(node.func, ast.Attribute) and node.func.attr == "clone" and not node.args
    return node.func.value if isinstance(node.func, ast.Attribute) and method else None


def _wide_cast(place: EditPlace, node: ast.AST) -> ast.expr | None:
    """Return what a call casts to float64."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    given = [*node.args, *(each.value for each in node.keywords if each.arg == "dtype")]
    if node.func.attr == "double" and not given:
        return node.func.value
    wide = len(given) == 1 and len(node.args) + len(node.keywords) == 1
    wide = wide and place.source.names.dotted(given[0]) in _WIDE
    return node.func.value if node.func.attr in ("to", "type") and wide else None


# -- where a copy may be needed ---------------------------------------------------------------------------------------


def _refused(place: EditPlace, whole: ast.expr, given: ast.expr) -> str:
    """Return what may write into one side of a copy, or keep it, "" where nothing is seen that does."""
    scope = place.source.scope(place.statement)
    around = place.source.parents[whole]
    if isinstance(around, ast.Return | ast.Yield | ast.Tuple | ast.List | ast.Dict):
        return "the copy is returned or kept, and others may write into it"
    if isinstance(around, ast.Attribute) and around.attr.endswith("_"):
        return f"{around.attr}() writes into the copy"
    names = {each.id for each in ast.walk(given) if isinstance(each, ast.Name)} - {"self"}
    if isinstance(around, ast.Assign) and not all(isinstance(each, ast.Name) for each in around.targets):
        return "the copy is kept in something else"
    for target, value in pairs(place.statement):
        names |= {target.id} if isinstance(target, ast.Name) and value is whole else set()
    names = _aliases(place, scope, names)
    for name in sorted(names):
        if changed_in_place([scope], name):
            return f"{name} may be written to in this function"
    kept = next(_keeping(place, scope, names, whole), "")
    if kept:
        return kept
    text = ast.unparse(given)
    parts = [node for node in ast.walk(scope) if isinstance(node, ast.Attribute | ast.Subscript)]
    written = [each for each in parts if isinstance(each.ctx, ast.Store) or is_in_place(getattr(each, "attr", ""))]
    return (
        f"{text} may be written to in this function"
        if any(ast.unparse(each).startswith(text) for each in written)
        else ""
    )


def _aliases(place: EditPlace, scope: ast.AST, names: set[str]) -> set[str]:
    """Return the names that may stand for the memory of one of `names`: parts, other shapes, what calls give back."""
    found, size = set(names), -1
    while size != len(found):
        size = len(found)
        for node in ast.walk(scope):
            for target, value in pairs(node):
                if isinstance(target, ast.Name) and _may_alias(place, value, found):
                    found.add(target.id)
    return found


def _may_alias(place: EditPlace, node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        return _may_alias(place, node.value, names)
    if isinstance(node, ast.IfExp):
        return _may_alias(place, node.body, names) or _may_alias(place, node.orelse, names)
    return isinstance(node, ast.Call) and _may_give_back(place, node, names)


def _may_give_back(place: EditPlace, call: ast.Call, names: set[str]) -> bool:
    """Return whether a call may give back memory of what it is given: a view, a module that does nothing."""
    function = call.func
    is_torch = place.source.names.dotted(function).startswith("torch.")
    if isinstance(function, ast.Attribute) and _may_alias(place, function.value, names):
        return function.attr in _VIEWS or is_in_place(function.attr)
    if not any(_may_alias(place, each, names) for each in call.args):
        return False
    made = attribute_values(place.project, place.source, function)
    layers = [isinstance(each, ast.Call) and _is_layer(source.names.dotted(each.func)) for source, each in made]
    return last_name(function) in _VIEWS if is_torch else not (layers and all(layers))


def _is_layer(dotted: str) -> bool:
    """Return whether a module of torch's gives new memory in any case."""
    kinds = ("Linear", "Conv", "BatchNorm", "LayerNorm", "GroupNorm", "LSTM", "GRU", "MultiheadAttention", "Embedding")
    return dotted.startswith("torch.nn.") and any(each in dotted for each in kinds)


def _keeping(place: EditPlace, scope: ast.AST, names: set[str], whole: ast.expr) -> Iterator[str]:
    """Yield what may write into one of the names, or keeps it, when this function hands it on."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            parts = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else [node.value]
            if any(_may_alias(place, each, names) for each in parts):
                yield "the copy, or what it is of, is returned, and others may write into it"
        held = [each for each in getattr(node, "targets", ()) if not isinstance(each, ast.Name | ast.Tuple)]
        if isinstance(node, ast.Assign) and held and _may_alias(place, node.value, names):
            yield f"{ast.unparse(held[0])} keeps it"
        if isinstance(node, ast.Call) and any(each is whole or _may_alias(place, each, names) for each in node.args):
            yield from _written_by(place, node)


def _written_by(place: EditPlace, call: ast.Call) -> Iterator[str]:
    """Yield why a call may write into what it is given."""
    name = last_name(call.func)
    if name in _KEEPS:
        yield f"{ast.unparse(call.func)}() keeps it"
    for _, value in attribute_values(place.project, place.source, call.func):
        if any(
            each.arg == "inplace" for node in ast.walk(value) if isinstance(node, ast.Call) for each in node.keywords
        ):
            yield f"{ast.unparse(call.func)} works in place"
    for _, function in place.project.functions.get(name, ()):
        given = [each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)]
        if any(changed_in_place(function.body, each) for each in given):
            yield f"{name}() may write into it"
