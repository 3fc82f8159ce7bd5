"""The user's own classes below torch's DataLoader: what gives it its arguments, and the calls that make one."""

import ast
from dataclasses import dataclass
from functools import cached_property

from flatout.edits.reading.dataflow import Origin
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import class_around, names_below

__all__ = ["DATA_LOADER", "LoaderClass", "loader_classes", "makers"]

DATA_LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
# With one of these of its own, a class decides by itself how it is walked, or what it keeps of its arguments.
_OF_ITS_OWN = {"__iter__", "__new__", "__getattr__", "__getattribute__", "__setattr__", "_get_iterator"}
_OF_ITS_OWN |= {"_index_sampler", "_auto_collation", "multiprocessing_context"}


@dataclass(frozen=True)
class LoaderClass:
    """A class right below DataLoader; `given`: its call of `super().__init__`; `names`: it and the classes below it."""

    project: Project
    source: SourceFile
    definition: ast.ClassDef
    given: ast.Call
    names: frozenset[str]

    @cached_property
    def made(self) -> tuple[Origin, ...]:
        """The calls that make one of these, in the order of the text."""
        found = [(source, call) for source, call in self.project.nodes(ast.Call) if _called(call) in self.names]
        return tuple(sorted(found, key=lambda each: _place(self.project, *each)))

    @cached_property
    def is_made_in_sight(self) -> bool:
        """Whether nothing else is done with the names of these classes, so that none is made in another place."""
        family = [each for name in self.names for each in self.project.classes[name]]
        inside = {node for _, definition in family for node in ast.walk(definition)}
        mentioned = [each for _, each in self.project.nodes(ast.Name, ast.Attribute) if _named(each) in self.names]
        renamed = any(each.name in self.names and each.asname for _, each in self.project.nodes(ast.alias))
        looked_up = any(each.value in self.names for _, each in self.project.nodes(ast.Constant))
        return (
            not renamed and not looked_up and len([each for each in mentioned if each not in inside]) == len(self.made)
        )

    @property
    def can_be_replaced(self) -> bool:
        """Whether a DataLoader with the same attributes does all that one of these does, as far as can be seen."""
        body = [getattr(each, "name", "") for each in self.definition.body if not isinstance(each, ast.Expr)]
        return len(self.names) == 1 and body == ["__init__"] and self.is_made_in_sight


def loader_classes(project: Project) -> list[LoaderClass]:
    """Return the classes whose way of handing arguments to DataLoader, and of being walked, can be told."""
    found = []
    for source, definition in project.nodes(ast.ClassDef):
        if [source.names.dotted(each) in DATA_LOADER for each in definition.bases] != [
            True
        ] or definition.decorator_list:
            continue
        names = names_below(project, definition.name)
        family = [each for name in names for each in project.classes.get(name, ())]
        given = _handing_on(source, definition)
        if given is not None and len(family) == len(names) and not any(map(_walks_by_itself, family)):
            found.append(LoaderClass(project, source, definition, given, frozenset(names)))
    return found


def makers(project: Project) -> list[tuple[SourceFile, ast.Call, LoaderClass | None]]:
    """Return every call that gives a DataLoader its arguments, in the order of the text; with the class that does."""
    found: list[tuple[SourceFile, ast.Call, LoaderClass | None]] = [
        (source, call, None) for source, call in project.calls(*DATA_LOADER)
    ]
    found += [(each.source, each.given, each) for each in loader_classes(project)]
    return sorted(found, key=lambda each: _place(project, each[0], each[1]))


def _place(project: Project, source: SourceFile, call: ast.Call) -> tuple[int, int, int]:
    return project.sources.index(source), call.lineno, call.col_offset


def _handing_on(source: SourceFile, definition: ast.ClassDef) -> ast.Call | None:
    """Return the one call of `super().__init__` in the class's own `__init__`."""
    inits = [each for each in definition.body if isinstance(each, Function) and each.name == "__init__"]
    calls = [
        each
        for init in inits
        for each in ast.walk(init)
        if isinstance(each, ast.Call) and _is_of_super(each.func, definition.name)
    ]
    nested = any(class_around(source, each) is not definition or source.scope(each) not in inits for each in calls)
    return calls[0] if len(calls) == 1 and not nested else None


def _is_of_super(function: ast.expr, name: str) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr != "__init__":
        return False
    return ast.unparse(function.value) in ("super()", f"super({name}, self)")


def _walks_by_itself(found: tuple[SourceFile, ast.ClassDef]) -> bool:
    named = {getattr(each, "name", "") for each in found[1].body}
    assigned = {each.id for node in found[1].body for each in ast.walk(node) if isinstance(each, ast.Name)}
    return bool(_OF_ITS_OWN & (named | assigned))


def _named(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _called(call: ast.Call) -> str:
    return _named(call.func)
