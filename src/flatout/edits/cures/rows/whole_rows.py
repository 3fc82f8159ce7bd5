"""A loop of Python over the rows of a tensor, as one operation on all of them: `torch.vmap` of the loop's body.

Each turn of such a loop is a handful of operations of some microseconds each, whatever they compute. The body becomes
a function of a row; `torch.vmap` does its operations to many rows at once, in parts, so that memory stays bounded. What
is no tensor when the loop is reached (a list of rows, an array, nothing at all) goes through the loop as it stands.
"""

import ast
from collections.abc import Sequence

from flatout.edits.cures.rows.row_bodies import NotOfRows, RowBody, RowFacts
from flatout.edits.cures.rows.row_code import RowWork, call_of_all, condition, definition, instead_of_loop
from flatout.edits.cures.rows.row_comprehensions import ending, listed, row_values
from flatout.edits.cures.rows.row_loops import RowLoop, row_loops
from flatout.edits.cures.rows.row_names import bound_in, is_read_outside
from flatout.edits.cures.rows.row_results import RowResult, refused_result, row_results
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.called_functions import called_at
from flatout.edits.reading.effects.caught_errors import caught_at
from flatout.edits.reading.effects.operator_classes import SEES_ALL, operators
from flatout.edits.reading.effects.pure_calls import words
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["by_all_rows"]

_NOTHING = "a loop over the rows of a tensor, each of which is computed with alone, is not found here"
_DECORATORS = ("no_grad", "inference_mode", "enable_grad", "staticmethod", "classmethod", "property")
_NEEDED = frozenset({"all", "len", "max", "min", "range", "type"})
_ASKS = ("__getattr__", "__getattribute__", "__get__")
_SEES = SEES_ALL - {*_ASKS}
_DYNAMIC = frozenset({"locals", "globals", "vars", "exec", "eval"})
_ARITHMETIC = words("add sub mul truediv floordiv mod pow matmul neg pos abs invert and or xor lt le gt ge ne eq")


def by_all_rows(place: EditPlace) -> WrittenEdit:
    """Write loops over rows as one operation: at the line, around it, in what it calls, or in the same function."""
    reasons: list[str] = []
    own = _found(place.project, place.source, place.source.scope(place.statement), reasons)
    near = [each for each in own if _is_near(place, each.loop.node)]
    groups = [(place.source, near)]
    groups += [(at, _found(place.project, at, each, reasons)) for at, each in called_at(place.project, place.statement)]
    for source, found in [*groups, (place.source, own)]:
        if found:
            return _written(place.project, source, found)
    return WrittenEdit(place.project, left=tuple(dict.fromkeys(reasons))) if reasons else place.left(_NOTHING)


def _is_near(place: EditPlace, loop: ast.AST) -> bool:
    return place.statement in ast.walk(loop) or loop in ast.walk(place.statement)


# -- finding them -----------------------------------------------------------------------------------------------------


def _found(project: Project, source: SourceFile, scope: ast.AST, reasons: list[str]) -> list[RowWork]:
    found: list[RowWork] = []
    if not isinstance(scope, Function | ast.Module):
        return found
    for loop in row_loops(source, scope):
        rest, results = row_results(source, loop) if isinstance(loop.node, ast.For) else ([], row_values(source, loop))
        if all(each.is_fixed for each in results):
            continue
        facts = RowFacts()
        reason = _refused_place(project, source, loop, results)
        reason = reason or _refused_body(project, source, loop, rest, results, facts)
        if reason:
            reasons.append(source.at(loop.node, reason))
        else:
            found.append(RowWork(source, loop, rest, results, facts))
    return found


def _refused_place(project: Project, source: SourceFile, loop: RowLoop, results: Sequence[RowResult]) -> str:
    """Return why nothing is changed where a loop stands, "" where it can be."""
    scope = source.scope(loop.node)
    for each in getattr(scope, "decorator_list", ()):
        name = ast.unparse(each.func if isinstance(each, ast.Call) else each)
        if name.rpartition(".")[2] not in _DECORATORS:
            return f"{name} may do something else with another body"
    other = sorted(_NEEDED & {*source.names.bound, *source.names.imports})
    if other:
        return f"{other[0]} has another meaning in this file"
    reason = _refused_script(project)
    if reason:
        return reason
    for each in ast.walk(loop.over):
        if isinstance(each, ast.Attribute) and each.attr in project.functions:
            return f"{ast.unparse(each)} may be a property"
    caught = caught_at(project, source, source.statement(loop.node))
    if caught:
        return f"an error in the middle of the loop would be caught ({caught})"
    if not isinstance(loop.node, ast.For):
        return ""
    kept = sorted(bound_in(loop.node) - {ast.unparse(each.into) for each in results if each.adds})
    read = next((name for name in kept if is_read_outside(source, loop.node, name)), "")
    return f"{read} is read behind the loop, too" if read else ""


