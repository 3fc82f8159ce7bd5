"""Loops that change tensors one by one, as `torch._foreach_` operations on lists of them behind the loop."""

import ast
from functools import partial

from flatout.edits.cures.foreach_terms import ForeachTerms, NotElementwise
from flatout.edits.cures.weights_apart import can_ask, named_question
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, stores
from flatout.edits.reading.graphs.number_uses import renewed_between
from flatout.edits.reading.purity.seldom_names import is_comprehended
from flatout.edits.reading.writes.turn_order import is_steady_number, order_seen
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["with_foreach"]

_QUESTION = '''\
def {name}(numbers, *lists):
    """Return whether these are numbers, and plain tensors that share no memory with those of another turn."""
    if any(type(each) not in (int, float) for each in numbers):
        return False
    places = set()
    for tensors in lists:
        for turn, each in enumerate(tensors):
            if type(each) not in (torch.Tensor, torch.nn.Parameter) or each.layout is not torch.strided:
                return False
            if each.requires_grad and torch.is_grad_enabled():
                return False
            memory = each.untyped_storage()
            places.add((memory.data_ptr(), memory.data_ptr() + memory.nbytes(), turn))
    places = sorted(places)
    last, owner = 0, -1
    for start, end, turn in places:
        if start < last and turn != owner:
            return False
        last, owner = max((last, owner), (end, turn))
    return True'''
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
    if around is None:
        return place.left("the loop does more in each turn than to change tensors in place")
    seen = _seen(place, loop, [*around, *heads], actions)
    if seen:
        return place.left(seen)
    if not can_ask(place.source):
        return place.left("torch is not imported by its name at the top of the file")
    of_turn |= stores(around)
    changes = TextChanges(place.source)
    terms = ForeachTerms(of_turn, changes.text, partial(fresh_name, place.source))
    try:
        for each in actions:
            terms.act(each)
    except NotElementwise:
        return place.left("a change in the loop is none that torch._foreach_ operations make")
    loud = next((each for each in terms.outer if not is_steady_number(place.project, place.source, each)), None)
    if loud is not None:
        return place.left(f"{ast.unparse(loud)} may be something else in each turn")
    _write(changes, loop, actions, terms, switch, named_question(changes, place.source, "turns_apart", _QUESTION))
    return WrittenEdit(changes.done(place.project), changed=1)


def _seen(place: EditPlace, loop: ast.For, heads: list[ast.stmt], actions: list[ast.stmt]) -> str:
    """Return what may notice that the changes are made behind the loop, "" for nothing."""
    above = [*place.source.above(actions[0])]
    conditions = [each.test for each in above[: above.index(loop)] if isinstance(each, ast.If)]
    reason = order_seen(place.project, place.source, loop, heads, conditions)
    if reason:
        return reason
    added = {
        each.target.id for each in actions if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name)
    }
    stored = [each for each in ast.walk(loop) if isinstance(each, ast.Name) and each.id in added]
    inside = {*ast.walk(loop)}
    for node in ast.walk(place.source.scope(loop)):
        if isinstance(node, ast.Name) and node.id in added and node not in inside and isinstance(node.ctx, ast.Load):
            own = [each for each in stored if each.id == node.id and isinstance(each.ctx, ast.Store)]
            renewed = all(renewed_between(place.source, each, node) for each in own)
            if not renewed and not is_comprehended(place.source, node):
                return f"{node.id} is read elsewhere"
    return ""


def _write(
    changes: TextChanges, loop: ast.For, actions: list[ast.stmt], terms: ForeachTerms, switch: str, question: str
) -> None:
    names = list(terms.lists.values())
    changes.before(loop, *(f"{name} = []" for name in names))
    added = [f"{name}.append({text})" for text, name in terms.lists.items()]
    if len(added) > 1:
        changes.before(actions[0], *added[:-1])
    changes.replace(actions[0], added[-1])
    for each in actions[1:]:
        changes.remove(each)
    numbers = list(dict.fromkeys(changes.text(each) for each in terms.outer if not isinstance(each, ast.Constant)))
    lines = [
        f"if {names[0]} and {question}([{', '.join(numbers)}], {', '.join(names)}):",
        *(f"    {line}" for line in terms.lines),
        "else:",
        *(f"    {line}" for line in terms.turn_by_turn(actions)),
    ]
    changes.after(loop, *([f"with {switch}:", *(f"    {line}" for line in lines)] if switch else lines))


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
