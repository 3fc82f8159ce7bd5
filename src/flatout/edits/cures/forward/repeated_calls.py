"""The second call of a model on one batch, replaced by what the first one gave: `outputs.detach()`."""

import ast
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, is_plain, loads, stores
from flatout.edits.reading.gradient_flow import last_name, may_be_trained_on
from flatout.edits.reading.gradient_reads import gradient_hook
from flatout.edits.reading.graphs.number_uses import TENSOR_METHODS, NumberUses
from flatout.edits.reading.graphs.recorded_values import ENDING, WITHOUT_GRAPH, is_torch_function
from flatout.edits.reading.in_place import changed_in_place
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.training_loops import is_without_gradients
from flatout.edits.reading.weight_changes import changes_weights, keeps_state
from flatout.edits.reading.writes.still_models import changes_something, free_names, gives_other
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["with_earlier_outputs"]

_NO_GRADIENTS = ("no_grad", "inference_mode")
_NEW = frozenset(  # methods that give a tensor of their own
    ["argmax", "argmin", "max", "min", "mean", "sum", "softmax", "log_softmax", "sigmoid", "topk", "norm", "eq", "item"]
)
_SELDOM = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class _Pair:
    """Two calls that are written alike, and the statements between them."""

    first: ast.Call
    second: ast.Call
    before: ast.stmt  # the statement of the first call
    between: list[ast.AST]


def with_earlier_outputs(place: EditPlace) -> WrittenEdit:
    """Replace the call on the finding's line by the outputs of the same call above it."""
    if place.finding.argument("changed") != 0:
        return place.left("the weights may have changed since the first call, so its outputs are others")
    if place.finding.argument("marked") != 0:
        return place.left("the second call draws random numbers or counts in running statistics, as the next steps see")
    pair = _pair(place)
    if pair is None:
        return place.left("no call of the model that is written as this one is stands above it in the same function")
    reason = _refused(place, pair)
    if reason:
        return place.left(reason)
    changes = TextChanges(place.source)
    name = _bound_to(pair)
    if not name or name in stores(pair.between) or name in loads([pair.first]):
        if _calls_before(pair):
            return place.left("the line of the first call calls something else before it")
        name = fresh_name(place.source, "outputs")
        changes.before(pair.before, f"{name} = {changes.text(pair.first)}")
        changes.replace(pair.first, name)
    taken = _part(place, pair.second)
    part = changes.text(taken).removeprefix(changes.text(pair.second))
    used = place.source.parents[taken]
    is_new = isinstance(used, ast.Attribute) and used.attr in _NEW
    changes.replace(taken, f"{name}{part}.detach()" + ("" if is_new else ".clone()"))
    return WrittenEdit(changes.done(place.project), changed=1)


# -- the calls --------------------------------------------------------------------------------------------------------


def _pair(place: EditPlace) -> _Pair | None:
    """Return a call on the finding's line and the nearest one above it that is written alike."""
    scope = place.source.scope(place.statement)
    calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call) and is_plain(node.func)]
    here = [each for each in calls if place.source.statement(each) is place.statement]
    for second in here:
        above = [each for each in calls if ast.dump(each) == ast.dump(second) and each.lineno < second.lineno]
        for first in sorted(above, key=lambda each: -each.lineno):
            between = _between(place, place.source.statement(first))
            if between is not None:
                return _Pair(first, second, place.source.statement(first), between)
    return None


def _between(place: EditPlace, before: ast.stmt) -> list[ast.AST] | None:
    """Return what runs between a statement and the finding's; None where that may run without the other before it."""
    block = block_of(place.source, before)
    found: list[ast.AST] = []
    statement: ast.AST = place.statement
    while isinstance(statement, ast.stmt):
        own = block_of(place.source, statement)
        if own is block:
            return [*block[block.index(before) + 1 : block.index(statement)], *found]
        found = [*own[: own.index(statement)], *found]
        statement = place.source.parents[statement]
        if isinstance(statement, ast.If):
            found = [statement.test, *found]
        elif not (isinstance(statement, ast.With) and all(_is_switch(each.context_expr) for each in statement.items)):
            return None
    return None


def _is_switch(node: ast.expr) -> bool:
    return any(name in ast.unparse(node) for name in _NO_GRADIENTS)


def _bound_to(pair: _Pair) -> str:
    """Return the name that the first call's outputs are bound to, "" where more is done with them at once."""
    statement = pair.before
    alone = isinstance(statement, ast.Assign) and statement.value is pair.first and len(statement.targets) == 1
    target = statement.targets[0] if alone and isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def _calls_before(pair: _Pair) -> bool:
    """Return whether the line of the first call calls something before it, or may not call it at all."""
    inside = {*ast.walk(pair.first)}
    for node in ast.walk(pair.before):
        if isinstance(node, _SELDOM) and pair.first in ast.walk(node):
            return True
        around = isinstance(node, ast.Call) and pair.first in ast.walk(node)
        if isinstance(node, ast.Call) and node not in inside and not around and _is_before(node, pair.first):
            return True
    return False


