"""Values that a loop reads from the device in each step, kept there and read together: `.item()`, `.cpu()`.

`total += loss.item()` becomes `reads.append(loss.detach().clone())`. The statement itself is carried out for all that
was kept, in order, before somebody reads what it changes: at the start of a block under `if step % n == 0`, behind the
loop, and after some steps, so that little is kept. The clone holds the value of the step, whatever is written later.

Only what cannot fail later is kept: of a plain tensor whose shape and type are those with which the statement was
carried out before. All else is carried out at once, after what was kept.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.edits.cures.asked_forms import unasked, with_parts
from flatout.edits.cures.reads.kept_values import KeptValues, RefusedError, is_of_builtins, is_read
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, in_generator, loads, stores
from flatout.edits.reading.error_handlers import seen_around
from flatout.edits.reading.lists.hidden_access import seen_by_name
from flatout.edits.reading.source_file import Function, ModuleNames, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["read_later"]

_Loop = ast.For | ast.While

_PURE = ("numpy.", "torch.", "math.", "statistics.")
_OF_LISTS = {"append", "clear", "copy", "count", "extend", "index", "insert", "keys", "reverse", "sort"}
_FRESH_CALLS = {"list", "dict", "collections.defaultdict", "collections.deque", "collections.Counter"}


@dataclass(frozen=True)
class _Adding:
    """A statement that adds a value to what `name` stands for, or binds it to that."""

    statement: ast.stmt
    name: str
    value: ast.expr
    binds: bool = False


def read_later(place: EditPlace) -> WrittenEdit:
    """Keep on the device what the finding's line reads from it, and read it where its result is used."""
    source, statement = place.source, place.statement
    loop = next((each for each in source.above(statement) if isinstance(each, _Loop | Function | ast.Lambda)), None)
    if not isinstance(loop, _Loop) or loop.orelse:
        return place.left("it stands in no loop of its function")
    adding = _group(source, statement)
    if not adding:
        return place.left("the line is not `total += value.item()`, `values.append(value.item())`, `x = value.item()`")
    for one in adding:
        reason = _left(place, one.name, loop) or ("" if one.binds else _unfresh(source, one, loop))
        if reason:
            return place.left(reason)
    readers = _readers(source, adding, loop)
    if readers is None:
        return place.left(f"{' or '.join(dict.fromkeys(one.name for one in adding))} is read in each turn of the loop")
    later = KeptValues(place, loop, bound=adding[0].name if adding[0].binds else "")
    try:
        lines = [
            later.statement(one.statement, one.value, together=_is_together(source, adding, one)) for one in adding
        ]
    except RefusedError as error:
        return place.left(str(error))
    against = unasked(place, loop, shown=False, uses=("len", "type", *later.builtins))
    return place.left(against) if against else _with_reads(place, loop, adding, readers, later, lines)


def _with_reads(
    place: EditPlace, loop: _Loop, adding: list[_Adding], readers: list[ast.If], later: KeptValues, lines: list[str]
) -> WrittenEdit:
    """Write the statement as what is kept, and what is done with it later, or at once."""
    statement, changes = place.statement, TextChanges(place.source)
    reads, like = fresh_name(place.source, "reads"), fresh_name(place.source, "reads_like")
    carried_out = (f"for {', '.join(later.names)} in {reads}:", *(f"    {line}" for line in lines), f"{reads}.clear()")
    kept = later.kept[0] if len(later.kept) == 1 else f"({', '.join(later.kept)})"
    at_once = [ast.unparse(with_parts(one.statement, later.at_once)) for one in adding]
    like_now = f"({', '.join(dict.fromkeys(later.like))},)"
    changes.before(loop, f"{reads}, {like} = [], None")
    questions = " and ".join([*dict.fromkeys(later.asked), f"{like} == {like_now}"])
    changes.before(statement, *later.before, f"if {questions}:")
    changes.replace(statement, f"    {reads}.append({kept})")
    for one in adding[1:]:
        changes.remove(one.statement)
    tensors = " and ".join(each for each in dict.fromkeys(later.asked) if each.startswith("type("))
    changes.after(
        statement,
        "else:",
        *(f"    {line}" for line in (*carried_out, *at_once)),
        f"    {like} = {like_now} if {tensors} else None",
        f"if len({reads}) == {later.most}:",
        *(f"    {line}" for line in carried_out),
    )
    for block in readers:
        changes.before(block.body[0], *carried_out)
    changes.after(loop, *carried_out)
    project, at = changes.done(place.project), place.project.sources.index(place.source)
    return WrittenEdit(with_import(project, at, "torch") if later.torch == "torch" else project, changed=1)


