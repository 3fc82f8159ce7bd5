"""Every module has a test that is found from the module's name.

A module `flatout.a.b.c` is tested by a file of its own name in the mirrored folder: `tests/unit/a/b/test_c.py`, or
`tests/a/b/test_c.py` for the groups that have a folder beside `unit`. Else a test file imports the module itself, not
only a package above it, or names it by its dotted path in its docstring, for what it reaches through a public entry.
A package is a module here where it defines functions or classes; where it only re-exports, it is none.

Rules and fixes are found by their codes and names, as the package finds them itself: a rule is tested by the examples
in its own file, which `test_rules.py` runs; a fix by the tables of `tests/unit/fixes` that have its name.
"""

import re
from functools import cache
from pathlib import Path

from tests.architecture.source import PACKAGE, REPO, none_of

TESTS = REPO / "tests"
IMPORT = re.compile(
    r"^[ \t]*from (flatout[\w.]*) import (\([^)]*\)|[^\n]*)|^[ \t]*import (flatout[\w.]*)", re.MULTILINE
)
DOCSTRING = re.compile(r'\Ar?"""(.*?)"""', re.DOTALL)
DOTTED = re.compile(r"\bflatout(?:\.\w+)+")


def test_every_module_has_a_test_of_its_name_or_is_named_by_one():
    named = set().union(*map(names_in, texts().values()))
    untested = {name: path for name, path in module_files().items() if name not in named and not _has_own(name)}
    none_of([f"{path.relative_to(REPO)}: no test has its name" for path in untested.values() if not _in_tables(path)])


def test_every_module_that_a_docstring_lists_exists():
    listed = {path: _docstring(text).partition("Modules:")[2] for path, text in texts().items()}
    none_of(
        [
            f"{path.relative_to(REPO)}: there is no module {name}"
            for path, text in listed.items()
            for name in DOTTED.findall(text)
            if name not in module_files()
        ]
    )


@cache
def texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}


@cache
def module_files() -> dict[str, Path]:
    """Return the modules by their dotted names, packages that only re-export left out."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("flatout", *path.relative_to(PACKAGE).with_suffix("").parts)
        if path.name != "__init__.py":
            found[".".join(parts)] = path
        elif re.search(r"^(def|class) ", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[".".join(parts[:-1])] = path
    return found


def names_in(text: str) -> set[str]:
    """Return the dotted names in the docstring of a test file, and those of what it imports."""
    found = set(DOTTED.findall(_docstring(text)))
    for base, names, whole in IMPORT.findall(text):
        found |= {whole or base, *(f"{base}.{name}" for name in re.findall(r"\w+", names))}
    return found


def _docstring(text: str) -> str:
    found = DOCSTRING.match(text)
    return found[1] if found else ""


def _has_own(name: str) -> bool:
    *folders, stem = name.split(".")[1:] or ["flatout"]
    return any(TESTS.joinpath(*group, *folders, f"test_{stem}.py").is_file() for group in (("unit",), ()))


def _in_tables(path: Path) -> bool:
    """Tell whether a file is of a rule, which has examples, or of a fix that tests of fixes have by its name."""
    text = path.read_text(encoding="utf-8")
    if path.parent == PACKAGE / "rules":
        return bool(re.search(r"^RULE = Rule\(", text, re.MULTILINE))
    name = f'"{path.stem.replace("_", "-")}"'
    fixes = (text for path, text in texts().items() if path.is_relative_to(TESTS / "unit" / "fixes"))
    return bool(re.search(r"^FIX = Fix\(", text, re.MULTILINE)) and any(name in each for each in fixes)
