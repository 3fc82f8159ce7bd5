"""Distances between all rows of two tensors without their differences: by `torch.cdist`, without a product of matrices.

The product of matrices loses what is small beside the numbers themselves: the distance of a row from itself, and those
of points that are far from zero. The script asks whether both are plain tensors of rows; all else is as it is written.
"""

import ast
from dataclasses import dataclass

from flatout.edits.cures.asked_forms import AskedForm, asked_form, unasked, with_parts
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["without_differences"]


@dataclass(frozen=True)
class _Distances:
    """What is made of differences: the whole expression, how it is measured, and the differences."""

    whole: ast.expr
    power: str  # "square", "abs" or "norm"
    differences: ast.expr


def without_differences(place: EditPlace) -> WrittenEdit:
    """Write the distances of the finding's line by `torch.cdist`, which makes no differences."""
    found = [each for node in ast.walk(place.statement) if (each := _distances(place, node)) is not None]
    if len(found) != 1:
        return place.left("differences of all pairs of rows, added up, are not found on this line")
    one = found[0]
    named, source = _named(place, one.differences)
    rows = _rows(source)
    if rows is None:
        return place.left("differences of all pairs of rows are not told apart from others on this line")
    against = unasked(place, one.whole) or _differentiated_twice(place)
    if against:
        return place.left(against)
    if named is not None and not _is_at_once(place, one.whole):
        return place.left("the differences above may be others where these are added up")
    x, y, num_dims = rows
    whole = one.whole if named is None else _with_differences(one, source)
    in_order = {"x": x, "y": y} if x.lineno < y.lineno or x.col_offset < y.col_offset else {"y": y, "x": x}
    asked = asked_form(place, whole, in_order)
    pair = (asked.named(x), asked.named(y))
    changes = TextChanges(place.source)
    changes.replace(one.whole, asked.text(changes, _when(asked, pair, num_dims), _other_form(asked, one.power, pair)))
    if named is not None:
        changes.remove(named)
    return asked.done(place, changes)


def _with_differences(one: _Distances, source: ast.expr) -> ast.expr:
    """Return the distances with the differences in place of their name, all of which are computed once."""
    assert isinstance(one.differences, ast.Name)
    names = [each for each in ast.walk(one.whole) if isinstance(each, ast.Name) and each.id == one.differences.id]
    return with_parts(one.whole, dict.fromkeys(names, source))


def _is_at_once(place: EditPlace, whole: ast.expr) -> bool:
    """Return whether an expression is computed once, and before all else that its statement calls."""
    statement = place.statement
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr):
        return False
    around, inside = {*place.source.above(whole)}, {*ast.walk(whole)}
    apart = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.IfExp | ast.BoolOp
    others = [each for each in ast.walk(statement) if each not in inside]
    if any(isinstance(each, apart) and each in around for each in others):
        return False
    runs = ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom
    return not any(isinstance(each, runs) and each not in around for each in others)


def _when(asked: AskedForm, pair: tuple[str, str], num_dims: int) -> str:
    """Return the condition under which there are two tensors of rows, in so many dimensions (0: two or three)."""
    (x, y), torch = pair, asked.torch
    dims = f"== {num_dims}" if num_dims else "in (2, 3)"
    return (
        f"{asked.is_tensor(x)} and {asked.is_tensor(y)}"
        f" and {x}.dtype is {y}.dtype in ({torch}.float32, {torch}.float64)"
        f" and {x}.device == {y}.device and {x}.dim() == {y}.dim() {dims}"
        f" and {x}.shape[:-2] == {y}.shape[:-2] and {x}.size(-1) == {y}.size(-1) > 0"
    )


def _other_form(asked: AskedForm, power: str, pair: tuple[str, str]) -> str:
    """Return the distances in another form."""
    (x, y), torch = pair, asked.torch
    if power == "abs":
        return f"{torch}.cdist({x}, {y}, p=1)"
    found = f'{torch}.cdist({x}, {y}, compute_mode="donot_use_mm_for_euclid_dist")'
    return found if power == "norm" else f"{found}.square()"


def _differentiated_twice(place: EditPlace) -> str:
    """Return what asks for gradients of gradients, which `cdist` has not; "" for nothing."""
    for _, node in place.project.nodes(ast.keyword, ast.Attribute, ast.alias, ast.Constant):
        word = node.value if isinstance(node, ast.Constant) else None
        word = word or getattr(node, "arg", "") or getattr(node, "attr", "") or getattr(node, "name", "")
        if word in ("create_graph", "hessian", "hvp", "vhp", "jacobian", "gradgradcheck"):
            return f"`{word}`: torch.cdist has no gradients of its gradients"
    return ""


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


def _rows(node: ast.expr) -> tuple[ast.expr, ast.expr, int] | None:
    """Return the tensors whose rows are taken from each other, that of the result's first dimension first.

    The number is that of the dimensions for which it is so, 0 where it is so for two and for three.
    """
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return None
    left, right = _spread(node.left), _spread(node.right)
    if left is None or right is None:
        return None
    if (left[1], right[1]) in _ROWS_FIRST:
        return left[0], right[0], _ROWS_FIRST[left[1], right[1]]
    swapped = (right[1], left[1])
    return (right[0], left[0], _ROWS_FIRST[swapped]) if swapped in _ROWS_FIRST else None


_ADDED = {  # where a dimension of one is added, by what stands in brackets, or is given to `unsqueeze`
    ":,None": 1, ":,None,:": 1, ":,None,:,:": 1, "None": 0, "None,:": 0, "None,:,:": 0, ":,:,None": 2, ":,:,None,:": 2,
    "1": 1, "0": 0, "2": 2, "-2": -2, "-3": -3,
}  # fmt: skip
_ROWS_FIRST = {(1, 0): 2, (2, 1): 3, (-2, -3): 0}  # x[:, None] - y[None], the same of batches, or of any


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