def _group(source: SourceFile, statement: ast.stmt) -> list[_Adding]:
    """Return the statement that reads a tensor, and those beside it that add what it read to something."""
    found = _adding(statement)
    if found is not None:
        return [found] if any(map(is_read, ast.walk(found.value))) else []
    is_binding = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and is_read(statement.value)
    if not is_binding or not isinstance(statement.targets[0], ast.Name):  # type: ignore[attr-defined]
        return []
    first = _Adding(statement, statement.targets[0].id, statement.value, binds=True)  # type: ignore[attr-defined]
    block = block_of(source, statement)
    behind = [_adding(each) for each in block[block.index(statement) + 1 :]]
    return [first, *(one for one in behind if one is not None and first.name in loads([one.value]))]


def _is_together(source: SourceFile, adding: list[_Adding], one: _Adding) -> bool:
    block = block_of(source, one.statement)
    return block.index(one.statement) - block.index(adding[0].statement) == adding.index(one)


def _adding(statement: ast.stmt) -> _Adding | None:
    """Return what a statement adds, and to what: `total += value`, `values.append(value)`."""
    found: tuple[ast.expr, ast.expr] | None = None
    if isinstance(statement, ast.AugAssign):
        found = statement.target, statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1:
            found = (call.func.value, call.args[0]) if not call.keywords else None
    if found is None:
        return None
    target = found[0]
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        target = target.value
    return _Adding(statement, target.id, found[1]) if isinstance(target, ast.Name) else None


# -- where it may be done later ---------------------------------------------------------------------------------------


def _left(place: EditPlace, name: str, loop: _Loop) -> str:
    """Return how the loop may end without what stands behind it, or who else has the name; "" for none."""
    source = place.source
    if any(isinstance(each, ast.Return | ast.Yield | ast.YieldFrom | ast.Await) for each in ast.walk(loop)):
        return "the loop may be left before its end"
    scope = source.scope(loop)
    around = seen_around(source, place.statement) or seen_by_name(place.project, name) or _streams(place)
    if around:
        return around
    if in_generator(scope, name):
        return f"{name} is read by a generator that the loop may walk"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return f"{name} is a name of other functions, too"
        if isinstance(node, ast.Name) and node.id == name:
            other = source.scope(node)
            if other is not scope and any(each is scope for each in source.above(node)) and name not in stores([other]):
                return f"{name} is read by a function that the loop may call"
    return ""


def _streams(place: EditPlace) -> str:
    """Return what lets work of the device go on beside other work, "" for nothing: a read waits for its own alone."""
    for source, node in place.project.nodes(ast.Attribute, ast.alias):
        name = node.attr if isinstance(node, ast.Attribute) else node.name.rpartition(".")[2]
        if name in ("Stream", "set_stream", "ExternalStream"):
            return (
                source.at(node, f"`{name}`: what is read later may not be there")
                if isinstance(node, ast.expr)
                else name
            )
    return ""


