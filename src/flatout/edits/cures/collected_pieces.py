"""Pieces that a loop adds to a growing tensor, collected in a list and joined once behind the loop.

Each piece is copied where it is added: who fills its memory anew changes no tensor that was joined, either. The script
joins a piece at once, as it is written, unless it is a plain tensor (or array) of the type, place and shape of the
others: so errors come when they came, and types grow as they grew.
"""

import ast
from dataclasses import dataclass

from flatout.edits.cures.asked_forms import name_of_module, unasked
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, in_generator
from flatout.edits.reading.error_handlers import seen_around
from flatout.edits.reading.lists.hidden_access import seen_by_name
from flatout.edits.reading.source_file import Function
from flatout.edits.reading.training_loops import switches_gradients
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["collected"]

_JOINS = {"torch.cat", "torch.concat", "torch.concatenate", "numpy.concatenate"}
_Loop = ast.For | ast.While


@dataclass(frozen=True)
class _Joined:
    """`whole = torch.cat([whole, *pieces], ...)`."""

    statement: ast.Assign
    call: ast.Call
    whole: str
    pieces: list[ast.expr]
    dim: int


def collected(place: EditPlace) -> WrittenEdit:
    """Collect what is joined piece by piece on the finding's line, or in the loop that begins there."""
    within = place.statement.body if isinstance(place.statement, _Loop) else [place.statement]
    found = [one for each in within for node in ast.walk(each) if (one := _joined(place, node)) is not None]
    if len(found) != 1:
        return place.left("a line `whole = torch.cat([whole, piece])` is not found here")
    one = found[0]
    loop = next((each for each in place.source.above(one.statement) if isinstance(each, _Loop | Function)), None)
    if not isinstance(loop, _Loop) or loop.orelse:
        return place.left("it stands in no loop of its function")
    between = next(each for each in place.source.above(one.statement) if each is loop or not isinstance(each, ast.If))
    if between is not loop:
        return place.left("a block around the line, and not around the loop, may change what joining does")
    reason = _refused(place, one, loop)
    if reason:
        return place.left(reason)
    against = unasked(place, one.statement, shown=False, uses=("all", "len", "type"))
    if against:
        return place.left(against)
    return _with_list(place, one, loop)


def _with_list(place: EditPlace, one: _Joined, loop: _Loop) -> WrittenEdit:
    changes = TextChanges(place.source)
    name = fresh_name(place.source, f"{one.whole}_pieces")
    added = fresh_name(place.source, f"added_to_{one.whole}")
    rest = "".join(f", {changes.text(each)}" for each in one.call.args[1:])
    rest += "".join(f", {each.arg}={changes.text(each.value)}" for each in one.call.keywords)
    join, parts = changes.text(one.call.func), ", ".join(changes.text(each) for each in one.pieces)
    of_torch = place.source.names.dotted(one.call.func).startswith("torch.")
    module = name_of_module(place, "torch" if of_torch else "numpy")
    alike, copied = _alike(module, f"{name}[0]", one.dim, of_torch=of_torch)
    changes.before(loop, f"{name} = []")
    changes.before(
        one.statement,
        f"{added} = [{parts}]",
        f"if {name} and all({alike} for each in {added}):",
        f"    {name}.extend([{copied} for each in {added}])",
        "else:",
        f"    {one.whole} = {join}([*{name}, *{added}] if {name} else [{one.whole}, *{added}]{rest})",
    )
    changes.replace(one.statement, f"    {name} = [{one.whole}]")
    changes.after(loop, f"if len({name}) > 1:", f"    {one.whole} = {join}({name}{rest})")
    at = place.project.sources.index(place.source)
    project = changes.done(place.project)
    return WrittenEdit(with_import(project, at, module) if module in ("torch", "numpy") else project, changed=1)


