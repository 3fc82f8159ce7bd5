"""Copies that nothing needs, left out: `clone`, `repeat` along a dimension of one, a cast that is cast back.

A tensor stands for its copy where nothing in the project writes into tensors, and the function only reads it. What the
text does not show of it is asked when the script runs.
"""

import ast

from flatout.edits.cures.collected_pieces import collected
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.number_uses import TENSOR_METHODS
from flatout.edits.reading.source_file import Function
from flatout.edits.reading.writes.unwritten_tensors import is_only_read, written_somewhere
from flatout.edits.text_changes import TextChanges, fresh_name, operand
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["by_broadcast", "without_copy"]

_WIDE = ("torch.float64", "torch.double")
_SINGLE = ("torch.float32", "torch.float")
_NEW = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.MatMult  # none of which keeps its result for the backward pass


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
    return _without_cast(place, whole, given) if kind == "cast" else _without_clone(place, whole, given)


def _done(place: EditPlace, changes: TextChanges) -> WrittenEdit:
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _without_clone(place: EditPlace, whole: ast.expr, given: ast.expr) -> WrittenEdit:
    is_new = isinstance(given, ast.BinOp) and isinstance(given.op, _NEW)
    if not is_new and not (isinstance(given, ast.Name) and _is_handed(place, given.id)):
        return place.left(f"{ast.unparse(given)} may be kept by others, who write into it")
    reason = _read_alone(place, whole) or written_somewhere(place)
    if reason:
        return place.left(reason)
    changes = TextChanges(place.source)
    text, around = changes.text(given), place.source.parents[whole]
    if not is_new:
        text = f"{text} if type({text}) is torch.Tensor and {text}.is_contiguous() else {changes.text(whole)}"
    alone = isinstance(around, ast.Assign) or (isinstance(around, ast.Call) and around.func is not whole)
    changes.replace(whole, text if alone and "\n" not in text else f"({text})")
    return _done(place, changes)


def _without_cast(place: EditPlace, whole: ast.expr, given: ast.expr) -> WrittenEdit:
    """Write `x.double().float()` as the one copy that it is."""
    method = place.source.parents[whole]
    back = place.source.parents.get(method)
    single = isinstance(method, ast.Attribute) and isinstance(back, ast.Call) and back.func is method
    if not single or not isinstance(back, ast.Call) or not _is_single_cast(place, back):
        return place.left("what is cast is not cast back at once, and may be worked with in between")
    if not isinstance(given, ast.Name):
        return place.left("what is cast has no name of its own")
    changes = TextChanges(place.source)
    name = given.id
    asked = f"type({name}) is torch.Tensor and {name}.is_floating_point()"
    text = f"{name}.to(torch.float32, copy=True) if {asked} else {changes.text(back)}"
    changes.replace(back, text if isinstance(place.source.parents[back], ast.Assign) else f"({text})")
    return _done(place, changes)


def _is_single_cast(place: EditPlace, call: ast.Call) -> bool:
    name = last_name(call.func)
    if name == "float":
        return not call.args and not call.keywords
    return name == "to" and len(call.args) == 1 and place.source.names.dotted(call.args[0]) in _SINGLE


def by_broadcast(place: EditPlace) -> WrittenEdit:
    """Write `x.repeat(1, n)` as `x.expand(-1, n)`, which copies nothing; the copy of an expanded tensor goes."""
    if place.finding.argument("kind") != "repeat":
        return place.left("what is copied here is no repeated tensor")
    found = [node for node in ast.walk(place.statement) if isinstance(node, ast.Call) and _repeats(node)]
    method = found[0].func if len(found) == 1 else None
    if not isinstance(method, ast.Attribute):
        return place.left("a single repeat() of a tensor is not found on this line")
    (call,) = found
    uses = _uses(place, call)
    operations = [place.source.parents[each] for each in uses]
    if not uses or not all(isinstance(each, ast.BinOp) and not isinstance(each.op, ast.MatMult) for each in operations):
        return place.left("what is repeated is used for more than to meet other tensors element by element")
    reason = _read_alone(place, call) or _unsteady(place, call, method.value) or written_somewhere(place)
    if reason:
        return place.left(reason)
    changes = TextChanges(place.source)
    text = operand(changes, method.value)
    if method.attr == "repeat":
        text = _expanded(place, changes, call, method.value)
    inner = place.source.parents[call] in operations
    if not inner:
        changes.replace(call, text)
    for use, operation in zip(uses, operations, strict=True):
        assert isinstance(operation, ast.BinOp)
        if operation.left is use:  # the order in memory is that of the left one
            new = changes.text(operation)
            new = f"({text}){new.removeprefix(changes.text(call))}" if inner else new
            changes.replace(operation, f"({new}).contiguous()")
        elif inner:
            changes.replace(call, f"({text})")
    return _done(place, changes)


