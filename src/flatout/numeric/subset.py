"""The Python that may be compiled, as its syntax tells: read without numpy, since the parent process asks, too.

`units` finds what a function has to offer: itself, or some of its loops. Whether it is compiled in the end is decided
where it runs, when the kinds of its values are known.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Unit", "assigned", "ends_by_itself", "has_to_run", "must_run", "outer_names", "refused", "units"]

_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For, ast.While, ast.Return, ast.Expr, ast.Pass, ast.Break,
    ast.Continue, ast.Raise, ast.Assert,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Subscript,
    ast.Call, ast.Tuple, ast.List, ast.ListComp, ast.Slice,
)  # fmt: skip
_PARTS = (
    ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context, ast.comprehension, ast.keyword,
)  # fmt: skip
_FUNCTIONS = frozenset(
    {"abs", "bool", "enumerate", "float", "int", "len", "list", "max", "min", "range", "reversed", "round", "zip"}
)
_METHODS = frozenset({"append", "copy", "item", "size"})
_OF_ARRAYS = frozenset({"append", "copy", "item", "ndim", "shape", "size"})
_LIBRARIES = frozenset({"math", "np", "numpy"})
_FRAME_READERS = frozenset({"eval", "exec", "locals", "vars", "dir", "globals", "super", "_getframe", "currentframe"})
_LOOPS = (ast.For, ast.While)
_MUST_RUN = "flatout_must_run"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Unit:
    """A piece of a function that may be compiled: the whole of it (`loop` is None), or one loop.

    `stored` are the variables of a loop that are read elsewhere in the function.
    """

    function: Function
    loop: ast.For | ast.While | None = None
    stored: tuple[str, ...] = ()


def units(function: Function) -> list[Unit]:
    """Return what may be compiled of a function."""
    if not refused(function):
        return [Unit(function)] if any(isinstance(node, _LOOPS) for node in ast.walk(function)) else []
    if _reads_frames(function):
        return []
    found = []
    for loop in _loops(function.body):
        stored = sorted(assigned([loop]) & _read_outside(function, loop))
        found.append(Unit(function, loop, tuple(stored)))
    return found


def refused(function: Function) -> str:
    """Return why a function as a whole is not compiled, "" where it may be."""
    arguments = function.args
    if isinstance(function, ast.AsyncFunctionDef) or any(map(_yields, function.body)):
        return "it is a generator or a coroutine"
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        return "it takes any number of arguments, or named ones only"
    return next((why for node in function.body if (why := _refused_in(node))), "")


def _refused_in(node: ast.AST) -> str:
    """Return what in a statement has no compiled form, "" where nothing is seen."""
    for inner in _seen(node):
        if not isinstance(inner, (*_STATEMENTS, *_EXPRESSIONS, *_PARTS)):
            return f"{type(inner).__name__} has no compiled form"
        if isinstance(inner, ast.Name | ast.Attribute) and _private(inner):
            return "it names what a class keeps to itself"
        if isinstance(inner, _LOOPS) and inner.orelse:
            return "a loop has an else"
        if isinstance(inner, ast.Call) and not _may_be_called(inner.func):
            return f"{ast.unparse(inner.func)} is called"
    return ""


def _seen(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and all in it, but for errors that it raises: these Python makes itself."""
    yield node
    if isinstance(node, ast.Raise):
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Assert) and child is node.msg):
            yield from _seen(child)


def _may_be_called(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _FUNCTIONS
    if not isinstance(function, ast.Attribute):
        return False
    return function.attr in _METHODS or (isinstance(function.value, ast.Name) and function.value.id in _LIBRARIES)


def _private(node: ast.Name | ast.Attribute) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr
    return name.startswith("__") or name.endswith("__")


def _yields(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom | ast.Await) for inner in ast.walk(node))


def _reads_frames(function: Function) -> bool:
    """Return whether a function may see its own variables in other ways than by their names, or shares them."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Delete):
            return True
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in _FRAME_READERS or (name.startswith("__") and not name.endswith("__")):
            return True
    return False


def _loops(body: Sequence[ast.stmt]) -> Iterator[ast.For | ast.While]:
    """Yield the outermost loops that have nothing in them without a compiled form."""
    for node in body:
        if isinstance(node, ast.For | ast.While) and not _refused_in(node) and not _returns(node):
            yield node
            continue
        if isinstance(node, _SCOPES):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _loops(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from _loops(handler.body)


def _returns(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Return) for inner in ast.walk(node))


def assigned(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements store, but for those of comprehensions."""
    found: set[str] = set()
    for node in body:
        hidden = {
            inner
            for each in ast.walk(node)
            if isinstance(each, ast.ListComp)
            for generator in each.generators
            for inner in ast.walk(generator.target)
        }
        found |= {
            each.id
            for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each not in hidden
        }
    return found


