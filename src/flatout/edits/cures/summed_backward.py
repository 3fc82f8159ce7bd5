"""Several backward passes over one graph, made one: `torch.autograd.backward([loss_a, loss_b])`.

The engine walks the graph once for all of them, and adds up what meets. A sum of the losses would do the same and count
as one loss where there were several; the list keeps each as it is, of whatever shape.
"""

import ast
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.error_handlers import caught_at
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.gradient_reads import gradient_hook, leaves_block, touches_gradients
from flatout.edits.reading.writes.changed_meanings import changed_meaning
from flatout.edits.reading.writes.writes_between import writes_between
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["in_one_pass"]

_VALUES = {"mean", "sum", "scale", "to", "float", "squeeze"}  # of a loss, that change nothing


@dataclass(frozen=True)
class _Pass:
    """A statement that does nothing but `loss.backward(...)`."""

    statement: ast.stmt
    loss: ast.expr
    retains: bool  # the graph, whatever happens


def in_one_pass(place: EditPlace) -> WrittenEdit:
    """Make one backward pass of those that stand beside the one of the finding, or of those of its loop."""
    one = _pass(place.statement)
    if one is None:
        return place.left("this line is not loss.backward() alone, without gradients of its own")
    hook = gradient_hook(place.project)
    if hook:
        return place.left(f"{hook} may look at the gradients of each pass by itself")
    seen = _seen_apart(place)
    if seen:
        return place.left(seen)
    passes = _beside(place, one)
    if len(passes) > 1:
        return _joined(place, passes)
    return _after_loop(place, one)


def _seen_apart(place: EditPlace) -> str:
    """Return what may tell one pass from two, "" for nothing."""
    project = place.project
    meaning = changed_meaning(project)
    if meaning:
        return meaning
    if "backward" in project.functions:
        return "backward() of the user's may do something in each pass, or be no sum"
    for name in ("checkpoint", "inplace=True", "__dict__", "__getattribute__"):
        if name in project.mentions:
            return f"{name} may tell one pass from two"
    for source, function in (each for known in project.functions.values() for each in known):
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
            touched = touches_gradients(project, [function])
            if touched:
                return source.at(function, f"{touched} may run between the passes")
    caught = caught_at(project, place.source, place.statement)
    return f"an error between the passes might be caught by {caught}" if caught else ""


def _is_lazy(place: EditPlace, walked: ast.expr) -> bool:
    """Return whether a loop walks over what is worked out turn by turn: a generator, `map`."""
    parts = [each for each in ast.walk(walked) if isinstance(each, ast.Name)]
    bound = [value for node in ast.walk(place.source.tree) for target, value in pairs(node)
             if isinstance(target, ast.Name) and target.id in {each.id for each in parts}]  # fmt: skip
    lazy = ("map", "filter", "iter", "starmap", "chain")
    called = [each.func for each in (*bound, walked) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.GeneratorExp) for each in (*bound, *ast.walk(walked))) or any(
        isinstance(each, ast.Name | ast.Attribute) and last_name(each) in lazy for each in called
    )


def _is_used(place: EditPlace, loop: ast.For) -> bool:
    """Return whether the variable of a loop is read outside of it."""
    inside, names = {*ast.walk(loop)}, stores([loop.target])
    nodes = ast.walk(place.source.scope(loop))
    return any(isinstance(each, ast.Name) and each.id in names and each not in inside for each in nodes)


def _pass(statement: ast.stmt) -> _Pass | None:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
        return None
    given = dict(zip(("gradient", "retain_graph", "create_graph", "inputs"), call.args, strict=False))
    given |= {each.arg or "**": each.value for each in call.keywords}
    retain = given.pop("retain_graph", None)
    others = [value for value in given.values() if not (isinstance(value, ast.Constant) and not value.value)]
    if others or not _is_value(call.func.value):
        return None
    return _Pass(statement, call.func.value, isinstance(retain, ast.Constant) and retain.value is True)


def _is_value(node: ast.expr) -> bool:
    """Return whether an expression does nothing but read names, so that it can be worked out a little later."""
    allowed = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    methods = all(isinstance(call.func, ast.Attribute) and call.func.attr in _VALUES for call in calls)
    return methods and all(isinstance(each, (*allowed, ast.Call, ast.expr_context)) for each in ast.walk(node))