def _alike(module: str, first: str, dim: int, *, of_torch: bool) -> tuple[str, str]:
    """Return when a piece, `each`, may be joined later, and how it is copied."""
    ends = [f"[:{dim}]" if dim else "", f"[{dim + 1}:]" if dim != -1 else ""]
    shapes = " and ".join(f"each.shape{end} == {first}.shape{end}" for end in ends if end)
    if of_torch:
        plain = (
            f"type(each) is type({first}) is {module}.Tensor and each.dtype is {first}.dtype"
            f" and each.device == {first}.device and each.layout is {first}.layout is {module}.strided"
            f" and each.dim() == {first}.dim() > 0"
        )
        return f"{plain} and {shapes}", "each.clone()"
    plain = (
        f"type(each) is type({first}) is {module}.ndarray and each.dtype == {first}.dtype"
        f" and each.flags.c_contiguous and {first}.flags.c_contiguous and each.ndim == {first}.ndim > 0"
    )
    return f"{plain} and {shapes}", "each.copy()"


def _joined(place: EditPlace, node: ast.AST) -> _Joined | None:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
        return None
    target, call = node.targets[0], node.value
    if not isinstance(target, ast.Name) or place.source.names.dotted(call.func) not in _JOINS or not call.args:
        return None
    parts = call.args[0]
    if not isinstance(parts, ast.List | ast.Tuple) or len(parts.elts) < 2 or ast.unparse(parts.elts[0]) != target.id:
        return None
    named = {each.arg: each.value for each in call.keywords}
    if named.keys() - {"dim", "axis"} or any(isinstance(each, ast.Starred) for each in parts.elts):
        return None
    given = [*call.args[1:], *named.values()]
    dim = _number(given[0]) if given else 0
    return _Joined(node, call, target.id, parts.elts[1:], dim) if len(given) < 2 and dim is not None else None


def _number(node: ast.expr) -> int | None:
    """Return the number that stands there, None where it is something else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return -inner if inner is not None else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _refused(place: EditPlace, one: _Joined, loop: _Loop) -> str:
    """Return why the pieces cannot be joined behind the loop, "" where they can."""
    source, whole = place.source, one.whole
    inside = [node for node in ast.walk(loop) if isinstance(node, ast.Name) and node.id == whole]
    own = [node for node in ast.walk(one.statement) if isinstance(node, ast.Name) and node.id == whole]
    if len(inside) != len(own) or len(own) != 2:
        return f"{whole} is read or bound in the loop, too"
    leaving = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
    if any(isinstance(node, leaving) for node in ast.walk(loop)):
        return "the loop may be left before its end"
    scope = source.scope(loop)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global | ast.Nonlocal) and whole in node.names:
            return f"{whole} is a name of other functions, too"
        if isinstance(node, ast.Name) and node.id == whole and _is_seen(source.scope(node), scope, source.above(node)):
            return f"{whole} is read by a function that the loop may call"
    if in_generator(scope, whole):
        return f"{whole} is read by a generator that the loop may walk"
    seen = seen_by_name(place.project, whole) or seen_around(place.source, loop) or switches_gradients(place.project)
    return seen or ("" if _is_bound_before(place, whole, loop) else f"no line above the loop binds {whole}")


def _is_seen(other: ast.AST, scope: ast.AST, above: object) -> bool:
    """Return whether a name in another scope may stand for that of `scope`: in a function inside it."""
    return other is not scope and any(each is scope for each in above)  # type: ignore[attr-defined]


def _is_bound_before(place: EditPlace, whole: str, loop: _Loop) -> bool:
    """Return whether a statement of the loop's block, or of one around it, binds the name by a call above the loop."""
    statement: ast.AST = loop
    while isinstance(statement, ast.stmt) and not isinstance(statement, Function | ast.ClassDef):
        block = block_of(place.source, statement)
        for each in block[: block.index(statement)]:
            if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == whole for t in each.targets):
                return isinstance(each.value, ast.Call)
        statement = place.source.parents[statement]
    return False