def ends_by_itself(loop: ast.While) -> bool:
    """Return whether a loop changes something that it looks at to see whether it is to end."""
    looked_at = {each.id for each in ast.walk(loop.test) if isinstance(each, ast.Name)}
    for each in ast.walk(ast.Module(loop.body, [])):
        if isinstance(each, ast.If) and any(
            isinstance(inner, ast.Break | ast.Return | ast.Raise) for inner in ast.walk(each)
        ):
            looked_at |= {inner.id for inner in ast.walk(each.test) if isinstance(inner, ast.Name)}
    return bool(looked_at & _changed_in(loop.body))


def _changed_in(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements store, or of which they store an element or add one."""
    found = assigned(body)
    for node in (each for statement in body for each in ast.walk(statement)):
        stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if stored or (isinstance(node, ast.Attribute) and node.attr == "append"):
            inner: ast.expr = node  # type: ignore[assignment]
            while isinstance(inner, ast.Subscript | ast.Attribute):
                inner = inner.value
            found |= {inner.id} if isinstance(inner, ast.Name) else set()
    return found


def _read_outside(function: Function, loop: ast.stmt) -> set[str]:
    """Return the names that a function reads outside of one of its loops, but for counters that loops set anew."""
    inside = set(ast.walk(loop))
    found: set[str] = set()

    def look(node: ast.AST, counters: frozenset[str]) -> None:
        if node is loop:
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in inside:
            found.update({node.id} - counters)
        if isinstance(node, ast.For):
            look(node.iter, counters)
            within = counters | {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
            for each in node.body:
                look(each, within)
            for each in node.orelse:
                look(each, counters)
            return
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.update({node.target.id} - counters)
        for child in ast.iter_child_nodes(node):
            look(child, counters)

    look(function, frozenset())
    around = [
        each for each in ast.walk(function) if isinstance(each, _LOOPS) and loop in ast.walk(each) and each is not loop
    ]
    return found | (_read_again(loop) if around else set())


def _read_again(loop: ast.stmt) -> set[str]:
    """Return the names that a loop may read before it stores them: what its last turn left, where it is run again."""
    found: set[str] = set()
    _exposed([loop], set(), found)
    return found


def _exposed(body: Sequence[ast.AST], stored: set[str], found: set[str]) -> None:
    """Note the names that statements may read before they store them; `stored` grows by what they surely store."""
    for node in body:
        if isinstance(node, ast.If):
            _exposed([node.test], stored, found)
            one, other = set(stored), set(stored)
            _exposed(node.body, one, found)
            _exposed(node.orelse, other, found)
            stored |= one & other
        elif isinstance(node, ast.For | ast.While):
            _exposed([node.iter if isinstance(node, ast.For) else node.test], stored, found)
            targets = ast.walk(node.target) if isinstance(node, ast.For) else ()
            _exposed(node.body, stored | {each.id for each in targets if isinstance(each, ast.Name)}, found)
        else:
            names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
            again = isinstance(node, ast.AugAssign)
            found |= {each.id for each in names if isinstance(each.ctx, ast.Load) or again} - stored
            stored |= {each.id for each in names if isinstance(each.ctx, ast.Store)}


def must_run(loop: ast.For | ast.While) -> None:
    """Ask of a loop that it has at least one turn; where it has none, compiled code ends and leaves it to Python."""
    vars(loop)[_MUST_RUN] = True


def has_to_run(loop: ast.For | ast.While) -> bool:
    """Return whether that was asked of a loop."""
    return _MUST_RUN in vars(loop)


def outer_names(body: Iterable[ast.stmt], variables: set[str]) -> list[str]:
    """Return what statements read that is no variable, as it is written: `SIZE`, `math.sqrt`, `self.kernel`."""
    found: dict[str, None] = {}
    hidden = {
        each.id
        for node in body
        for comprehension in ast.walk(node)
        if isinstance(comprehension, ast.comprehension)
        for each in ast.walk(comprehension.target)
        if isinstance(each, ast.Name)
    }

    def look(node: ast.AST) -> None:
        chain = _chain(node)
        if chain and chain[0] not in hidden and (chain[0] not in variables or (chain[0] == "self" and len(chain) > 1)):
            found[".".join(chain)] = None
            return
        if isinstance(node, ast.Raise):
            return
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Assert) and child is node.msg):
                look(child)

    for node in body:
        look(node)
    return list(found)


def _chain(node: ast.AST) -> list[str]:
    """Return the parts of a name with attributes, without those that arrays have; empty for all else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and node.attr not in _OF_ARRAYS:
        above = _chain(node.value)
        return [*above, node.attr] if above else []
    return []
