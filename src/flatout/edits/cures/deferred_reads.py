"""Values that a loop reads from the device in each step, kept there and read together: `.item()`, `.cpu()`.

`total += loss.item()` becomes `reads.append(loss.detach().clone())`. The statement itself is carried out for all that
was kept, in order, before somebody reads what it changes: at the start of a block under `if step % n == 0`, behind the
loop, and after some steps, so that little is kept. The clone holds the value of the step, whatever is written later.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads, stores
from flatout.edits.reading.source_file import Function, ModuleNames, SourceFile
from flatout.edits.reading.training_loops import is_without_gradients
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["read_later"]

_Loop = ast.For | ast.While

_NUMBERS, _TENSORS = {"item", "tolist"}, {"cpu", "numpy"}
_READS = _NUMBERS | _TENSORS
_ENDS = _NUMBERS | {"numpy"}  # what they return has no graph
_MOST_NUMBERS, _MOST_TENSORS = 64, 8  # that are kept
_WHOLE = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Tuple, ast.List, ast.Dict)
_PURE = ("numpy.", "torch.", "math.", "statistics.")
_COMPUTE = {"abs", "bool", "float", "int", "len", "list", "max", "min", "round", "sorted", "str", "sum", "tuple"}
_FRESH_CALLS = {"list", "dict", "collections.defaultdict", "collections.deque", "collections.Counter"}


class _RefusedError(Exception):
    """Something in the statement may be another thing later."""


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
    later = _Later(place, loop, bound=adding[0].name if adding[0].binds else "")
    try:
        lines = [later.statement(one, together=_is_together(source, adding, one)) for one in adding]
    except _RefusedError as error:
        return place.left(str(error))
    changes = TextChanges(source)
    reads = fresh_name(source, "reads")
    head = f"for {', '.join(later.names)} in {reads}:"
    carried_out = (head, *(f"    {line}" for line in lines), f"{reads}.clear()")
    kept = later.kept[0] if len(later.kept) == 1 else f"({', '.join(later.kept)})"
    changes.before(loop, f"{reads} = []")
    changes.replace(statement, f"{reads}.append({kept})")
    for one in adding[1:]:
        changes.remove(one.statement)
    changes.after(statement, f"if len({reads}) == {later.most}:", *(f"    {line}" for line in carried_out))
    for block in readers:
        changes.before(block.body[0], *carried_out)
    changes.after(loop, *carried_out)
    return WrittenEdit(changes.done(place.project), changed=1)


@dataclass(frozen=True)
class _Adding:
    """A statement that adds a value to what `name` stands for, or binds it to that."""

    statement: ast.stmt
    name: str
    value: ast.expr
    binds: bool = False


def _group(source: SourceFile, statement: ast.stmt) -> list[_Adding]:
    """Return the statement that reads a tensor, and those beside it that add what it read to something."""
    found = _adding(statement)
    if found is not None:
        return [found] if any(map(_is_read, ast.walk(found.value))) else []
    is_binding = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and _is_read(statement.value)
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


def _is_read(node: ast.AST) -> bool:
    """Return whether a node is `value.item()` or the like."""
    plain = isinstance(node, ast.Call) and not node.args and not node.keywords
    return plain and isinstance(node.func, ast.Attribute) and node.func.attr in _READS  # type: ignore[attr-defined]


# -- where it may be done later ---------------------------------------------------------------------------------------


def _left(place: EditPlace, name: str, loop: _Loop) -> str:
    """Return how the loop may end without what stands behind it, or who else has the name; "" for none."""
    source = place.source
    if any(isinstance(each, ast.Return | ast.Yield | ast.YieldFrom | ast.Await) for each in ast.walk(loop)):
        return "the loop may be left before its end"
    scope = source.scope(loop)
    around = [each for each in source.above(place.statement) if source.scope(each) is scope]
    if any(isinstance(each, ast.Try | ast.TryStar | ast.AsyncFor | ast.AsyncWith) for each in around):
        return "an error in the loop may be caught, and what was added read then"
    if isinstance(scope, ast.ClassDef):
        return "it stands in the body of a class"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return f"{name} is a name of other functions, too"
        if isinstance(node, ast.Name) and node.id == name:
            other = source.scope(node)
            if other is not scope and any(each is scope for each in source.above(node)) and name not in stores([other]):
                return f"{name} is read by a function that the loop may call"
    return ""


def _unfresh(source: SourceFile, one: _Adding, loop: _Loop) -> str:
    """Return why somebody may have another name for what is added to, "" where nobody has."""
    scope, name = source.scope(loop), one.name
    is_list = not isinstance(one.statement, ast.AugAssign) or isinstance(one.statement.target, ast.Subscript)
    own = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
    own = [node for node in own if source.scope(node) is scope]
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
    if not isinstance(value, ast.Call):
        return False
    return (names.dotted(value.func) or getattr(value.func, "id", "")) in _FRESH_CALLS


def _is_handed_on(source: SourceFile, node: ast.Name, loop: _Loop) -> bool:
    """Return whether a place where a list is named gives it another name while a turn of the loop is still to come."""
    outermost = [each for each in (loop, *source.above(loop)) if isinstance(each, _Loop)]
    if node.lineno > (outermost[-1].end_lineno or 0):
        return False
    inner: ast.AST = node
    above = source.parents[node]
    while isinstance(above, ast.Subscript) and above.value is inner and isinstance(above.slice, ast.Constant):
        inner, above = above, source.parents[above]
    if isinstance(above, ast.Call) and inner in above.args:
        dotted = source.names.dotted(above.func)
        return not (dotted.startswith(_PURE) or _is_builtin(source.names, above.func))
    if isinstance(above, ast.Assign):
        return inner is above.value
    return not isinstance(above, ast.Attribute | ast.Subscript | ast.FormattedValue | ast.For | ast.comprehension)


def _is_builtin(names: ModuleNames, node: ast.expr) -> bool:
    """Return whether a name is that of a function of Python's that computes, and keeps nothing."""
    return isinstance(node, ast.Name) and node.id in _COMPUTE and node.id not in {*names.bound, *names.imports}


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