def _expanded(place: EditPlace, changes: TextChanges, call: ast.Call, value: ast.expr) -> str:
    """Return the expanded tensor where each dimension that is repeated has one row, else the repeated one."""
    given = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple) else call.args
    name = fresh_name(place.source, "single")
    changes.before(place.statement, f"{name} = {changes.text(value)}")
    asked = [f"type({name}) is torch.Tensor", f"{name}.dim() == {len(given)}", f"{name}.is_contiguous()"]
    for at, each in enumerate(given):
        if ast.unparse(each) != "1":
            asked += [f"{name}.size({at}) == 1", f"{changes.text(each)} >= 1"]
    sizes = ", ".join("-1" if ast.unparse(each) == "1" else changes.text(each) for each in given)
    repeated = ", ".join(changes.text(each) for each in given)
    return f"{name}.expand({sizes}) if {' and '.join(asked)} else {name}.repeat({repeated})"


def _unsteady(place: EditPlace, call: ast.Call, value: ast.expr) -> str:
    """Return what cannot be worked out twice, or a little earlier; "" for nothing."""
    is_first = isinstance(place.source.parents[call], ast.Assign)  # so that it is worked out where it was
    for node in (inner for each in ([] if is_first else [value], call.args) for one in each for inner in ast.walk(one)):
        if isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Attribute) and node.func.attr in TENSOR_METHODS | {"size", "dim"}
            if not known:
                return f"{ast.unparse(node.func)}() would be called more than once, or earlier"
        elif isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.Lambda):
            return f"{ast.unparse(node)} would run more than once, or earlier"
    return ""


def _uses(place: EditPlace, whole: ast.expr) -> list[ast.expr]:
    """Return where a value is used: at its place, or at those of the one name that it is bound to."""
    around = place.source.parents[whole]
    if not isinstance(around, ast.Assign):
        return [whole]
    if len(around.targets) != 1 or not isinstance(around.targets[0], ast.Name):
        return []
    name, scope = around.targets[0].id, place.source.scope(around)
    named = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == name]
    read = [each for each in named if isinstance(each.ctx, ast.Load)]
    is_own = len(named) == len(read) + 1 and all(place.source.scope(each) is scope for each in read)
    return list(read) if is_own else []


def _read_alone(place: EditPlace, whole: ast.expr) -> str:
    """Return why a copy may be needed by what is done with it, "" where it is only read."""
    uses = _uses(place, whole)
    if not uses:
        return "the copy is kept, or has a name that stands for something else, too"
    lost = next((each for each in uses if not is_only_read(place, each)), None)
    around = place.source.statement(lost) if lost is not None else None
    return f"`{ast.unparse(around)}` may write into the copy, or keep it" if around is not None else ""


def _is_handed(place: EditPlace, name: str) -> bool:
    """Return whether a variable is an argument of the function, or something that is worked out in it."""
    scope = place.source.scope(place.statement)
    if not isinstance(scope, Function):
        return False
    bound = [v for each in ast.walk(scope) for to, v in pairs(each) if isinstance(to, ast.Name) and to.id == name]
    given = [each for each in ast.walk(scope.args) if isinstance(each, ast.arg) and each.arg == name]
    return bool(given or bound) and all(isinstance(each, ast.BinOp | ast.Call) for each in bound)


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
