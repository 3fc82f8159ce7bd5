"""The source of the house, parsed once, as the architecture tests read it."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PACKAGE = REPO / "src" / "flatout"

# Highest first; names on one level know nothing of each other.
LAYERS = (
    ("cli", "inside"),
    ("engine", "report", "edits"),
    ("child",),
    ("rules", "fixes", "ranks"),
    ("kept",),
    ("probe", "analysis"),
    ("pipeline", "optimizers", "numeric"),
    ("torch_loader",),
    ("watch",),
    ("native", "schema"),
    ("units", "errors", "machine", "foreign_load", "state_folder", "loader_account", "demo"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# The package itself and the two ways in; `demo` is a specimen, not ours.
OUTSIDE_THE_LAYERS = ("", "__main__", "inject")


@dataclass(frozen=True)
class Import:
    """One imported module, where it stands, and when it is really imported."""

    target: str
    names: tuple[str, ...]
    line: int
    deferred: bool  # inside a function: only when that runs
    typing_only: bool  # under `if TYPE_CHECKING`: never

    @property
    def at_import(self) -> bool:
        return not (self.deferred or self.typing_only)

    @property
    def root(self) -> str:
        return self.target.split(".")[0]

    @property
    def layer(self) -> str | None:
        """The layer of ours that is imported, or None where it is not ours."""
        return layer_of(self.target) if self.root == "flatout" else None


@dataclass(frozen=True, eq=False)
class Module:
    """One source file."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        return layer_of(self.name)

    def at(self, line: int, fact: str) -> str:
        return f"{self.path.relative_to(REPO)}:{line}: {fact}"


def layer_of(dotted: str) -> str:
    """Return `engine` for `flatout.engine.process.launch`, and an empty string for `flatout` itself."""
    return (*dotted.split("."), "")[1]


@cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("flatout", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if layer_of(name) != "demo":
            text = path.read_text(encoding="utf-8")
            found[name] = Module(name, path, text, ast.parse(text))
    return found


@cache
def imports(module: Module) -> tuple[Import, ...]:
    return tuple(_imports(module, module.tree, deferred=False, typing_only=False))


def _imports(module: Module, node: ast.AST, *, deferred: bool, typing_only: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, (), node.lineno, deferred, typing_only)
    elif isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names)
        for target in _targets(module, node):
            yield Import(target, names, node.lineno, deferred, typing_only)
    else:
        deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        never = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else []
        for child in ast.iter_child_nodes(node):
            yield from _imports(module, child, deferred=deferred, typing_only=typing_only or child in never)


def _targets(module: Module, node: ast.ImportFrom) -> Iterator[str]:
    """Yield the modules that `from X import a, b` reads: X.a where that is a module of ours, else X."""
    base = node.module or ""
    if node.level:
        is_package = module.path.name == "__init__.py"
        anchor = module.name.split(".")[: None if is_package and node.level == 1 else is_package - node.level]
        base = ".".join([*anchor, *([node.module] if node.module else [])])
    yield from dict.fromkeys(f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names)


@cache
def nodes(module: Module) -> tuple[ast.AST, ...]:
    """Return every node of a file, as `ast.walk` finds them."""
    return tuple(ast.walk(module.tree))


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (n for n in nodes(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def is_stdlib(dotted: str) -> bool:
    return dotted.split(".")[0] in sys.stdlib_module_names


def none_of(found: list[str]) -> None:
    """Fail with one line per place where the house rule is broken."""
    assert not found, "\n" + "\n".join(found)