# -- what is done later -----------------------------------------------------------------------------------------------


@dataclass
class _Later:
    """The statement as it is carried out later, and what is kept for that in the step.

    Attributes:
        bound: the name that the first statement binds to what it reads.
        names: of what was kept, in the statement.
        kept: the expressions of the step that give these.
        most: of how many steps it is kept.
    """

    place: EditPlace
    loop: _Loop
    bound: str = ""
    names: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    most: int = _MOST_NUMBERS
    is_reduced: bool = False  # what is read just now ends as a number, which has no graph

    def statement(self, one: _Adding, *, together: bool) -> str:
        """Return the text of a statement; `together`: nothing else stands between the first one and this.

        Raises:
            _RefusedError: a part of it may be another thing later.
        """
        changed, before = copy.deepcopy(one.statement), len(self.kept)
        if isinstance(changed, ast.AugAssign | ast.Assign):
            changed.value = self._expression(one.value)
        else:
            changed.value.args = [self._expression(one.value)]  # type: ignore[attr-defined]
        if len(self.kept) > before and not together:
            raise _RefusedError(f"{ast.unparse(one.value)} may be another value where the first line stands")
        return ast.unparse(changed)

    def _is_later(self, node: ast.AST) -> bool:
        return _is_read(node) or (isinstance(node, ast.Name) and node.id == self.bound)

    def _expression(self, node: ast.expr) -> ast.expr:
        inner = [each for each in ast.walk(node) if self._is_later(each)]
        if not inner:
            return self._other(node)
        if isinstance(node, ast.Name):
            return node
        if _is_read(node) and all(_is_chain(node, each) for each in inner):
            return self._read(node)
        if isinstance(node, ast.Call):
            outer, self.is_reduced = self.is_reduced, self.is_reduced or _is_number(node)
            called = self._call(node)
            self.is_reduced = outer
            return called
        if isinstance(node, _WHOLE):
            made = copy.copy(node)
            for name, part in ast.iter_fields(node):
                if isinstance(part, ast.expr):
                    setattr(made, name, self._expression(part))
                elif isinstance(part, list):
                    parts = [self._expression(each) if isinstance(each, ast.expr) else each for each in part]
                    setattr(made, name, parts)
            return made
        raise _RefusedError(f"{ast.unparse(node)} is more than a value that is read and arithmetic")

    def _call(self, node: ast.Call) -> ast.expr:
        """Return a call of what is read, or with it: of a function of Python's or numpy's, or a method."""
        made, names = copy.copy(node), self.place.source.names
        if isinstance(node.func, ast.Attribute) and any(map(self._is_later, ast.walk(node.func.value))):
            made.func = copy.copy(node.func)
            made.func.value = self._expression(node.func.value)
        elif not names.dotted(node.func).startswith(_PURE) and not _is_builtin(names, node.func):
            raise _RefusedError(f"{ast.unparse(node.func)}() may do more than compute")
        made.args = [self._expression(each) for each in node.args]
        made.keywords = [ast.keyword(each.arg, self._expression(each.value)) for each in node.keywords]
        return made

    def _read(self, node: ast.expr) -> ast.expr:
        """Return what is read later of a tensor that is kept."""
        base, methods = node, list[str]()
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):
            if base.args or base.keywords or base.func.attr not in {*_READS, "detach"}:
                break
            methods.append(base.func.attr)
            base = base.func.value
        cut = self.is_reduced or not {*_ENDS, "detach"}.isdisjoint(methods)
        if not cut and not is_without_gradients(self.place.source, self.place.statement):
            raise _RefusedError(f"{ast.unparse(node)} may be kept with its graph")
        if {*methods} & _TENSORS:
            self.most = _MOST_TENSORS
        text = ast.unparse(base)
        text = text if isinstance(base, ast.Name | ast.Call | ast.Attribute) else f"({text})"
        later: ast.expr = self._keep(f"{text}.detach().clone()")
        for method in reversed([each for each in methods if each != "detach"]):
            later = ast.Call(ast.Attribute(later, method, ast.Load()), [], [])
        return later

    def _other(self, node: ast.expr) -> ast.expr:
        """Return what is not read from the device: a number of the step, or what the loop goes over."""
        if isinstance(node, ast.Constant):
            return node
        if _is_size(node) or self._is_counted(node):
            return self._keep(ast.unparse(node))
        targets = ast.walk(self.loop.target) if isinstance(self.loop, ast.For) else ()
        if isinstance(node, ast.Name) and node.id in {each.id for each in targets if isinstance(each, ast.Name)}:
            return self._keep(f"{node.id}.detach().clone()")
        raise _RefusedError(f"{ast.unparse(node)} may be another one later")

    def _is_counted(self, node: ast.expr) -> bool:
        """Return whether an expression is the number of the turn."""
        if not isinstance(node, ast.Name) or not isinstance(self.loop, ast.For):
            return False
        target, over = self.loop.target, self.loop.iter
        function = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
        if function == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[0]
        elif function != "range":
            return False
        return isinstance(target, ast.Name) and target.id == node.id and node.id not in stores(self.loop.body)

    def _keep(self, text: str) -> ast.Name:
        wanted = "read" if not self.names else f"read_{len(self.names) + 1}"
        self.names.append(fresh_name(self.place.source, wanted))
        self.kept.append(text)
        return ast.Name(self.names[-1], ast.Load())


def _is_chain(node: ast.expr, part: ast.AST) -> bool:
    """Return whether `part` is `node`, or what its methods are called on, one after another."""
    while node is not part:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr not in {*_READS, "detach"}:
            return False
        node = node.func.value
    return True


def _is_number(node: ast.Call) -> bool:
    """Return whether a call returns something without a graph, whatever it is called on."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _ENDS or (isinstance(node.func, ast.Name) and name in ("float", "int"))


def _is_size(node: ast.expr) -> bool:
    """Return whether an expression is `len(x)`, `x.size(0)`, `x.shape[0]` or `x.numel()` of a name."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        node = node.value
        return isinstance(node, ast.Attribute) and node.attr == "shape" and isinstance(node.value, ast.Name)
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in ("size", "numel", "dim")
    return is_method and all(isinstance(each, ast.Constant) for each in node.args)