# -- in one block -----------------------------------------------------------------------------------------------------


def _beside(place: EditPlace, one: _Pass) -> list[_Pass]:
    """Return the passes of the block of `one` between which nothing reads gradients or weights."""
    block = block_of(place.source, one.statement)
    at = block.index(one.statement)
    before = _run(place, block[:at][::-1])[::-1]
    return [*before, one, *_run(place, block[at + 1 :])]


def _run(place: EditPlace, statements: list[ast.stmt]) -> list[_Pass]:
    found = []
    for statement in statements:
        one = _pass(statement)
        if one is not None:
            found.append(one)
            continue
        seen = touches_gradients(place.project, [statement]) or writes_between(place.project, place.source, [statement])
        if seen or leaves_block([statement]):
            break
    return found


def _joined(place: EditPlace, passes: list[_Pass]) -> WrittenEdit:
    """Write the passes as one, in the place of the last."""
    block = block_of(place.source, place.statement)
    changes = TextChanges(place.source)
    names: list[str] = []
    last = passes[-1]
    for each in passes[:-1]:
        between = block[block.index(each.statement) + 1 : block.index(last.statement)]
        if _adds_to(between, each.loss):
            return place.left(f"{ast.unparse(each.loss)} is changed in place between the passes")
        if not isinstance(each.loss, ast.Name) or loads([each.loss]) & stores(between):
            name = fresh_name(place.source, f"loss_{len(names) + 1}")
            changes.replace(each.statement, f"{name} = {changes.text(each.loss)}")
            names.append(name)
        else:
            changes.remove(each.statement)
            names.append(changes.text(each.loss))
    losses = ", ".join([*names, changes.text(last.loss)])
    changes.replace(last.statement, _backward(f"[{losses}]", last))
    return _done(place, changes)


def _adds_to(statements: list[ast.stmt], loss: ast.expr) -> bool:
    added = [node.target for each in statements for node in ast.walk(each) if isinstance(node, ast.AugAssign)]
    return bool({ast.unparse(each) for each in added} & {ast.unparse(node) for node in ast.walk(loss)})


def _backward(losses: str, last: _Pass) -> str:
    return f"torch.autograd.backward({losses}{', retain_graph=True' if last.retains else ''})"


def _done(place: EditPlace, changes: TextChanges) -> WrittenEdit:
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


# -- in a loop --------------------------------------------------------------------------------------------------------


def _after_loop(place: EditPlace, one: _Pass) -> WrittenEdit:
    """Collect the losses of a loop, and make one pass behind it."""
    loop = place.source.parents[one.statement]
    if not isinstance(loop, ast.For | ast.While) or one.statement not in loop.body or loop.orelse:
        return place.left("no other backward pass stands beside it in the same block")
    if isinstance(loop, ast.For) and _is_lazy(place, loop.iter):
        return place.left(f"{ast.unparse(loop.iter)} may run code between the passes")
    others = [each for each in loop.body if each is not one.statement]
    touched = touches_gradients(place.project, [*others, *([loop.test] if isinstance(loop, ast.While) else [])])
    if touched:
        return place.left(f"{touched} may read or change gradients or weights between the passes")
    returns = ast.Return | ast.Yield | ast.YieldFrom | ast.Await
    written = writes_between(
        place.project, place.source, [*others, loop.iter if isinstance(loop, ast.For) else loop.test]
    )
    if written:
        return place.left(f"{written} may change something that a later pass reads, or read what an earlier one made")
    if any(isinstance(node, returns) for each in others for node in ast.walk(each)):
        return place.left("the loop may be left between its passes")
    if _adds_to(others, one.loss):
        return place.left(f"{ast.unparse(one.loss)} is changed in place from turn to turn")
    changes = TextChanges(place.source)
    is_target = isinstance(loop, ast.For) and ast.unparse(loop.target) == ast.unparse(one.loss)
    if not others and isinstance(loop, ast.For) and is_target and not _is_used(place, loop):
        changes.replace(loop, _backward(f"list({changes.text(loop.iter)})", one))
        return _done(place, changes)
    name = fresh_name(place.source, "losses")
    changes.before(loop, f"{name} = []")
    changes.replace(one.statement, f"{name}.append({changes.text(one.loss)})")
    changes.after(loop, _backward(name, one))
    return _done(place, changes)
