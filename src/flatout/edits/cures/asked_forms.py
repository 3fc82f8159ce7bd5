"""Another form of an expression, taken where the script itself finds that its operands are plain tensors.

    h = nodes[src]    h = (lambda x, rows: x.index_select(0, rows) if type(x) is torch.Tensor else x[rows])(nodes, src)

Each operand is computed once, where it stood. What the form is not sure of goes the way it is written.
"""

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.lists.hidden_access import is_of_python
from flatout.edits.reading.purity.printed_values import is_printed
from flatout.edits.reading.purity.steady_conditions import module_name
from flatout.edits.reading.purity.traced_code import replaced_in, traced_by
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["AskedForm", "asked_form", "name_of_module", "unasked", "with_parts"]


_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class AskedForm:
    """The names that operands have in a form, what torch is called there, and the expression as it is written."""

    node: ast.expr
    operands: Mapping[str, ast.expr]  # by the names that they have
    torch: str
    otherwise: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(self.operands)

    def named(self, operand: ast.expr) -> str:
        """Return the name that an operand has."""
        return next(name for name, each in self.operands.items() if each is operand)

    def is_tensor(self, name: str) -> str:
        """Return the condition under which an operand is a plain tensor or a weight."""
        return f"type({name}) in ({self.torch}.Tensor, {self.torch}.nn.Parameter)"

    def text(self, changes: TextChanges, when: str, form: str) -> str:
        """Return the expression that takes `form` where `when` is true."""
        given = ", ".join(changes.text(each) for each in self.operands.values())
        return f"(lambda {', '.join(self.names)}: {form} if {when} else {self.otherwise})({given})"

    def put(self, place: EditPlace, when: str, form: str) -> WrittenEdit:
        """Write the expression in place of the node.

        Raises:
            Unplaced: it does not fit there.
        """
        changes = TextChanges(place.source)
        changes.replace(self.node, self.text(changes, when, form))
        return self.done(place, changes)

    def done(self, place: EditPlace, changes: TextChanges) -> WrittenEdit:
        """Make the changes, with the import of torch that the questions need.

        Raises:
            Unplaced: they do not fit.
        """
        project, at = changes.done(place.project), place.project.sources.index(place.source)
        return WrittenEdit(with_import(project, at, "torch") if self.torch == "torch" else project, changed=1)


def unasked(
    place: EditPlace, node: ast.AST, *, compiled: bool = False, shown: bool = True, uses: Sequence[str] = ("type",)
) -> str:
    """Return why nothing can be asked where an expression stands, "" where it can.

    `compiled`: the questions are of values, which code that is compiled does not answer. `uses`: functions of Python's
    that the questions use. `shown`: another form has another graph, which tensors show when they are printed.
    """
    source = place.source
    traced = traced_by(place.project, compiled=compiled)
    if traced:
        return f"{traced}: what is traced cannot be asked what its tensors are"
    replaced = replaced_in(place.project)
    if replaced:
        return f"{replaced}: what torch or NumPy does is replaced"
    if not is_of_python(source, *uses):
        return "a name of Python's own stands for something else in this file"
    above = [*source.above(node)]
    if any(isinstance(each, ast.JoinedStr) for each in above):
        return "it stands in an f-string"
    if isinstance(source.scope(node), ast.ClassDef):
        return "it stands in the body of a class"
    return (
        "the tensor may be printed, with the name of its graph"
        if shown and is_printed(place.project, source, node)
        else ""
    )


def name_of_module(place: EditPlace, module: str) -> str:
    """Return what a file calls a module, or would after an import at its top.

    Raises:
        Unplaced: the name stands for something else, or is imported within functions alone.
    """
    names = place.source.names
    found = module_name(place.source, module)
    if not found and (module in names.bound or module in names.imports):
        raise Unplaced
    return found or module


def asked_form(place: EditPlace, node: ast.expr, operands: Mapping[str, ast.expr]) -> AskedForm:
    """Return how an expression is written with names for some of its parts, which are computed once.

    Raises:
        Unplaced: torch has no name here.
    """
    torch = name_of_module(place, "torch")
    inside = {part for each in operands.values() for part in ast.walk(each)}
    kept = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each not in inside}
    taken = kept | {torch, module_name(place.source, "numpy"), "all", "len", "type"}
    names: dict[str, ast.expr] = {}
    for wanted, operand in operands.items():
        name, number = wanted, 1
        while name in taken or name in names:
            number += 1
            name = f"{wanted}_{number}"
        names[name] = operand
    by_node: dict[ast.expr, ast.expr] = {operand: ast.Name(name, ast.Load()) for name, operand in names.items()}
    return AskedForm(node, names, torch, ast.unparse(with_parts(node, by_node)))


def with_parts(node: _Node, parts: Mapping[ast.expr, ast.expr]) -> _Node:
    """Return a copy of an expression, or a statement, with other expressions in place of some of its parts."""
    if isinstance(node, ast.expr) and node in parts:
        return cast("_Node", parts[node])
    made = copy.copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(made, field, with_parts(value, parts))
        elif isinstance(value, list):
            setattr(made, field, [with_parts(each, parts) if isinstance(each, ast.AST) else each for each in value])
    return made
