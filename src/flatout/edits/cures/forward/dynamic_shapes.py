"""`torch.compile` told that sizes change: `dynamic=True`, so that one compiled form serves them all."""

import ast
import re

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["with_dynamic_shapes"]

_COMPILE = "torch.compile"
_SIZES = re.compile(r"size|stride|shape|dim\(\)|ndim")


def with_dynamic_shapes(place: EditPlace) -> WrittenEdit:
    """Compile what the finding is about for all sizes at once."""
    reason = str(place.finding.argument("reason") or "")
    if not _SIZES.search(reason):
        return place.left(
            "no size that changes is why it was compiled again, but another value: pass that as a tensor, or keep it"
        )
    found = _compiled(place)
    if found is None:
        return place.left("which torch.compile() of the source compiles this function cannot be told")
    source, node = found
    changes = TextChanges(source)
    known = [each for each in node.keywords if each.arg in ("dynamic", None)] if isinstance(node, ast.Call) else []
    if known and ast.unparse(known[0].value) == "True" and known[0].arg:
        return WrittenEdit(place.project, there=1)
    if known and (ast.unparse(known[0].value) != "None" or not known[0].arg):
        return place.left("torch.compile() is given dynamic= already")
    if not isinstance(node, ast.Call):
        changes.replace(node, f"{changes.text(node)}(dynamic=True)")
    elif known:
        changes.replace(known[0].value, "True")
    else:
        given = [changes.text(each) for each in node.args]
        given += [f"{each.arg}={changes.text(each.value)}" for each in node.keywords]
        changes.replace(node, f"{changes.text(node.func)}({', '.join([*given, 'dynamic=True'])})")
    return WrittenEdit(changes.done(place.project), changed=1)


def _compiled(place: EditPlace) -> tuple[SourceFile, ast.expr] | None:
    """Return what compiles the function of the finding: its decorator, or the only `torch.compile()` there is."""
    for around in (place.statement, *place.source.above(place.statement)):
        decorators = around.decorator_list if isinstance(around, Function | ast.ClassDef) else []
        for each in decorators:
            if place.source.names.dotted(each.func if isinstance(each, ast.Call) else each) == _COMPILE:
                return place.source, each
    found: list[tuple[SourceFile, ast.expr]] = [*place.project.calls(_COMPILE)]
    known = {each.func for _, each in found if isinstance(each, ast.Call)}
    for source, node in place.project.nodes(ast.Attribute, ast.Name):
        if node not in known and source.names.dotted(node) == _COMPILE:
            found.append((source, node))
    found += [
        (source, call)
        for source, call in place.project.nodes(ast.Call)
        if _compiles_in_place(source, call) and _is_module(place.project, source, call)
    ]
    decorating = [each for each in found if _decorates(*each)]
    return found[0] if len(found) == 1 and not decorating else None


def _compiles_in_place(source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call is `model.compile()`, alone on its line."""
    method = isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and not source.names.dotted(call.func)
    return method and not call.args and isinstance(source.parents[call], ast.Expr)


def _is_module(project: Project, source: SourceFile, call: ast.Call) -> bool:
    """Return whether what is compiled in place is a module of torch's, or of a class made from it."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    made = Flow(project).origins(source, owner)
    return bool(made) and "compile" not in project.functions and all(_makes_module(project, *each) for each in made)


def _makes_module(project: Project, source: SourceFile, call: ast.Call) -> bool:
    if source.names.dotted(call.func).startswith("torch.nn."):
        return True
    known = project.classes.get(last_name(call.func), ())
    bases = [(place, base) for place, made in known for base in made.bases]
    return bool(bases) and any(place.names.dotted(base).startswith("torch.nn.") for place, base in bases)


def _decorates(source: SourceFile, node: ast.expr) -> bool:
    above = source.parents[node]
    return isinstance(above, Function | ast.ClassDef) and node in above.decorator_list
