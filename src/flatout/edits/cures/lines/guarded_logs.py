"""Messages for a log that does not take them, put together only where it does.

    log.debug(f"head: {self.head.grad}")      if log.isEnabledFor(logging.DEBUG):
                                                  log.debug(f"head: {self.head.grad}")

A logger of Python's asks for the level itself, after the text was made; a logger of another kind is given every message
as before. What makes the text is read, and has to do nothing else: names, attributes that no code of the project
computes, a few methods and elements of tensors. Whether these are tensors is asked when the script runs. An error of
the text that nobody catches, or a warning, comes only where the log takes it.
"""

import ast
import contextlib
from collections.abc import Iterable, Iterator

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.called_functions import called_at
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.caught_errors import catches_anywhere, caught_at
from flatout.edits.reading.purity.own_meanings import own_names, own_operator, runs_meanwhile
from flatout.edits.reading.purity.steady_conditions import module_name
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.set_attributes import SetAttributes
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["behind_level"]

_LEVELS = {"debug": "DEBUG", "info": "INFO"}
_SEEN = (
    *("__repr__", "__str__", "__format__", "__getitem__", "__getattr", "__len__", "__missing__", "defaultdict"),
    *("__torch_function__", "__torch_dispatch__", "TorchFunctionMode", "TorchDispatchMode", "suppress", "redirect_std"),
    *("parametriz", "spectral_norm", "weight_norm", "setLoggerClass", "LogRecordFactory", "lastResort", "settrace"),
    *("extra_repr", "get_name", "saved_tensors_hooks", "excepthook", "mock"),
)
_METHODS = frozenset({
    "abs", "all", "any", "argmax", "argmin", "count_nonzero", "cpu", "detach", "dim", "float", "item", "max", "mean",
    "min", "norm", "numel", "size", "sqrt", "square", "std", "sum", "tolist", "var",
})  # fmt: skip
_ASKING = ("type", "list", "tuple")
_FUNCTIONS = ("abs", "float", "int", "len", "repr", "round", "str")
_MAKERS = ("property", "cached_property")  # of attributes that are computed
_CONSUMERS = ("list", "max", "min", "sorted", "sum", "tuple")  # of what is no iterator: a shape, a list
_NOTHING = "a message for a log, with more in it than variables, is not found on this line, or in what it calls"


def behind_level(place: EditPlace) -> WrittenEdit:
    """Put the messages of the finding's function, or of those that its line calls, behind the level of their log."""
    project = place.project
    seen = next((name for name in _SEEN if name in project.mentions), "") or own_operator(project)
    seen = seen or runs_meanwhile(project) or _made_elsewhere(project)
    if seen:
        return place.left(f"{seen}: making the text may do more than that")
    texts, left = _Texts(project), _NOTHING
    scopes = [(place.source, place.source.scope(place.statement)), *called_at(project, place.statement)]
    for source, scope in scopes:
        for statement, call in _messages(source, scope):
            reason = texts.unsure(source, statement, call)
            left = source.at(statement, reason) if reason and left is _NOTHING else left
        found = [each for each in _messages(source, scope) if not texts.unsure(source, *each)]
        if found:
            try:
                return WrittenEdit(_written(project, source, found), changed=1)
            except Unplaced:
                left = source.at(found[0][0], "there is no place for a condition")
    return place.left(left)


def _messages(source: SourceFile, scope: ast.AST) -> Iterator[tuple[ast.Expr, ast.Call]]:
    """Yield the statements that log something which has to be made before."""
    for node in ast.walk(scope):
        call = node.value if isinstance(node, ast.Expr) else None
        if (
            not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Attribute)
            or source.scope(node) is not scope
        ):
            continue
        making = any(not isinstance(each, ast.Name | ast.Constant) for each in call.args)
        if call.func.attr in _LEVELS and making and not call.keywords and is_plain(call.func.value):
            yield node, call  # type: ignore[misc]


def _written(project: Project, source: SourceFile, found: list[tuple[ast.Expr, ast.Call]]) -> Project:
    """Return the project with a condition before each of the statements.

    Raises:
        Unplaced: there is no place for one.
    """
    logging = module_name(source, "logging")
    if not logging or not all(is_builtin(source, ast.Name(name), _ASKING) for name in _ASKING):
        raise Unplaced
    changes, placed, torch = TextChanges(source), 0, module_name(source, "torch")
    for statement, call in found:
        assert isinstance(call.func, ast.Attribute)
        log, level = changes.text(call.func.value), f"{logging}.{_LEVELS[call.func.attr]}"
        kinds = f"({logging}.Logger, {logging}.RootLogger)"
        asked = list(dict.fromkeys(each for part in call.args for each in _asked(part, torch)))
        if asked and not torch:
            continue
        asks = "".join(f" or {each}" for each in asked)
        with contextlib.suppress(Unplaced):  # a text of several lines
            changes.indented(statement, f"if type({log}) not in {kinds} or {log}.isEnabledFor({level}){asks}:")
            placed += 1
    if not placed:
        raise Unplaced
    return changes.done(project)


