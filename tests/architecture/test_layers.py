"""Imports point down; torch and the child's modules stay out of the parent."""

from collections.abc import Callable, Iterator

import pytest

from tests.architecture import source
from tests.architecture.source import LEVEL, Import, Module, imports, is_stdlib, modules, none_of

PARENT = ("", "__main__", "cli", "engine", "report", "edits", "rules", "fixes", "analysis", "schema", "units", "errors")
CHILD_ONLY = ("child", "ranks", "probe", "kept")
BELOW = (
    "pipeline",
    "optimizers",
    "numeric",
    "torch_loader",
    "watch",
    "native",
)  # of these, fixes import what needs no torch
NOT_THE_ENGINES = (*CHILD_ONLY, *BELOW)
LOADED_BY = {"flatout.inside.pytest_plugin": "pytest"}  # a module that only this package imports
TORCH_AT_MODULE_LEVEL = (*BELOW, "ranks", "probe", "kept")
ONLY_WITH_NUMBA = ("numpy", "numba", "llvmlite")  # what the modules of `numeric` may need that `decorator` asks for
WITHOUT_NUMBA = ("flatout.numeric.decorator", "flatout.numeric.served", "flatout.numeric.subset")
RUNTIME_DEPENDENCIES = ("torch", "click", "rich", "psutil", "pynvml", "tomli_w", "jinja2", "libcst")


def in_layers(*names: str) -> list[Module]:
    """Return the modules of these layers, or skip while none of them exists."""
    found = [module for module in modules().values() if module.layer in names]
    return found or pytest.skip(f"nothing in {', '.join(names)} yet")


def every_import(found: list[Module]) -> Iterator[tuple[Module, Import]]:
    return ((module, one) for module in found for one in imports(module))


def test_every_module_has_a_layer():
    known = {*LEVEL, *source.OUTSIDE_THE_LAYERS}
    none_of([m.at(1, f"`{m.layer}` is in no layer") for m in modules().values() if m.layer not in known])


def test_imports_point_only_downward():
    none_of(
        [
            m.at(i.line, f"{m.layer} imports {i.target}")
            for m, i in every_import(in_layers(*LEVEL))
            if i.layer not in (None, m.layer)
            and LEVEL.get(i.layer, -1) <= LEVEL[m.layer]
            and not (i.target == "flatout" and i.names == ("__version__",))
        ]
    )


def test_nothing_the_parent_imports_leads_to_torch_or_to_the_child():
    ways = [(m, _way_to(m, lambda i: i.root == "torch" or i.layer in CHILD_ONLY)) for m in in_layers(*PARENT)]
    none_of([m.at(1, " -> ".join(way)) for m, way in ways if way])


def test_the_engine_names_the_child_but_never_imports_it():
    none_of(
        [
            m.at(i.line, f"imports {i.target}, if only inside a function")
            for m, i in every_import(in_layers("engine", "report", "edits", "cli"))
            if i.root == "torch" or i.layer in NOT_THE_ENGINES
        ]
    )


def test_torch_is_imported_at_module_level_only_where_tensors_are_the_subject():
    none_of(
        [
            m.at(i.line, "imports torch at module level")
            for m, i in every_import(list(modules().values()))
            if i.at_import and i.root == "torch" and m.layer not in TORCH_AT_MODULE_LEVEL
        ]
    )


@pytest.mark.parametrize("layer", BELOW)
def test_the_input_compiler_and_what_it_stands_on_know_nothing_of_recordings(layer: str):
    allowed = (
        None,
        *(below for below in BELOW if LEVEL[below] >= LEVEL[layer]),
        "errors",
        "units",
        "machine",
        "loader_account",
    )
    none_of([m.at(i.line, i.target) for m, i in every_import(in_layers(layer)) if i.layer not in allowed])


def test_schema_is_standard_library_only():
    found = every_import(in_layers("schema"))
    none_of([m.at(i.line, i.target) for m, i in found if i.layer is None and not is_stdlib(i.root)])


def test_what_is_imported_at_module_level_is_a_declared_dependency():
    there = ("flatout", *RUNTIME_DEPENDENCIES)
    none_of(
        [
            m.at(i.line, f"{i.root} may be absent: import it where it is used, and say how to get it")
            for m, i in every_import(list(modules().values()))
            if i.at_import and i.root not in (*there, LOADED_BY.get(m.name)) and not is_stdlib(i.root)
            if not (m.layer == "numeric" and m.name not in WITHOUT_NUMBA and i.root in ONLY_WITH_NUMBA)
        ]
    )


def test_the_injected_module_imports_the_standard_library_and_lazily_the_child():
    none_of(
        [
            m.at(i.line, f"imports {i.target}")
            for m, i in every_import(in_layers("inject"))
            if not is_stdlib(i.root) and not (i.deferred and i.layer == "child")
        ]
    )


def _way_to(start: Module, forbidden: Callable[[Import], bool]) -> tuple[str, ...]:
    """Return the shortest chain of import-time imports from `start` to a forbidden module, or an empty one."""
    queue, seen = [(start.name,)], {start.name}
    for chain in queue:  # grows while it is read: breadth first
        module = modules().get(chain[-1])
        for one in _at_import(module) if module else ():
            if forbidden(one):
                return (*chain, one.target)
            if one.target not in seen:
                seen.add(one.target)
                queue.append((*chain, one.target))
    return ()


def _at_import(module: Module) -> list[Import]:
    """Return what importing `module` imports: the packages it lies in, then what it names at module level."""
    above = [module.name.rsplit(".", n)[0] for n in range(1, module.name.count(".") + 1)]
    packages = [Import(name, (), 1, deferred=False, typing_only=False) for name in above]
    return packages + [i for i in imports(module) if i.at_import]