def _unfresh(source: SourceFile, one: _Adding, loop: _Loop) -> str:
    """Return why somebody may have another name for what is added to, "" where nobody has."""
    scope, name = source.scope(loop), one.name
    is_list = not isinstance(one.statement, ast.AugAssign) or isinstance(one.statement.target, ast.Subscript)
    own = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
    own = [node for node in own if source.scope(node) is scope]
    given = ast.walk(scope.args) if isinstance(scope, Function) else ()
    if any(isinstance(each, ast.arg) and each.arg == name for each in given):
        return f"{name} may be given to this function"
    bound = [node for node in own if not isinstance(node.ctx, ast.Load)]
    above = [source.parents[node] for node in bound]
    made = [each for each in above if isinstance(each, ast.Assign | ast.AnnAssign)]
    others = [each for each in above if each not in made and not isinstance(each, ast.AugAssign)]
    if not made or others or not all(_is_fresh(source.names, each.value, is_list=is_list) for each in made):
        return f"{name} is not made in this function, as a number or an empty list"
    if is_list and any(_is_handed_on(source, node, loop) for node in own if isinstance(node.ctx, ast.Load)):
        return f"{name} is handed to something that may keep it"
    return ""


def _is_fresh(names: ModuleNames, value: ast.expr | None, *, is_list: bool) -> bool:
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if not is_list:
        return isinstance(value, ast.Constant) and isinstance(value.value, int | float)
    if isinstance(value, ast.List):
        return not value.elts
    if isinstance(value, ast.Dict):
        return all(_is_fresh(names, each, is_list=True) for each in value.values)
    if not isinstance(value, ast.Call) or any(each.arg != "maxlen" for each in value.keywords):
        return False
    makes = names.dotted(value.func) or getattr(value.func, "id", "")
    given = [ast.unparse(each) for each in value.args]
    is_default = makes == "collections.defaultdict" and given in (["list"], ["int"], ["float"])
    return makes in _FRESH_CALLS and (is_default or given in ([], ["[]"]))


def _is_handed_on(source: SourceFile, node: ast.Name, loop: _Loop) -> bool:
    """Return whether a place where a list is named gives it another name while a turn of the loop is still to come."""
    outermost = [each for each in (loop, *source.above(loop)) if isinstance(each, _Loop)]
    if node.lineno > (outermost[-1].end_lineno or 0):
        return False
    inner: ast.AST = node
    above = source.parents[node]
    while isinstance(above, ast.Subscript) and above.value is inner and not isinstance(above.slice, ast.Slice):
        inner, above = above, source.parents[above]
    if isinstance(above, ast.Call) and inner in above.args:
        dotted = source.names.dotted(above.func)
        return not (dotted.startswith(_PURE) or is_of_builtins(source.names, above.func))
    if isinstance(above, ast.Assign):
        return inner is above.value
    if isinstance(above, ast.Attribute):  # a method that is kept, or that gives out a list within, is another name
        called = source.parents[above]
        return not (above.attr in _OF_LISTS and isinstance(called, ast.Call) and called.func is above)
    if isinstance(above, ast.AugAssign):
        return inner is not above.target
    return not isinstance(above, ast.Subscript | ast.FormattedValue | ast.For | ast.comprehension)


def _readers(source: SourceFile, adding: list[_Adding], loop: _Loop) -> list[ast.If] | None:
    """Return the blocks in the loop that read what is added to, not in each turn; None where others do."""
    found: dict[ast.If, None] = {}
    names = {one.name for one in adding}
    inside = {node for one in adding for node in ast.walk(one.statement)}
    last = max(one.statement.end_lineno or 0 for one in adding)
    for node in ast.walk(loop):
        if not isinstance(node, ast.Name) or node.id not in names or node in inside:
            continue
        outer = [each for each in _within(source, node, loop) if isinstance(each, ast.If) and _is_seldom(each)]
        block = outer[-1] if outer else None
        if block is None or any(each is one.statement for each in ast.walk(block) for one in adding):
            return None
        if not any(node in ast.walk(each) for each in block.body) or (adding[0].binds and block.lineno <= last):
            return None
        found[block] = None
    return list(found)


def _within(source: SourceFile, node: ast.AST, loop: _Loop) -> Iterator[ast.AST]:
    for each in source.above(node):
        if each is loop:
            return
        yield each


def _is_seldom(block: ast.If) -> bool:
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in ast.walk(block.test))