def _is_before(node: ast.expr, other: ast.expr) -> bool:
    return (node.lineno, node.col_offset) < (other.lineno, other.col_offset)


def _part(place: EditPlace, call: ast.Call) -> ast.expr:
    """Return the part of what a call gives that is read: `model(x).logits`, `model(x)[0]`."""
    found: ast.expr = call
    while True:
        around = place.source.parents[found]
        asked = isinstance(around, ast.Attribute | ast.Subscript) and around.value is found
        called = isinstance(place.source.parents.get(around), ast.Call) and isinstance(around, ast.Attribute)
        if not asked or called or not isinstance(around, ast.expr):
            return found
        found = around


# -- where it may not be done -----------------------------------------------------------------------------------------


def _refused(place: EditPlace, pair: _Pair) -> str:
    """Return why the first outputs may not stand for the second ones, "" where they may."""
    if not isinstance(pair.before, ast.Assign | ast.AugAssign | ast.Expr | ast.AnnAssign):
        return "the line of the first call does more than to bind its outputs"
    names = loads([pair.first])
    bound = _bound_to(pair)
    for name in sorted(names | ({bound} if bound else set())):
        if changed_in_place(pair.between, name) or (name in names and name in stores([*pair.between, pair.before])):
            return f"{name} is bound anew or changed between the two calls"
    changed = changes_weights(place.project, [pair.before, *pair.between])
    if changed:
        return f"{changed} between the two calls may change weights"
    kept = keeps_state(place.project)
    if kept:
        return f"forward() writes {kept}, which tells one call from two"
    hook = gradient_hook(place.project) or ("a forward hook" if "forward_hook" in place.project.mentions else "")
    if hook:
        return f"{hook} may see each call by itself"
    if may_be_trained_on(place.project, place.source, place.statement):
        return "what the second call gives may come to a backward pass"
    return _refused_here(place, pair) or _noticed(place, pair)


def _noticed(place: EditPlace, pair: _Pair) -> str:
    """Return why the model may give something else the second time, or how somebody may see that it is not called."""
    other = gives_other(place.project, place.source, pair.second)
    if other:
        return other
    if "backward" in place.project.functions:
        return "backward() of the user's may see each call by itself"
    allowed = words("backward zero_grad clip_grad_norm_ clip_grad_value_ print str inference_mode")
    changed = changes_something(place.project, place.source, [pair.before, *pair.between], also=allowed)
    if changed:
        return f"{changed} between the two calls may change what the model is given"
    rebound = free_names(place.project, pair.second) & stores([pair.before, *pair.between])
    if rebound:
        return f"{min(rebound)}, which the model may read, is bound anew between the two calls"
    taken = _part(place, pair.second)
    if not _is_tensor(place, place.source, taken):
        return "what the second call gives may be no single tensor"
    if is_without_gradients(place.source, place.statement):
        return ""
    uses = NumberUses(place.project)
    uses.follow(place.source, taken)
    return uses.reason


def _is_tensor(place: EditPlace, source: SourceFile, node: ast.expr) -> bool:
    """Return whether something is used as tensors alone are, at once or under its name, or in the user's functions."""
    around = source.parents[node]
    if isinstance(around, ast.Assign) and all(isinstance(each, ast.Name) for each in around.targets):
        names = {each.id for each in around.targets if isinstance(each, ast.Name)}
        return _are_tensors(place, source, source.scope(around), names)
    if isinstance(around, ast.Attribute):
        return around.attr in TENSOR_METHODS | ENDING | WITHOUT_GRAPH
    if not isinstance(around, ast.Call) or node not in around.args:
        return False
    known = place.project.functions.get(last_name(around.func), ())
    if len(known) == 1 and isinstance(around.func, ast.Name):
        ((home, function),) = known
        given = [*function.args.posonlyargs, *function.args.args][around.args.index(node) :][:1]
        return bool(given) and _are_tensors(place, home, function, {given[0].arg})
    return is_torch_function(source, around.func)


def _are_tensors(place: EditPlace, source: SourceFile, scope: ast.AST, names: set[str]) -> bool:
    read = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id in names]
    read = [each for each in read if isinstance(each.ctx, ast.Load)]
    return bool(read) and all(_is_tensor(place, source, each) for each in read)


def _refused_here(place: EditPlace, pair: _Pair) -> str:
    statement = place.statement
    alone = isinstance(statement, ast.Assign) and statement.value is pair.second
    if (
        isinstance(statement, ast.Assign)
        and alone
        and not all(isinstance(each, ast.Name) for each in statement.targets)
    ):
        return "the second call gives more than one thing"
    name = _bound_to(pair)
    for node in (inner for each in (pair.before, *pair.between) for inner in ast.walk(each)):
        if not isinstance(node, ast.Call) or (pair.first not in ast.walk(node) and name not in loads(node.args)):
            continue
        for _, function in place.project.functions.get(last_name(node.func), ()):
            given = [each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)]
            if node is not pair.first and any(changed_in_place(function.body, each) for each in given):
                return f"{function.name}() may change the outputs in place"
    return ""
