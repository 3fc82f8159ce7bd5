"""Who may print, who may end the process, who may change what is not ours."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import Module, modules, nodes, none_of

MAY_PRINT_AND_EXIT = ("cli", "__main__")
MAY_PATCH = (
    "flatout.probe.core.seams",
    "flatout.watch.files.file_questions",  # in a copy of the process, which ends with its answer
)
SEEDS_A_WHOLE_PROCESS = (
    "flatout.probe.verify.compared_execution",
    "flatout.probe.verify.after_steps",
    "flatout.torch_loader.reseeding",  # as torch seeds a new worker
    "flatout.demo.train",
)
OPENLY_SETTABLE = ("sys.argv",)  # what the script will read as its own command line


def test_only_the_command_line_prints_and_exits():
    none_of(
        [
            module.at(node.lineno, ast.unparse(node)[:80])
            for module in modules().values()
            if module.layer not in MAY_PRINT_AND_EXIT
            for node in nodes(module)
            if _prints_or_exits(node)
        ]
    )


@pytest.mark.slow
def test_only_the_seams_set_attributes_of_foreign_modules():
    """Best effort: sees `torch.x = y`, `del torch.x` and `setattr(torch.X, ...)` on names that an import bound."""
    none_of(
        [
            module.at(target.lineno, f"sets {ast.unparse(target)}")
            for module in modules().values()
            if module.name not in MAY_PATCH
            for target in _attributes_set(module)
            if _root(target) in set(_foreign_names(module)) and ast.unparse(target) not in OPENLY_SETTABLE
        ]
    )


def test_only_who_has_a_process_to_itself_seeds_devices():
    """`torch.manual_seed` sets every device's stream, later too where none is in use, and nothing puts that back."""
    none_of(
        [
            module.at(node.lineno, ast.unparse(node))
            for module in modules().values()
            if module.name not in SEEDS_A_WHOLE_PROCESS
            for node in nodes(module)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.manual_seed"
        ]
    )


def _prints_or_exits(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit")
    return isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in ast.unparse(node.exc)


def _foreign_names(module: Module) -> Iterator[str]:
    """Yield the names that imports of other people's modules bind in this file."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] != "flatout")
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] != "flatout":
            yield from (a.asname or a.name for a in node.names)


def _attributes_set(module: Module) -> Iterator[ast.expr]:
    for node in nodes(module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr") and node.args:
            yield node.args[0]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
