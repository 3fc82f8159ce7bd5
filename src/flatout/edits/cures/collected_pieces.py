"""Pieces that a loop adds to a growing tensor, collected in a list and joined once behind the loop."""

import ast
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads, stores
from flatout.edits.reading.in_place import changed_in_place
from flatout.edits.reading.source_file import Function
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

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
    changes = TextChanges(place.source)
    name = fresh_name(place.source, f"{one.whole}_pieces")
    changes.before(loop, f"{name} = [{one.whole}]")
    pieces = [changes.text(each) for each in one.pieces]
    added = f"{name}.append({pieces[0]})" if len(pieces) == 1 else f"{name}.extend([{', '.join(pieces)}])"
    changes.replace(one.statement, added)
    rest = "".join(f", {changes.text(each)}" for each in one.call.args[1:])
    rest += "".join(f", {each.arg}={changes.text(each.value)}" for each in one.call.keywords)
    changes.after(loop, f"{one.whole} = {changes.text(one.call.func)}({name}{rest})")
    return WrittenEdit(changes.done(place.project), changed=1)


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
    return _Joined(node, call, target.id, parts.elts[1:])


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
    if not _is_bound_before(place, whole, loop):
        return f"no line above the loop binds {whole} whenever the loop runs"
    names = loads(one.pieces) | loads([*one.call.args[1:], *(each.value for each in one.call.keywords)])
    changed = next((name for name in sorted(names) if changed_in_place([loop], name)), "")
    if changed:
        return f"{changed} may be written to after it was added"
    options = loads([*one.call.args[1:], *(each.value for each in one.call.keywords)])
    return f"{min(options & stores([loop]))} is another one in each turn" if options & stores([loop]) else ""


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