def _refused_script(project: Project) -> str:
    """Return why no loop of a script is changed, "" where they may be."""
    called = {each.func.id for _, each in project.nodes(ast.Call) if isinstance(each.func, ast.Name)}
    if called & _DYNAMIC:
        return f"{min(called & _DYNAMIC)}() may see the variables of a loop"
    if "jit.script" in project.mentions or "jit.trace" in project.mentions:
        return "torch.jit takes no function within a function"
    for name, methods in operators(project).items():
        bases = [base for _, each in project.classes.get(name, ()) for base in each.bases]
        is_tensor = any(ast.unparse(base).rpartition(".")[2] in ("Tensor", "Parameter") for base in bases)
        own = [each.name for _, each in methods if each is not None]
        if is_tensor or any(each in _SEES or each.strip("_").lstrip("r") in _ARITHMETIC for each in own):
            return f"{name} may compute in a way of its own"
    return ""


def _refused_body(
    project: Project,
    source: SourceFile,
    loop: RowLoop,
    rest: Sequence[ast.stmt],
    results: Sequence[RowResult],
    facts: RowFacts,
) -> str:
    """Return why a body is not done to all rows at once, "" where it is; `facts` is filled."""
    body = RowBody(project, source, loop, facts)
    try:
        for each in rest:
            body.binds(each)
        for one in (each for each in results if not each.is_fixed):
            body.value(one.value)
            if not body.has_row(one.value):
                return f"`{ast.unparse(one.value)}` may be no tensor"
    except NotOfRows as error:
        return str(error)
    read = [each for each in [*facts.outer.values(), loop.over] if isinstance(each, ast.Attribute)]
    asked = next((name for name in _ASKS if name in project.functions), "")
    if read and asked:
        return f"{asked} may act where {ast.unparse(read[0])} is read"
    if not facts.params:
        return "nothing in the loop is a row of something"
    if not isinstance(loop.node, ast.For):
        return ""
    into = [ast.unparse(each.into) for each in results]
    if len({*into}) < len(into):
        return "a turn writes twice to one place"
    if len(into) > 1 and facts.params.keys() & {*into}:
        return f"{min(facts.params.keys() & {*into})} is read and written in one turn"
    reasons = (refused_result(project, source, loop, each, facts) for each in results)
    return next(filter(None, reasons), "")


# -- writing them -----------------------------------------------------------------------------------------------------


def _name(source: SourceFile, work: RowWork) -> str:
    """Return what is made of the rows, in a word."""
    node: ast.AST = work.varying[0].into
    statement = source.statement(work.loop.node)
    if not isinstance(work.loop.node, ast.For):
        node = statement.targets[0] if isinstance(statement, ast.Assign) else statement
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "value"


def _written(project: Project, source: SourceFile, found: Sequence[RowWork]) -> WrittenEdit:
    changes, given = TextChanges(source), set[str]()
    torch = next((name for name, dotted in source.names.imports.items() if dotted == "torch"), "torch")
    for work in found:
        node, result = work.loop.node, work.varying[0]
        wanted = f"row_to_{_name(source, work)}"
        name, number = fresh_name(source, wanted), 1
        while name in given:
            number += 1
            name = fresh_name(source, f"{wanted}_{number}")
        given.add(name)
        if isinstance(node, ast.For):
            changes.before(node, *instead_of_loop(work, changes, name, torch))
            changes.indented(node, "else:")
        else:
            statement = source.statement(node)
            changes.before(statement, *definition(work, changes, name))
            lines = [
                f"{call_of_all(work, name, torch)}{ending(result)}",
                f"if {condition(work, name, torch)}",
                f"else {listed(changes.text(result.into))}",
            ]
            indent = "\n" + " " * statement.col_offset
            changes.replace(result.into, f"({''.join(f'{indent}    {line}' for line in lines)}{indent})")
    done = changes.done(project)
    if torch == "torch":
        done = with_import(done, project.sources.index(source), "torch")
    return WrittenEdit(done, changed=1)
