"""Loops that change tensors one by one, as `torch._foreach_` operations on lists of them behind the loop."""

import ast
from functools import partial

from flatout.edits.cures.foreach_terms import ForeachTerms, NotElementwise
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, stores
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["with_foreach"]

_TWICE = ("state_dict", "values", "items", "children", "modules")  # may give one tensor several times


def with_foreach(place: EditPlace) -> WrittenEdit:
    """Collect the tensors that the loop of the finding changes in place, and change them behind it."""
    found = _loop(place)
    if found is None:
        return place.left("a loop that ends in changes of tensors in place is not found here")
    loop, block, switch = found
    twice = next((name for name in _TWICE if name in ast.unparse(loop.iter)), "")
    if twice:
        return place.left(f"{twice} may give one tensor several times")
    heads, actions = _parted(block)
    if not actions:
        return place.left("a loop that ends in changes of tensors in place is not found here")
    of_turn = stores([loop.target, *heads])
    around = _heads_around(place, loop, block)
    if around is None or not all(map(_is_head, [*around, *heads])):
        return place.left("the loop does more in each turn than to change tensors in place")
    if _reads_others(place, loop):
        return place.left("a turn of the loop may read tensors that another one changes")
    of_turn |= stores(around)
    changes = TextChanges(place.source)
    terms = ForeachTerms(of_turn, changes.text, partial(fresh_name, place.source))
    try:
        for each in actions:
            terms.act(each)
    except NotElementwise:
        return place.left("a change in the loop is none that torch._foreach_ operations make")
    _write(changes, loop, actions, terms, switch)
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _write(changes: TextChanges, loop: ast.For, actions: list[ast.stmt], terms: ForeachTerms, switch: str) -> None:
    names = list(terms.lists.values())
    changes.before(loop, *(f"{name} = []" for name in names))
    added = [f"{name}.append({text})" for text, name in terms.lists.items()]
    if len(added) > 1:
        changes.before(actions[0], *added[:-1])
    changes.replace(actions[0], added[-1])
    for each in actions[1:]:
        changes.remove(each)
    head = [f"if {names[0]}:", *([f"    with {switch}:"] if switch else [])]
    inner = "    " * len(head)
    changes.after(loop, *head, *(f"{inner}{line}" for line in terms.lines))


def _loop(place: EditPlace) -> tuple[ast.For, list[ast.stmt], str] | None:
    """Return the loop of a statement, the block that changes tensors, and what switches gradients off inside of it."""
    statement, switch = place.statement, ""
    block = statement.body if isinstance(statement, ast.For) else block_of(place.source, statement)
    while isinstance(statement, ast.For | ast.If | ast.With) and isinstance(block[-1], ast.If | ast.With):
        block = block[-1].body
    first: ast.AST = block[0]
    while not isinstance(first, ast.For):
        first = place.source.parents[first]
        if isinstance(first, ast.With) and len(first.items) == 1 and "no_grad" in ast.unparse(first.items[0]):
            switch = ast.unparse(first.items[0])
        elif (isinstance(first, ast.If) and first.orelse) or not isinstance(first, ast.For | ast.If):
            return None
    return None if first.orelse else (first, block, switch)


def _parted(block: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return what a block does first, and the changes in place at its end."""
    at = len(block)
    while at and _is_action(block[at - 1]):
        at -= 1
    return block[:at], block[at:]


def _is_action(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.target, ast.Name | ast.Attribute)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_")


def _is_head(statement: ast.stmt) -> bool:
    """Return whether a statement only binds names for the turn, or passes the turn over."""
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    if any(isinstance(each, ast.Attribute) and each.attr.endswith("_") for each in calls):
        return False
    if isinstance(statement, ast.If):
        return not statement.orelse and all(isinstance(each, ast.Continue) or _is_head(each) for each in statement.body)
    if isinstance(statement, ast.AugAssign):  # state["step"] += 1
        return isinstance(statement.target, ast.Subscript) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Assign) and all(
        isinstance(each, ast.Name | ast.Tuple | ast.Subscript) for each in statement.targets
    )


def _reads_others(place: EditPlace, loop: ast.For) -> bool:
    """Return whether a turn may read what all turns go over: the collection, its module, or out of sight."""
    walked, waiting = set[str](), [loop.iter]
    for node in waiting:  # grows while it is read
        if isinstance(node, ast.Call):
            waiting += node.args  # zip(a, b), list(a)
            walked |= {ast.unparse(node.func.value)} if isinstance(node.func, ast.Attribute) else set()
        else:
            walked.add(ast.unparse(node))
    for each in (inner for statement in loop.body for inner in ast.walk(statement)):
        if isinstance(each, ast.expr) and ast.unparse(each) in walked:
            return True
        if isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] in place.project.functions:
            return True
    return False


def _heads_around(place: EditPlace, loop: ast.For, block: list[ast.stmt]) -> list[ast.stmt] | None:
    """Return what blocks around do before `block`; None where something follows it in a turn."""
    found: list[ast.stmt] = []
    inner = place.source.parents[block[0]]
    while inner is not loop and isinstance(inner, ast.stmt):
        around = block_of(place.source, inner)
        if around[-1] is not inner:
            return None
        found = [*around[:-1], *found]
        inner = place.source.parents[inner]
    return found
