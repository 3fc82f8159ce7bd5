"""Whether a training may go on after an error in one of its statements, and whether all ways that lead there are seen.

An error that nobody catches ends the script. Handlers of `KeyboardInterrupt` alone are none: what is asked about raises
none. Neither is a `finally` that does not leave its place.
"""

import ast

from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.direct_calls import direct_calls
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["catches_anywhere", "caught_at"]

_CONTEXTS = frozenset({
    "torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.set_grad_enabled", "torch.autocast",
    "torch.amp.autocast", "torch.cuda.amp.autocast", "tqdm.tqdm", "tqdm.auto.tqdm",
})  # fmt: skip
_LEAVES = ast.Return | ast.Break | ast.Continue | ast.Yield | ast.YieldFrom


def catches_anywhere(project: Project) -> bool:
    """Return whether something in a project might catch an error: a `try`, or a `with` that may not let it go."""
    if any(True for _ in project.nodes(ast.Try, ast.TryStar, ast.AsyncWith)):
        return True
    contexts = [(source, item.context_expr) for source, node in project.nodes(ast.With) for item in node.items]
    return any(
        not isinstance(each, ast.Call) or source.names.dotted(each.func) not in _CONTEXTS for source, each in contexts
    )


def caught_at(project: Project, source: SourceFile, node: ast.AST) -> str:
    """Return what may catch an error that a statement raises, or run the statement unseen; "" where nothing does."""
    return _caught(project, source, node, set())


def _caught(project: Project, source: SourceFile, node: ast.AST, seen: set[ast.AST]) -> str:
    inner = node
    for above in source.above(node):
        if isinstance(above, Function):
            return _called(project, source, above, inner, seen)
        if isinstance(above, ast.Lambda | ast.ClassDef | ast.GeneratorExp | ast.AsyncFor | ast.AsyncWith):
            return source.at(_placed(node), f"{type(above).__name__} runs it")
        if isinstance(above, ast.Try | ast.TryStar) and not _goes_through(source, above):
            return source.at(above, "try")
        if isinstance(above, ast.With):
            for item in above.items:
                call = item.context_expr
                dotted = source.names.dotted(call.func) if isinstance(call, ast.Call) else ""
                if dotted not in _CONTEXTS and inner is not item:
                    return source.at(above, f"with {ast.unparse(item.context_expr)}")
        inner = above
    return "" if source is project.script else source.at(_placed(node), "the module's import")


def _called(project: Project, source: SourceFile, function: Function, inner: ast.AST, seen: set[ast.AST]) -> str:
    """Return what may catch an error that leaves a function."""
    if function in seen:
        return ""
    seen.add(function)
    calls = direct_calls(project, source, function) if inner in function.body else None
    if not calls:
        return source.at(function, f"whoever calls {function.name}(), which is not seen")
    return next(filter(None, (_caught(project, place, call, seen) for place, call in calls)), "")


def _placed(node: ast.AST) -> ast.stmt | ast.expr:
    assert isinstance(node, ast.stmt | ast.expr)
    return node


def _goes_through(source: SourceFile, node: ast.Try | ast.TryStar) -> bool:
    """Return whether an error of a computation leaves a `try` statement."""
    if any(isinstance(each, _LEAVES) for part in node.finalbody for each in ast.walk(part)):
        return False
    kinds = [each.type for each in node.handlers]
    is_bound = "KeyboardInterrupt" in source.names.bound or "KeyboardInterrupt" in source.names.imports
    return not is_bound and all(isinstance(each, ast.Name) and each.id == "KeyboardInterrupt" for each in kinds)