def _asked(node: ast.expr, torch: str) -> Iterator[str]:
    """Yield conditions that are true where methods and elements in an expression are not those of tensors."""
    tensors = f"{torch}.Tensor, {torch}.nn.Parameter"
    match node:
        case ast.Subscript(value=ast.Attribute(attr="shape", value=base)):
            yield from _asked(base, torch)
        case ast.Subscript(value=base) if is_plain(base):
            yield f"type({ast.unparse(base)}) not in ({tensors}, list, tuple)"
        case ast.Call(func=ast.Attribute(value=base)) | ast.Subscript(value=base) | ast.Attribute(value=base):
            while isinstance(base, ast.Subscript | ast.Attribute) and not is_plain(base):
                base = base.value
            if is_plain(base) and not isinstance(node, ast.Attribute):
                yield f"type({ast.unparse(base)}) not in ({tensors})"
            yield from _asked(base, torch)
        case _:
            for each in ast.iter_child_nodes(node):
                yield from _asked(each, torch) if isinstance(each, ast.expr) else ()


def _made_elsewhere(project: Project) -> str:
    """Return what makes attributes that are computed, other than in the body of a class; "" for nothing."""
    for source, node in project.nodes(ast.Name, ast.Attribute):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name not in _MAKERS:
            continue
        above = source.parents[node]
        in_class = isinstance(above, ast.Call) and isinstance(source.scope(above), ast.ClassDef)
        if not in_class and not isinstance(above, ast.FunctionDef):
            return name
    return ""


class _Texts:
    """Reads what makes the texts of one project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._own = own_names(project)
        self._set = SetAttributes(project)
        self._catches = catches_anywhere(project)

    def unsure(self, source: SourceFile, statement: ast.Expr, call: ast.Call) -> str:
        """Return why a message may not be left out, "" where it may."""
        caught = caught_at(self._project, source, statement) if self._catches else ""
        if caught:
            return f"an error in it might be caught by {caught}"
        assert isinstance(call.func, ast.Attribute)
        for each in (call.func.value, *call.args):
            loud = self._loud(source, each)
            if loud:
                return f"{ast.unparse(loud)} may do more than give a value"
        return "the log's methods are set" if {*_LEVELS, "isEnabledFor"} & self._set.on_objects else ""

    def _loud(self, source: SourceFile, node: ast.expr) -> ast.expr | None:
        """Return a part of an expression that may do something, None where there is none."""
        match node:
            case ast.Constant() | ast.Name():
                return None
            case ast.Attribute():
                return node if node.attr in self._own else self._loud(source, node.value)
            case ast.Subscript():
                return self._loud(source, node.value) if _is_fixed(node.slice) else node
            case ast.Call():
                return self._called(source, node)
        parts = _parts(node)
        return self._first(source, parts) if parts else node

    def _first(self, source: SourceFile, parts: Iterable[ast.expr]) -> ast.expr | None:
        return next((loud for each in parts if (loud := self._loud(source, each)) is not None), None)

    def _called(self, source: SourceFile, node: ast.Call) -> ast.expr | None:
        if isinstance(node.func, ast.Attribute):
            name, given = node.func.attr, [*node.args, *(each.value for each in node.keywords)]
            known = name in _METHODS and name not in self._own | self._set.on_objects | self._set.on_modules
            fixed = known and all(isinstance(each, ast.Constant) for each in given)
            return self._loud(source, node.func.value) if fixed and not source.names.dotted(node.func) else node
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            return node
        if is_builtin(source, node.func, _FUNCTIONS):
            return self._first(source, node.args)
        is_list = len(node.args) == 1 and _is_list(node.args[0]) and is_builtin(source, node.func, _CONSUMERS)
        return self._loud(source, node.args[0]) if is_list else node


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return the operands of a text or of arithmetic; none for anything else."""
    match node:
        case ast.FormattedValue():
            return [node.value, *([node.format_spec] if node.format_spec else [])]
        case ast.JoinedStr() | ast.BoolOp():
            return node.values
        case ast.BinOp():
            return [node.left, node.right]
        case ast.UnaryOp():
            return [node.operand]
        case ast.Compare() if not any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):  # which may walk
            return [node.left, *node.comparators]
        case ast.IfExp():
            return [node.test, node.body, node.orelse]
    return []


def _is_fixed(index: ast.expr) -> bool:
    """Return whether an index is of whole numbers and slices of such."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    slices = [each for each in parts if isinstance(each, ast.Slice)]
    numbers = [each for each in parts if not isinstance(each, ast.Slice)]
    numbers += [one for each in slices for one in (each.lower, each.upper, each.step) if one is not None]
    return all(map(_is_number, numbers))


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_list(node: ast.expr) -> bool:
    """Return whether something is a shape, or what `tolist()` gives."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Attribute) and name.attr == ("shape" if name is node else "tolist")
