"""Files, functions and classes stay small enough to be read; ruff holds the number of branches."""

import ast

from tests.architecture.source import functions, modules, none_of

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_PUBLIC_METHODS = 8
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}


def test_no_file_is_longer_than_400_lines():
    sizes = [(m, len(m.text.splitlines())) for m in modules().values()]
    none_of([m.at(n, f"{n} lines") for m, n in sizes if n > MAX_FILE_LINES])


def test_no_function_is_longer_than_40_lines():
    sizes = [(m, f, f.end_lineno - f.lineno + 1) for m in modules().values() for f in functions(m)]
    none_of([m.at(f.lineno, f"{f.name} has {n} lines") for m, f, n in sizes if n > MAX_FUNCTION_LINES])


def test_no_class_has_more_than_8_public_methods():
    classes = [(m, c) for m in modules().values() for c in ast.walk(m.tree) if isinstance(c, ast.ClassDef)]
    sizes = [(m, c, len(_verbs(c))) for m, c in classes]
    none_of([m.at(c.lineno, f"{c.name} has {n} public methods") for m, c, n in sizes if n > MAX_PUBLIC_METHODS])


def test_no_module_has_a_name_that_says_nothing():
    none_of([m.at(1, m.name) for m in modules().values() if m.path.stem.strip("_") in NAMES_THAT_SAY_NOTHING])


def _verbs(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's public methods; what is decorated as a property is data, not a verb."""
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        method.name
        for method in methods
        if not method.name.startswith("_")
        and not any("property" in ast.unparse(d) or ast.unparse(d).endswith(".setter") for d in method.decorator_list)
    }
