"""What an untrained network gives, followed to where it meets what a trained one gives and has its graph."""

import ast

from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.number_uses import TENSOR_METHODS, is_model, renewed_between
from flatout.edits.reading.graphs.recorded_values import ENDING, WITHOUT_GRAPH, is_torch_function
from flatout.edits.reading.graphs.untrained_models import optimizer_owners
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.training_loops import is_without_gradients

__all__ = ["JoinedUses"]


class JoinedUses:
    """Follows what a statement binds."""

    def __init__(self, project: Project) -> None:
        """Take what the optimizers of the project hold."""
        self._project = project
        self._flow = Flow(project)
        owners = optimizer_owners(project) or ()
        self._trained = {call for owner in owners for _, call in self._flow.origins(*owner)}
        self._seen: set[ast.AST] = set()

    def seen(self, source: SourceFile, statement: ast.stmt) -> str:
        """Return what may see that the values which a statement binds have no graph, "" for nothing."""
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = [part for each in targets for part in ast.walk(each) if isinstance(part, ast.Name)]
        if not targets or any(
            isinstance(part, ast.Attribute | ast.Subscript) for each in targets for part in ast.walk(each)
        ):
            return source.at(statement, "what it binds is kept")
        return next(filter(None, (self._read(source, name) for name in names)), "")

    def _read(self, source: SourceFile, target: ast.Name) -> str:
        if target in self._seen:
            return ""
        self._seen.add(target)
        scope = source.scope(target)
        if any(
            isinstance(node, ast.Global | ast.Nonlocal) and target.id in node.names for node in ast.walk(source.tree)
        ):
            return source.at(target, f"{target.id} is read elsewhere, too")
        for node in ast.walk(scope):
            if not isinstance(node, ast.Name) or node.id != target.id or not isinstance(node.ctx, ast.Load):
                continue
            if source.scope(node) is not scope:
                return source.at(node, f"{target.id} is read elsewhere, too")
            if not renewed_between(source, target, node):
                found = self._follow(source, node)
                if found:
                    return found
        return ""

    def _follow(self, source: SourceFile, node: ast.expr) -> str:
        """Return what sees a value at its place, or what is made of it, before it meets something trained."""
        above = source.parents[node]
        if isinstance(above, ast.Assign) and all(isinstance(each, ast.Name) for each in above.targets):
            return next(filter(None, (self._read(source, each) for each in above.targets)), "")  # type: ignore[arg-type]
        if isinstance(above, ast.Compare):
            odd = any(isinstance(each, ast.Is | ast.IsNot | ast.In | ast.NotIn) for each in above.ops)
            return self._sees(source, above) if odd else ""
        if isinstance(above, ast.Attribute):
            return self._in_attribute(source, above)
        if isinstance(above, ast.Call):
            return self._in_call(source, node, above)
        if isinstance(above, ast.BinOp) and not isinstance(above.op, ast.Mod):
            other = above.right if node is above.left else above.left
            return "" if self._is_trained(source, other) else self._follow(source, above)
        is_item = isinstance(above, ast.Subscript) and node is above.value and isinstance(above.ctx, ast.Load)
        if is_item or isinstance(above, ast.UnaryOp):
            return self._follow(source, above)  # type: ignore[arg-type]
        return self._sees(source, above if isinstance(above, ast.expr) else source.statement(node))

    def _sees(self, source: SourceFile, node: ast.expr | ast.stmt) -> str:
        return source.at(node, f"`{ast.unparse(node)}` may see that it has no graph")

    def _in_attribute(self, source: SourceFile, above: ast.Attribute) -> str:
        call = source.parents[above]
        if above.attr in WITHOUT_GRAPH:
            return ""
        if not isinstance(call, ast.Call) or call.func is not above or above.attr not in TENSOR_METHODS | ENDING:
            return self._sees(source, above)
        joined = above.attr in ENDING or any(self._is_trained(source, each) for each in call.args)
        return "" if joined else self._follow(source, call)

    def _in_call(self, source: SourceFile, node: ast.expr, call: ast.Call) -> str:
        """Return what a call sees of an argument, or what it makes of that."""
        if self._is_of_trained(source, call):
            return ""
        if not is_torch_function(source, call.func) and not is_model(self._project, source, call.func):
            return source.at(call, f"{ast.unparse(call.func)}() may see that it has no graph")
        others = [each for each in call.args if each is not node]
        if last_name(call.func) in ENDING or any(self._is_trained(source, each) for each in others):
            return ""
        return self._follow(source, call)

    def _is_of_trained(self, source: SourceFile, call: ast.Call) -> bool:
        """Return whether what is called is a network that an optimizer holds, in any case."""
        made = {each for _, each in self._flow.origins(source, call.func)}
        return bool(made) and made <= self._trained

    def _is_trained(self, source: SourceFile, node: ast.expr, depth: int = 4) -> bool:
        """Return whether a value has the graph of a network that is trained, in any case."""
        match node:
            case ast.Call():
                return self._gives_graph(source, node, depth)
            case ast.BinOp() if not isinstance(node.op, ast.Mod):
                return any(self._is_trained(source, each, depth) for each in (node.left, node.right))
            case ast.UnaryOp(op=ast.USub()):
                return self._is_trained(source, node.operand, depth)
            case ast.Subscript() | ast.Attribute() if getattr(node, "attr", "") not in WITHOUT_GRAPH | {"data"}:
                return self._is_trained(source, node.value, depth)
            case ast.Name() if depth:
                inside = list(ast.walk(source.scope(node)))
                bound = [v for one in inside for to, v in pairs(one) if isinstance(to, ast.Name) and to.id == node.id]
                named = [each for each in inside if isinstance(each, ast.Name) and each.id == node.id]
                stored = [each for each in named if not isinstance(each.ctx, ast.Load)]
                whole = bool(bound) and len(bound) == len(stored)
                return whole and all(self._is_trained(source, value, depth - 1) for value in bound)
        return False

    def _gives_graph(self, source: SourceFile, call: ast.Call, depth: int) -> bool:
        """Return whether what a call gives has the graph of a trained network."""
        name = last_name(call.func)
        if is_without_gradients(source, call) or name in ENDING | {"detach", "numpy"}:
            return False
        if self._is_of_trained(source, call):
            return True
        if isinstance(call.func, ast.Attribute) and not source.names.dotted(call.func) and name in TENSOR_METHODS:
            return self._is_trained(source, call.func.value, depth)
        joins = is_torch_function(source, call.func) or is_model(self._project, source, call.func)
        return joins and any(self._is_trained(source, each, depth) for each in call.args)
