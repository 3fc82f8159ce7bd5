"""Whether an error at some place is seen to be caught, so that the script goes on in another way than without it.

Callers are followed as far as they are seen. `purity.caught_errors` asks for more: that all of them are.
"""

import ast

from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["caught_at", "seen_around"]

_DEPTH = 4  # functions that call one another
_OF_USERS = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})  # raised by no computation
_PASSING = (
    "torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.set_grad_enabled", "torch.autocast",
    "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.profiler.", "torch.autograd.profiler.", "torch.device",
    "tqdm.",
)  # fmt: skip
_ENDS = frozenset({"exit", "_exit", "abort"})


def caught_at(project: Project, source: SourceFile, statement: ast.stmt) -> str:
    """Return what catches an error that a statement raises, "" where that ends the training, as far as is seen."""
    todo: list[tuple[SourceFile, ast.AST, int]] = [(source, statement, 0)]
    seen: set[str] = set()
    for place, node, depth in todo:  # grows while it is read
        inner = node
        for above in place.above(node):
            if isinstance(above, ast.Try | ast.TryStar) and inner in above.body and any(map(_goes_on, above.handlers)):
                return place.at(above, "`try`")
            if isinstance(above, ast.With | ast.AsyncWith) and any(_swallows(project, each) for each in above.items):
                return place.at(above, f"`{ast.unparse(above.items[0])}`")
            if isinstance(above, Function):
                if depth < _DEPTH and above.name not in seen:
                    seen.add(above.name)
                    calls = [each for each in project.nodes(ast.Call) if last_name(each[1].func) == above.name]
                    todo += [(at, call, depth + 1) for at, call in calls]
                break
            inner = above
    return ""


def seen_around(source: SourceFile, node: ast.AST) -> str:
    """Return what may go on in the same function after an error below `node`, "" where nothing does."""
    for above in source.above(node):
        if isinstance(above, Function | ast.Lambda):
            return ""
        if isinstance(above, ast.Try | ast.TryStar):
            return "an error in the loop may be caught, and what was added read then"
        if isinstance(above, ast.AsyncFor | ast.AsyncWith | ast.ClassDef):
            return "it stands in the body of a class, or other code runs meanwhile"
        if isinstance(above, ast.With):
            passing = [_is_passing(source, each.context_expr) for each in above.items]
            if not all(passing):
                return f"`with {ast.unparse(above.items[passing.index(False)])}` may end an error of the loop"
    return ""


def _is_passing(source: SourceFile, call: ast.expr) -> bool:
    """Return whether a context lets all errors pass, and changes nothing but gradients and types."""
    if not isinstance(call, ast.Call):
        return False
    dotted = source.names.dotted(call.func)
    opens = isinstance(call.func, ast.Name) and call.func.id == "open" and not dotted
    return dotted.startswith(_PASSING) or (opens and "open" not in source.names.bound)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler takes errors of computations, and neither raises one again nor ends the script."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if all(each is not None and last_name(each) in _OF_USERS for each in kinds):
        return False
    last = handler.body[-1]
    is_end = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and last_name(last.value.func) in _ENDS
    return not (isinstance(last, ast.Raise) or is_end)


def _swallows(project: Project, item: ast.withitem) -> bool:
    """Return whether a context may end an error: contextlib.suppress, or one of the user's that says so."""
    call = item.context_expr
    name = last_name(call.func) if isinstance(call, ast.Call) else last_name(call)
    if name == "suppress":
        return True
    known = [each for _, each in project.functions.get(name, ())]
    known += [each for _, made in project.classes.get(name, ()) for each in made.body if isinstance(each, Function)]
    return any(_goes_on_from(function, node) for function in known for node in ast.walk(function))


def _goes_on_from(function: Function, node: ast.AST) -> bool:
    if isinstance(node, ast.Try):
        return any(map(_goes_on, node.handlers))
    if function.name != "__exit__" or not isinstance(node, ast.Return) or node.value is None:
        return False
    return not isinstance(node.value, ast.Constant) or bool(node.value.value)
