"""Files, functions and classes stay small enough to be read; ruff holds the number of branches."""

import ast

from tests.architecture.source import Module, functions, modules, nodes, none_of

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_PUBLIC_METHODS = 8
MAX_ATTRIBUTES = 12
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}


def test_no_file_is_longer_than_400_lines():
    sizes = [(m, len(m.text.splitlines())) for m in modules().values()]
    none_of([m.at(n, f"{n} lines") for m, n in sizes if n > MAX_FILE_LINES])


def test_no_function_is_longer_than_40_lines():
    sizes = [(m, f, f.end_lineno - f.lineno + 1) for m in modules().values() for f in functions(m)]
    none_of([m.at(f.lineno, f"{f.name} has {n} lines") for m, f, n in sizes if n > MAX_FUNCTION_LINES])


def test_no_class_has_more_than_8_public_methods():
    sizes = [(m, c, len(_methods(c))) for m, c in _classes()]
    none_of([m.at(c.lineno, f"{c.name} has {n} public methods") for m, c, n in sizes if n > MAX_PUBLIC_METHODS])


def test_no_class_has_more_than_12_attributes():
    sizes = [(m, c, len(_attributes(c))) for m, c in _classes() if not _is_of_data(c)]
    none_of([m.at(c.lineno, f"{c.name} has {n} attributes") for m, c, n in sizes if n > MAX_ATTRIBUTES])


def test_no_module_has_a_name_that_says_nothing():
    none_of([m.at(1, m.name) for m in modules().values() if m.path.stem.strip("_") in NAMES_THAT_SAY_NOTHING])


def _classes() -> list[tuple[Module, ast.ClassDef]]:
    return [(m, node) for m in modules().values() for node in nodes(m) if isinstance(node, ast.ClassDef)]


def _methods(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's public methods and properties; a property that can be set is one of them."""
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {method.name for method in methods if not method.name.startswith("_")}


def _attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that a class assigns to itself, in whichever method."""
    stored = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    return {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}


def _is_of_data(node: ast.ClassDef) -> bool:
    """Return whether a class only lists its fields: a data class, a named tuple, a protocol."""
    decorators = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}
    bases = {ast.unparse(each).partition("[")[0].rpartition(".")[2] for each in node.bases}
    return "dataclass" in decorators or bool(bases & {"NamedTuple", "Protocol"})
