"""A product that a loop makes longer and one statement behind it uses up, multiplied from the right.

    reach = a                              factors = [a]
    for _ in range(hops - 1):              for _ in range(hops - 1):
        reach = reach @ a                      factors.append(a)
    return reach @ h                       return multiplied(*factors, h)

Nothing but the loop stands between the first factor and the statement that uses the product, and no factor is made in
the loop, so that all are what they were. Where one of them is no matrix, `multiplied` makes the product as before.
"""

import ast
from dataclasses import dataclass

from flatout.edits.cures.lines.right_products import unsure_of, with_function
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, is_plain
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["power_from_the_right"]

_LOOKS = {"locals", "vars", "eval", "exec"}
_NOT = "a product that a loop makes longer, used once behind it, is not found around this line"


@dataclass(frozen=True)
class _Power:
    """The statements: first factor, loop, and use."""

    name: str
    first: ast.Assign
    loop: ast.For
    step: ast.Assign
    use: ast.stmt
    product: ast.BinOp

    @property
    def factor(self) -> str:
        """The variable that the loop multiplies by."""
        return ast.unparse(self.step.value.right)  # type: ignore[attr-defined]

    @property
    def last(self) -> str:
        """The variable that the product is used for."""
        return ast.unparse(self.product.right)


def power_from_the_right(place: EditPlace) -> WrittenEdit:
    """Write the loop around the finding's line so that it collects factors."""
    power = _power(place)
    if power is None:
        return place.left(_NOT)
    factors_of = [power.step.value.right, power.product.right, power.first.value]  # type: ignore[attr-defined]
    unsure = unsure_of(place, [each for each in factors_of if is_plain(each)])
    if unsure:
        return place.left(unsure)
    changes, factors = TextChanges(place.source), fresh_name(place.source, "factors")
    changes.replace(power.first, f"{factors} = [{changes.text(power.first.value)}]")
    changes.replace(power.step, f"{factors}.append({power.factor})")
    changes.replace(power.product, f"{with_function(place, changes)}(*{factors}, {power.last})")
    return WrittenEdit(changes.done(place.project), changed=1)


def _power(place: EditPlace) -> _Power | None:
    """Return the power that the finding's statement is a part of."""
    source, step = place.source, place.statement
    loop = source.parents.get(step)
    scope = source.scope(step)
    if not isinstance(step, ast.Assign) or not isinstance(loop, ast.For) or loop.body != [step] or loop.orelse:
        return None
    block = block_of(source, loop)
    at = block.index(loop)
    if not isinstance(scope, Function) or at == 0 or at + 1 == len(block):
        return None
    first, use = block[at - 1], block[at + 1]
    target = step.targets[0]
    if not isinstance(target, ast.Name) or not isinstance(first, ast.Assign) or not isinstance(loop.target, ast.Name):
        return None
    product = _product(use, target.id)
    if product is None:
        return None
    found = _Power(target.id, first, loop, step, use, product)
    is_alone = [ast.unparse(each) for each in (*first.targets, *step.targets)] == [target.id, target.id]
    return found if is_alone and _is_a_power(place, found, scope) else None


def _is_a_power(place: EditPlace, power: _Power, scope: Function) -> bool:
    """Return whether the statements are of the form, and nothing else in the function knows the product."""
    value, turns = power.step.value, power.loop.iter
    multiplies = isinstance(value, ast.BinOp) and isinstance(value.op, ast.MatMult)
    if not multiplies or ast.unparse(value.left) != power.name or not isinstance(value.right, ast.Name):  # type: ignore[attr-defined]
        return False
    others = {power.name, power.loop.target.id}  # type: ignore[attr-defined]
    is_range = isinstance(turns, ast.Call) and is_builtin(place.source, turns.func, ("range",))
    if not is_range or value.right.id in others:  # type: ignore[attr-defined]
        return False
    if not isinstance(power.product.right, ast.Name) or power.product.right.id in others:
        return False
    mentions = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == power.name]
    words = [node for node in ast.walk(scope) if isinstance(node, ast.Global | ast.Nonlocal)]
    looks = any(isinstance(node, ast.Name) and node.id in _LOOKS for node in ast.walk(scope))
    return len(mentions) == 4 and not looks and not any(power.name in node.names for node in words)


def _product(use: ast.stmt, name: str) -> ast.BinOp | None:
    """Return the product that begins with `name`, where it is all that a statement computes."""
    value = use.value if isinstance(use, ast.Return | ast.Assign | ast.Expr) else None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.MatMult):
        return None
    return value if ast.unparse(value.left) == name else None
