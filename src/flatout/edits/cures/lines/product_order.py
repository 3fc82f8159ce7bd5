"""A product of several matrices, multiplied from the right where that is narrower.

    h = a @ a @ a @ h         h = multiplied(a, a, a, h)

Products of matrices come to the same from both ends, up to rounding; with vectors among them they may not. What is
multiplied shows when the script runs: a function before the script's own code asks for it.
"""

import ast
from collections.abc import Iterator

from flatout.edits.cures.lines.power_loops import power_from_the_right
from flatout.edits.cures.lines.right_products import unsure_of, with_function
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.purity.own_meanings import own_names
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["from_the_right"]

_COMPUTED = ("parametriz", "spectral_norm", "weight_norm", "__getattr", "property(")
"""Names that tell of attributes which are made when they are read."""


def from_the_right(place: EditPlace) -> WrittenEdit:
    """Write the product of three or more matrices on the finding's line from the right."""
    chains = list(_chains(place))
    if not chains:
        return power_from_the_right(place)
    if len(chains) != 1:
        return place.left("a single product of three or more variables is not found on this line")
    factors = _factors(chains[0])
    if not all(_is_attribute_alone(place, each) for each in factors):
        return place.left("the factors are more than variables, or attributes that are made when they are read")
    unsure = unsure_of(place, factors)
    if unsure:
        return place.left(unsure)
    changes = TextChanges(place.source)
    name = with_function(place, changes)
    changes.replace(chains[0], f"{name}({', '.join(map(changes.text, factors))})")
    return WrittenEdit(changes.done(place.project), changed=1)


def _is_attribute_alone(place: EditPlace, node: ast.expr) -> bool:
    """Return whether an expression is a variable, or an attribute that no code of the project computes."""
    if isinstance(node, ast.Name):
        return True
    if not is_plain(node) or any(each in place.project.mentions for each in _COMPUTED):
        return False
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return not names & own_names(place.project) and "__get__" not in place.project.mentions


def _chains(place: EditPlace) -> Iterator[ast.BinOp]:
    """Yield the products from the left that are no factor of another product."""
    for node in ast.walk(place.statement):
        above = place.source.parents.get(node)
        if _is_product(node) and not _is_product(above) and len(_factors(node)) > 2:  # type: ignore[arg-type]
            yield node  # type: ignore[misc]


def _is_product(node: ast.AST | None) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _factors(node: ast.expr) -> list[ast.expr]:
    """Return the factors of a product as it is done: from the left."""
    if not _is_product(node):
        return [node]
    return [*_factors(node.left), node.right]  # type: ignore[attr-defined]
