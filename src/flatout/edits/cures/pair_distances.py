"""Distances between all rows of two tensors without their differences: `torch.cdist`, or one product of matrices."""

import ast
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, is_plain
from flatout.edits.text_changes import TextChanges, operand
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["without_differences"]


@dataclass(frozen=True)
class _Distances:
    """What is made of differences: the whole expression, how it is measured, and the differences."""

    whole: ast.expr
    power: str  # "square", "abs" or "norm"
    differences: ast.expr


def without_differences(place: EditPlace) -> WrittenEdit:
    """Write the distances of the finding's line in the form that was faster when both were timed."""
    found = [each for node in ast.walk(place.statement) if (each := _distances(place, node)) is not None]
    if len(found) != 1:
        return place.left("differences of all pairs of rows, added up, are not found on this line")
    one = found[0]
    named, source = _named(place, one.differences)
    rows = _rows(source)
    if rows is None:
        return place.left("differences of all pairs of rows are not told apart from others on this line")
    changes = TextChanges(place.source)
    x, y = (operand(changes, each) for each in rows)
    by_cdist = "cdist" in str(place.finding.argument("instead")) or not all(map(is_plain, rows))
    changes.replace(one.whole, _other_form(one.power, x, y, by_cdist=by_cdist))
    if named is not None:
        changes.remove(named)
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _other_form(power: str, x: str, y: str, *, by_cdist: bool) -> str:
    """Return the distances in another form; a product of matrices names each tensor twice."""
    if power == "abs":
        return f"torch.cdist({x}, {y}, p=1)"
    if power == "norm":
        return f"torch.cdist({x}, {y})"
    if by_cdist:
        return f"torch.cdist({x}, {y}).square()"
    squares = f"{x}.square().sum(-1, keepdim=True) + {y}.square().sum(-1).unsqueeze(-2)"
    return f"({squares} - 2 * {x} @ {y}.mT).clamp_min(0)"


# -- what is added up -------------------------------------------------------------------------------------------------


def _distances(place: EditPlace, node: ast.AST) -> _Distances | None:
    """Return the distances that a call makes by adding up over the last dimension."""
    if not isinstance(node, ast.Call):
        return None
    name, given, rest = _call(place, node)
    if name not in ("sum", "norm") or given is None:
        return None
    named = {each.arg: each.value for each in node.keywords}
    if named.keys() - {"dim", "axis"} or len(rest) + len(named) != 1:
        return None
    if ast.unparse(next(iter([*rest, *named.values()]))) != "-1":
        return None
    if name == "norm":
        return _Distances(node, "norm", given) if named else None  # norm(-1) is of another order
    return _powered(place, node, given)


def _powered(place: EditPlace, whole: ast.Call, node: ast.expr) -> _Distances | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and ast.unparse(node.right) in ("2", "2.0"):
        return _Distances(whole, "square", node.left)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        same = ast.unparse(node.left) == ast.unparse(node.right)
        return _Distances(whole, "square", node.left) if same else None
    if isinstance(node, ast.Call):
        name, given, rest = _call(place, node)
        squared = (name == "square" and not rest) or (name == "pow" and [*map(ast.unparse, rest)] in (["2"], ["2.0"]))
        if given is not None and not node.keywords and (squared or (name == "abs" and not rest)):
            return _Distances(whole, "square" if squared else "abs", given)
    return None


def _call(place: EditPlace, node: ast.Call) -> tuple[str, ast.expr | None, list[ast.expr]]:
    """Return the name of a method or a function of torch's, what it is called on, and the other arguments."""
    dotted = place.source.names.dotted(node.func)
    if dotted.startswith("torch."):
        return dotted.rpartition(".")[2], node.args[0] if node.args else None, node.args[1:]
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value, node.args
    return "", None, []


# -- the differences --------------------------------------------------------------------------------------------------


def _named(place: EditPlace, node: ast.expr) -> tuple[ast.stmt | None, ast.expr]:
    """Return the differences, and the statement right above that gives them a name which nothing else reads."""
    if not isinstance(node, ast.Name):
        return None, node
    block = block_of(place.source, place.statement)
    at = block.index(place.statement)
    above = block[at - 1] if at else None
    if not isinstance(above, ast.Assign) or [ast.unparse(each) for each in above.targets] != [node.id]:
        return None, node
    uses = [each for each in ast.walk(place.source.tree) if isinstance(each, ast.Name) and each.id == node.id]
    here = [each for each in ast.walk(place.statement) if isinstance(each, ast.Name) and each.id == node.id]
    if len(uses) != 1 + len(here) or any(isinstance(each.ctx, ast.Store) for each in here):
        return None, node
    return above, above.value


def _rows(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Return the tensors whose rows are taken from each other, that of the first dimension of the result first."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return None
    left, right = _spread(node.left), _spread(node.right)
    if left is None or right is None:
        return None
    if (left[1], right[1]) in _ROWS_FIRST:
        return left[0], right[0]
    return (right[0], left[0]) if (right[1], left[1]) in _ROWS_FIRST else None


_ADDED = {  # where a dimension of one is added, by what stands in brackets, or is given to `unsqueeze`
    ":,None": 1, ":,None,:": 1, ":,None,:,:": 1, "None": 0, "None,:": 0, "None,:,:": 0, ":,:,None": 2, ":,:,None,:": 2,
    "1": 1, "0": 0, "2": 2, "-2": -2, "-3": -3,
}  # fmt: skip
_ROWS_FIRST = {(1, 0), (2, 1), (-2, -3)}  # x[:, None] - y[None], the same of batches, or of any


def _spread(node: ast.expr) -> tuple[ast.expr, int] | None:
    """Return a tensor, and where a dimension is added to it."""
    if isinstance(node, ast.Subscript):
        text = ast.unparse(node.slice).strip("()").replace(" ", "").replace("torch.newaxis", "None").removesuffix(",")
        return (node.value, _ADDED[text]) if text in _ADDED and "None" in text else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        given = [*node.args, *(each.value for each in node.keywords)]
        text = ast.unparse(given[0]) if len(given) == 1 else ""
        return (node.func.value, _ADDED[text]) if text in _ADDED else None
    return None
