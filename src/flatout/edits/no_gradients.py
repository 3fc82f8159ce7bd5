"""Validation without gradients: `torch.no_grad()` on the function that evaluates, or around its loop."""

import ast
from collections.abc import Iterator

import libcst as cst

from flatout.edits.reading.gradient_flow import may_be_trained_on
from flatout.edits.reading.graphs.kept_graphs import read_otherwise
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import is_without_gradients, trains
from flatout.edits.rewrite import OnBlock, parse_line
from flatout.edits.written_edit import WrittenEdit, with_changes, with_import

__all__ = ["without_gradients"]

_OFF = "torch.no_grad()"
_OF_FUNCTIONS = (
    "__code__",
    "__closure__",
    "__defaults__",
    "__kwdefaults__",
    "__globals__",
    "__wrapped__",
    "__qualname__",
)
_CALLED_BY_OTHERS = {"forward", "__call__", "__getitem__", "__iter__", "__next__", "training_step"}


def without_gradients(project: Project, source: SourceFile, statement: ast.stmt) -> WrittenEdit:
    """Switch gradients off where `statement`, a line of a validation, stands."""
    if is_without_gradients(source, statement):
        return WrittenEdit(project, there=1)
    function = _evaluating(project, source, statement)
    if function is not None:
        place, node = function
        if is_without_gradients(place, node.body[0]):
            return WrittenEdit(project, there=1)
        if any(may_be_trained_on(project, place, each) for each in node.body):
            return WrittenEdit(project, left=(source.at(statement, "what it keeps may be used in a backward pass"),))
        if any(may_be_trained_on(project, *each, {node.name}) for each in _calls(project, node)):
            return WrittenEdit(project, left=(source.at(statement, "what it returns may be used in a backward pass"),))
        looked_at = next((each for each in _OF_FUNCTIONS if each in project.mentions), "")
        otherwise = f"{looked_at} may see the decorator" if looked_at else read_otherwise(project, place, node.body)
        if otherwise:
            return WrittenEdit(project, left=(otherwise,))
        return _written(project, place, node, _decorated)
    loop = _loop(project, source, statement)
    if loop is None:
        said = "the loop that validates, apart from what trains, is not found there"
        return WrittenEdit(project, left=(source.at(statement, said),))
    if may_be_trained_on(project, source, loop):
        return WrittenEdit(project, left=(source.at(statement, "what it computes may be used in a backward pass"),))
    leaves = any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in ast.walk(loop))
    otherwise = "the loop hands control to others" if leaves else read_otherwise(project, source, [loop])
    if otherwise:
        return WrittenEdit(project, left=(otherwise,))
    return _written(project, source, loop, _wrapped)


def _evaluating(project: Project, source: SourceFile, statement: ast.stmt) -> tuple[SourceFile, Function] | None:
    """Return the function that does nothing but evaluate: that of the statement, or the one that it calls."""
    own = source.scope(statement)
    if isinstance(own, Function):
        return (source, own) if _only_evaluates(project, source, own) else _called(project, statement)
    return _called(project, statement)


def _called(project: Project, statement: ast.stmt) -> tuple[SourceFile, Function] | None:
    if isinstance(statement, ast.For | ast.While | ast.With | ast.If | Function | ast.ClassDef | ast.Try):
        return None
    names = {_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    found = [each for name in sorted(names) for each in project.functions.get(name, ())]
    return found[0] if len(found) == 1 and _only_evaluates(project, *found[0]) else None


def _only_evaluates(project: Project, source: SourceFile, function: Function) -> bool:
    generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    wrapped = any(ast.unparse(each) not in ("staticmethod", "classmethod") for each in function.decorator_list)
    wrapped = wrapped and not any("no_grad" in ast.unparse(each) for each in function.decorator_list)
    return not (generator or wrapped or function.name in _CALLED_BY_OTHERS or trains(project, source, function))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _calls(project: Project, function: Function) -> Iterator[tuple[SourceFile, ast.stmt]]:
    """Yield the statements in which a function is called."""
    for source, call in project.nodes(ast.Call):
        if _name(call) == function.name:
            yield source, source.statement(call)


def _loop(project: Project, source: SourceFile, statement: ast.stmt) -> ast.For | ast.While | None:
    """Return the outermost loop around a statement in which nothing is trained."""
    scope, found = source.scope(statement), None
    for node in (statement, *source.above(statement)):
        if node is scope or trains(project, source, node):
            break
        found = node if isinstance(node, ast.For | ast.While) else found
    return found


def _written(project: Project, source: SourceFile, node: ast.For | ast.While | Function, how: OnBlock) -> WrittenEdit:
    at = project.sources.index(source)
    changed = with_changes(project, blocks=[(source, node.lineno, how)])
    return WrittenEdit(with_import(changed, at, "torch"), changed=1)


def _decorated(block: cst.BaseCompoundStatement, module: cst.Module) -> cst.BaseStatement:
    function = cst.ensure_type(block, cst.FunctionDef)
    decorator = cst.Decorator(cst.parse_expression(_OFF))
    return function.with_changes(decorators=[*function.decorators, decorator])


def _wrapped(block: cst.BaseCompoundStatement, module: cst.Module) -> cst.BaseStatement:
    inner = block.with_changes(leading_lines=())
    around = cst.ensure_type(parse_line(f"with {_OFF}:\n{module.default_indent}pass\n", module), cst.With)
    body = cst.ensure_type(around.body, cst.IndentedBlock).with_changes(body=[inner])
    return around.with_changes(body=body, leading_lines=getattr(block, "leading_lines", ()))
