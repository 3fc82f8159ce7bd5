"""The text of a file in which some functions have a decorator that compiles what is numeric in them.

The names of functions are all that a recipe says; the text is made of the file as it is, so it survives changes of it.
"""

import ast
from collections.abc import Iterable, Iterator

__all__ = ["decorated", "definitions", "named_functions"]

_LINE = '@__import__("flatout").compiled'  # no line for an import, so that lines keep their numbers where they can

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named_functions(setting: str) -> dict[str, list[str]]:
    """Return the functions that the fix's setting names, by file: "train.py:blur, data.py:Photos.blur"."""
    found: dict[str, list[str]] = {}
    for each in setting.split(","):
        name, colon, function = each.strip().rpartition(":")
        if colon:
            found.setdefault(name, []).append(function)
    return found


def definitions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the functions of a file with their names as Python gives them: `Class.method`, `f.<locals>.g`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{above}{node.name}", node
            yield from definitions(node, f"{above}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{above}{node.name}.")
        else:
            yield from definitions(node, above)


def decorated(text: str, names: Iterable[str]) -> str:
    """Return a file's text in which the functions `names` are compiled; the text itself where it has none of them.

    Raises:
        SyntaxError: it is no Python.
    """
    wanted = set(names)
    lines = text.splitlines(keepends=True)
    if len(lines) != text.count("\n") + (not text.endswith("\n")):
        return text  # it has lines that Python counts in another way
    found = [node for name, node in definitions(ast.parse(text)) if name in wanted]
    for node in sorted(found, key=lambda each: -each.lineno):
        line = lines[node.lineno - 1]
        indent = line[: len(line) - len(line.lstrip())]
        above = lines[node.lineno - 2] if node.lineno > 1 else ""
        ending = line[len(line.rstrip("\r\n")) :] or "\n"
        if line[len(indent) :].startswith(("def ", "async ")) and not above.rstrip("\r\n").endswith("\\"):
            blank = node.lineno > 1 and not above.strip()
            at = node.lineno - 2 if blank else node.lineno - 1
            lines[at : at + blank] = [f"{indent}{_LINE}{ending}"]
    return "".join(lines)
