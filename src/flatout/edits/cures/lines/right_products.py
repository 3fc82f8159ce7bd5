"""A function that multiplies matrices from the right, written into a file of the user's, and when it may be.

What it is given shows when the script runs: anything but tensors of two or more dimensions and of one type is
multiplied as before. A graph keeps other factors then, so that nothing may write into one before the backward pass.
"""

import ast
import re
from collections.abc import Collection, Iterator

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["unsure_of", "with_function"]

_WATCHED = re.compile(r"\bn?jit\b|\bregister_(?:hook|post_accumulate_grad_hook)\b|\bsaved_tensors_hooks\b")
_UNRECORDED = ("torch.no_grad", "torch.inference_mode")
_BUILT = re.compile(r"_*(init|reset|build|make|setup)")  # functions that run before anything is multiplied
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_KINDS = "(torch.Tensor, torch.nn.Parameter)"
_LINES = (
    "    import torch",
    "",
    "    for each in factors:",
    f"        if type(each) not in {_KINDS} or each.ndim < 2 or each.dtype != factors[0].dtype:",
    "            break",
    "    else:",
    "        if factors[-1].layout is torch.strided:",
    "            product = factors[-1]",
    "            for factor in factors[-2::-1]:",
    "                product = factor @ product",
    "            return product",
    "    product = factors[0]",
    "    for factor in factors[1:]:",
    "        product = product @ factor",
    "    return product",
)


def unsure_of(place: EditPlace, factors: Collection[ast.expr]) -> str:
    """Return why a product of these variables and attributes is not to be made from the right; "" for nothing."""
    project, source = place.project, place.source
    watching = _WATCHED.search(project.mentions)
    if watching:
        return f"{watching.group()} may see in which order the product is made"
    anything = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(source.tree))
    if anything or not is_builtin(source, ast.Name("type"), ("type",)):
        return "type() may be another function in this file"
    names = {each.attr if isinstance(each, ast.Attribute) else each.id for each in factors}  # type: ignore[attr-defined]
    for written, node in () if _is_unrecorded(source, place.statement) else _writes(project, names):
        if _may_come_between(place, written, node):
            return written.at(node, "a factor is written to, which the backward pass may need")
    return ""


def with_function(place: EditPlace, changes: TextChanges) -> str:
    """Write the function behind the imports that stand before the statement; return what it is called.

    Raises:
        Unplaced: there are none.
    """
    source = place.source
    imports = [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    above = [node for node in imports if node.lineno < place.statement.lineno]
    if not above:
        raise Unplaced
    name = fresh_name(source, "multiplied")
    changes.after(above[-1], "", "", f"def {name}(*factors):  # matrices from the right, which takes less", *_LINES)
    return name


def _writes(project: Project, names: Collection[str]) -> Iterator[tuple[SourceFile, ast.expr | ast.stmt]]:
    """Yield what may write into something that is called by one of these names."""
    for source, node in project.nodes(ast.Call, ast.AugAssign, ast.Subscript):
        written: list[ast.expr] = []
        if isinstance(node, ast.AugAssign):
            written = [node.target]
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            written = [node.value]
        elif isinstance(node, ast.Call):
            written = [each.value for each in node.keywords if each.arg == "out"]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("numpy", "copyto") or (called.endswith("_") and called != "requires_grad_"):
                is_method = isinstance(node.func, ast.Attribute) and not source.names.dotted(node.func)
                written += [node.func.value] if is_method else node.args  # type: ignore[attr-defined]
        if any(_parts(each) & set(names) for each in written):
            yield source, node


def _parts(node: ast.expr) -> set[str]:
    """Return the names that lead to what an expression is, or is a part of."""
    found: set[str] = set()
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        found |= {node.attr} if isinstance(node, ast.Attribute) else set()
        node = node.func if isinstance(node, ast.Call) else node.value
    return found | ({node.id} if isinstance(node, ast.Name) else set())


def _is_unrecorded(source: SourceFile, statement: ast.stmt) -> bool:
    """Return whether a statement stands where no graph is recorded."""
    for above in source.above(statement):
        items = [each.context_expr for each in above.items] if isinstance(above, ast.With) else []
        items += above.decorator_list if isinstance(above, Function) else []
        called = [each.func if isinstance(each, ast.Call) else each for each in items]
        if any(source.names.dotted(each) in _UNRECORDED for each in called):
            return True
    return False


def _may_come_between(place: EditPlace, source: SourceFile, node: ast.expr | ast.stmt) -> bool:
    """Return whether a write may come behind the product: not one before it, or into something that is just made."""
    scope, own = source.scope(node), place.source.scope(place.statement)
    if scope is own and source is place.source:
        loops = [each for each in source.above(node) if isinstance(each, ast.For | ast.While)]
        return node.lineno > place.statement.lineno or any(each in loops for each in source.above(place.statement))
    if not isinstance(scope, _SCOPES):
        return any(isinstance(each, ast.For | ast.While) for each in source.above(node))
    if isinstance(scope, Function) and _BUILT.match(scope.name):
        return False
    base = next((each for each in ast.walk(node) if isinstance(each, ast.Name)), None)
    made = {each.id for each in ast.walk(scope) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    given = {each.arg for each in ast.walk(scope) if isinstance(each, ast.arg)}
    return base is None or base.id in given or base.id not in made
