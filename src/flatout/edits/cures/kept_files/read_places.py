"""The functions that may read a finding's files: around its line, called by it, calling it, or of its data set."""

import ast
from collections.abc import Iterator

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.called_functions import called_at, functions_at
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.loader_classes import DATA_LOADER
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["read_places"]

_METHODS = ("__getitem__", "__getitems__", "__iter__")
_DEPTH = 3  # functions that call one another
_Scope = tuple[SourceFile, ast.AST]


def read_places(place: EditPlace) -> Iterator[_Scope]:
    """Yield functions and modules, each once, the nearest first."""
    seen: set[ast.AST] = set()
    for source, scope in _all(place):
        if isinstance(scope, Function | ast.Module) and scope not in seen:
            seen.add(scope)
            yield source, scope


def _all(place: EditPlace) -> Iterator[_Scope]:
    yield from functions_at(place.project, place.source, place.statement)
    yield from _callers(place)
    yield from _of_data_sets(place)


def _callers(place: EditPlace) -> Iterator[_Scope]:
    """Yield the functions that call the one around the line, and those that call these."""
    todo: list[tuple[ast.AST, int]] = [(place.source.scope(place.statement), 0)]
    for scope, depth in todo:  # grows while it is read
        if not isinstance(scope, Function) or depth == _DEPTH or scope.name == "__init__":
            continue
        for source, call in place.project.nodes(ast.Call):
            if last_name(call.func) == scope.name:
                above = source.scope(call)
                yield source, above
                todo.append((above, depth + 1))


def _of_data_sets(place: EditPlace) -> Iterator[_Scope]:
    """Yield the methods of the data sets whose loaders the line makes, or walks."""
    flow, source = Flow(place.project), place.source
    loops = [each for each in (place.statement, *source.above(place.statement)) if isinstance(each, ast.For)]
    walked = [origin for loop in loops for origin in flow.origins(source, loop.iter)]
    made = [(source, each) for each in ast.walk(place.statement) if isinstance(each, ast.Call)]
    for at, call in (*walked, *made):
        if at.names.dotted(call.func) not in DATA_LOADER:
            continue
        given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "dataset")]
        for _, origin in (each for data in given for each in flow.origins(at, data)):
            for other, definition in place.project.classes.get(last_name(origin.func), ()):
                methods = [each for each in definition.body if isinstance(each, Function) and each.name in _METHODS]
                for method in methods:
                    yield other, method
                    yield from called_at(place.project, method)
