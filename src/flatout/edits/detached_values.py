"""What is kept from step to step, kept without its graph: `.detach()` where it is added to a total or a list."""

import ast
from collections.abc import Sequence

import libcst as cst

from flatout.edits.reading.blocks import block_of, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name, may_be_trained_on, named_in
from flatout.edits.reading.graphs.number_uses import NumberUses
from flatout.edits.reading.graphs.recorded_values import is_torch_function
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.writes.changed_meanings import changed_meaning
from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import WrittenEdit, with_changes

__all__ = ["detached"]

_ADD = {"append", "appendleft", "add"}
_JOIN = {"torch.stack", "torch.cat", "torch.concat", "torch.vstack", "torch.hstack"}  # of tensors alone
_SELDOM = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OF_TENSORS = {"argmax", "backward", "cpu", "dim", "item", "mean", "reshape", "softmax", "squeeze", "view"}


def detached(project: Project, source: SourceFile, statement: ast.stmt) -> WrittenEdit:
    """Keep a tensor without its graph on the line that keeps it."""
    kept = _kept(statement)
    if kept is None:
        return WrittenEdit(project, left=(source.at(statement, "the line does not show what is kept here"),))
    holder, value = kept
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "detach":
        return WrittenEdit(project, there=1)
    if may_be_trained_on(project, source, statement, {last_name(holder)}):
        return WrittenEdit(project, left=(source.at(statement, "what is kept may be used in a backward pass"),))
    if not _is_tensor(project, source, value, holder):
        said = f"{ast.unparse(value)} may not be a single tensor: keep its .detach() by hand"
        return WrittenEdit(project, left=(source.at(statement, said),))
    uses = NumberUses(project)
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp) and isinstance(holder, ast.Name):
        uses.bound(source, holder, statement.value)
    else:
        uses.held(source, holder)
    reason = uses.reason or changed_meaning(project)
    if reason:
        return WrittenEdit(project, left=(reason,))
    return WrittenEdit(with_changes(project, lines=[(source, statement.lineno, _detach)]), changed=1)


def _kept(statement: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """Return what keeps and what is kept, of `total += loss`, `losses.append(loss)` and `total = total + loss`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        return statement.target, statement.value
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        adds = isinstance(call.func, ast.Attribute) and call.func.attr in _ADD
        if adds and isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords:
            return call.func.value, call.args[0]
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        sum_of = value if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) else None
        if sum_of is not None and ast.unparse(sum_of.left) == ast.unparse(target):
            return target, sum_of.right
        if isinstance(target, ast.Subscript):
            return target.value, value
    return None


def _is_tensor(project: Project, source: SourceFile, value: ast.expr, holder: ast.expr) -> bool:
    """Return whether `value` is a tensor in any case: made by torch, used as nothing else is, or joined with others."""
    if isinstance(value, ast.BinOp):
        return _is_tensor(project, source, value.left, holder) or _is_tensor(project, source, value.right, holder)
    if isinstance(value, ast.Call) and is_torch_function(source, value.func):
        return True
    joined = [(place, call) for place, call in project.calls(*_JOIN) if call.args]
    if any(last_name(holder) in named_in(call.args[0]) for _, call in joined):
        return True
    if isinstance(value, ast.Call):
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        return (
            method in _OF_TENSORS - {"backward", "dim", "item"}
            and method not in project.functions
            and not source.names.dotted(value.func)
        )
    return isinstance(value, ast.Name) and (_is_walked(source, value) or _is_made(project, source, value, holder))


def _is_made(project: Project, source: SourceFile, name: ast.Name, holder: ast.expr) -> bool:
    """Return whether a variable is bound to tensors of torch's alone."""
    scope = source.scope(name)
    inside = list(ast.walk(scope))
    bound = [v for each in inside for to, v in pairs(each) if isinstance(to, ast.Name) and to.id == name.id]
    stored = [each for each in inside if isinstance(each, ast.Name) and each.id == name.id]
    stored = [each for each in stored if not isinstance(each.ctx, ast.Load)]
    given = any(isinstance(each, ast.arg) and each.arg == name.id for each in inside)
    names = [each for each in bound if not isinstance(each, ast.Name)]
    is_seen = bool(bound) and len(bound) == len(stored) == len(names) and not given
    return is_seen and all(_is_tensor(project, source, each, holder) for each in bound)


def _is_walked(source: SourceFile, name: ast.Name) -> bool:
    """Return whether `name.backward()`, or the like, stands before in any case, and the name is the same since."""
    for above in (source.statement(name), *source.above(source.statement(name))):
        if not isinstance(above, ast.stmt) or above is source.scope(name):
            return False
        block = block_of(source, above)
        for each in reversed(block[: block.index(above)]):
            call = each.value if isinstance(each, ast.Expr) else None
            walked = [node for node in ast.walk(call) if _is_use(node, name.id)] if isinstance(call, ast.Call) else []
            if walked and not any(isinstance(node, _SELDOM) for node in ast.walk(each)):
                return True
            if name.id in stores([each]):
                return False
        if name.id in stores([above]):
            return False
    return False


def _is_use(node: ast.AST, name: str) -> bool:
    of_name = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    return of_name and isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS


def _detach(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
    del module
    if len(statement.body) != 1:
        raise Unplaced
    (line,) = statement.body
    if isinstance(line, cst.AugAssign):
        changed: cst.BaseSmallStatement = line.with_changes(value=_without_graph(line.value))
    elif isinstance(line, cst.Expr):
        call = cst.ensure_type(line.value, cst.Call)
        kept = call.args[0].with_changes(value=_without_graph(call.args[0].value))
        changed = line.with_changes(value=call.with_changes(args=[kept]))
    elif isinstance(line, cst.Assign) and isinstance(line.targets[0].target, cst.Subscript):
        changed = line.with_changes(value=_without_graph(line.value))
    elif isinstance(line, cst.Assign):
        both = cst.ensure_type(line.value, cst.BinaryOperation)
        changed = line.with_changes(value=both.with_changes(right=_without_graph(both.right)))
    else:
        raise Unplaced
    return (statement.with_changes(body=[changed]),)


def _without_graph(value: cst.BaseExpression) -> cst.Call:
    simple = isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or value.lpar
    inner = value if simple else value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Call(func=cst.Attribute(value=inner, attr=cst.Name("detach")))
