"""Folders show the architecture: small, without cycles, with names that are met once."""

import ast
import re
from collections import Counter

import pytest

from tests.architecture.source import Module, imports, modules, nodes, none_of

MAX_MODULES = 25
ONE_FILE_EACH = ("fixes", "rules")  # a fix and a rule is one file; their folders have as many
CODE = re.compile(r"(IN|TR|SY|HO|CO|ME|DI|EP|MS)\d{3}")


@pytest.mark.slow
def test_no_module_imports_itself_by_way_of_others():
    known = modules()
    graph = {name: {one for one in _imported(module) if one != name} for name, module in known.items()}
    none_of([known[names[0]].at(1, " -> ".join([*names, names[0]])) for names in _cycles(graph)])


def test_a_folder_has_at_most_25_modules():
    folders = Counter(module.path.parent for module in modules().values())
    many = {folder: number for folder, number in folders.items() if folder.name not in ONE_FILE_EACH}
    none_of([f"{folder}: {number} modules" for folder, number in many.items() if number > MAX_MODULES])


def test_a_public_class_has_a_name_of_its_own():
    found: dict[str, list[Module]] = {}
    for module in modules().values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    none_of([f"{name}: {[one.name for one in places]}" for name, places in found.items() if len(places) > 1])


def test_the_code_of_a_rule_stands_in_its_own_file():
    """Pages and messages may name others; a fix says which rules it addresses."""
    none_of(
        [
            module.at(node.lineno, f"{node.value} is another rule's code: name the rule, or ask the rule")
            for module in modules().values()
            for node in nodes(module)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
            if not module.path.stem.startswith(node.value.lower()) and module.path.parent.name != "fixes"
        ]
    )


def _imported(module: Module) -> set[str]:
    """Return the modules of ours that a module imports, inside functions too, but for what a type checker reads."""
    found = set()
    for one in imports(module):
        if not one.typing_only:
            inner = {f"{one.target}.{name}" for name in one.names}
            found |= {name for name in inner if name in modules()} or ({one.target} & modules().keys())
    return found


def _cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return one cycle for each module that is in one and was in none before it."""
    found: list[list[str]] = []
    met: set[str] = set()
    for start in graph:
        ways, seen = [[start]], {start}
        for way in ways:  # grows while it is read: breadth first
            if start in graph[way[-1]] and not met & set(way):
                found.append(way)
                met |= set(way)
                break
            for name in sorted(graph[way[-1]] - seen):
                seen.add(name)
                ways.append([*way, name])
    return found
