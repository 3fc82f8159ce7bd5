"""A norm, a variance or an argmax over a slow dimension, written by sums and maxima.

The root of a sum of squares has no gradient at zero, where `norm` gives zero: sums are kept from `1e-36` on, below
which the gradient is zero, too. `max(dim)` names the first of equal values, and NaN before numbers, as `argmax` does.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain
from flatout.edits.text_changes import TextChanges, operand
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_maximum", "by_sums"]

_LEAST = "1e-36"
_NORMS = {  # by the name behind `torch.`: arguments by their place
    "norm": ("input", "p", "dim", "keepdim", "out", "dtype"),
    "linalg.norm": ("input", "p", "dim", "keepdim"),
    "linalg.vector_norm": ("input", "p", "dim", "keepdim"),
    "functional.norm": ("input", "p", "dim", "keepdim", "out", "dtype"),
}
_SPREADS = {"var": ("input", "dim", "unbiased", "keepdim"), "std": ("input", "dim", "unbiased", "keepdim")}
_MAXIMA = {"argmax": ("input", "dim", "keepdim"), "argmin": ("input", "dim", "keepdim")}
_OTHER_NAMES = {"ord": "p", "axis": "dim", "A": "input", "x": "input", "self": "input"}
_OF = {"linalg_vector_norm": "norm", "var": "var", "std": "std", "argmax": "argmax", "argmin": "argmin"}


@dataclass(frozen=True)
class _Reduction:
    """A call, its name, and what it is given by the names of the arguments."""

    call: ast.Call
    name: str
    given: dict[str, ast.expr]

    @property
    def dim(self) -> int | None:
        """The one dimension that it goes over; None where it is not a number here."""
        return _number(self.given.get("dim"))

    def keep(self, changes: TextChanges) -> str:
        """Return the argument that keeps the dimension, as it is written."""
        value = self.given.get("keepdim")
        return f", keepdim={changes.text(value)}" if value is not None else ""


def by_sums(place: EditPlace) -> WrittenEdit:
    """Write a norm, a variance or a standard deviation by sums of squares."""
    one = _one(place, {**_NORMS, **_SPREADS})
    if one is None:
        return place.left("a single norm, var or std over one dimension is not found on this line")
    if place.finding.argument("dtype") == "float16":
        return place.left("squares of float16 numbers are out of its range")
    changes = TextChanges(place.source)
    text = _by_squares(one, changes) if one.name not in _SPREADS else _by_spread(one, changes)
    if not text:
        return place.left(f"{ast.unparse(one.call)} is of a kind that sums of squares do not give")
    changes.replace(one.call, text)
    return WrittenEdit(changes.done(place.project), changed=1)


def by_maximum(place: EditPlace) -> WrittenEdit:
    """Write an argmax by the indices of a maximum."""
    one = _one(place, _MAXIMA)
    if one is None:
        return place.left("a single argmax or argmin over one dimension is not found on this line")
    if one.given.keys() - {"input", "dim", "keepdim"}:
        return place.left(f"{ast.unparse(one.call)} is given more than a dimension")
    changes = TextChanges(place.source)
    x = operand(changes, one.given["input"])
    changes.replace(one.call, f"{x}.{one.name[3:]}({one.dim}{one.keep(changes)}).indices")
    return WrittenEdit(changes.done(place.project), changed=1)


def _one(place: EditPlace, known: Mapping[str, tuple[str, ...]]) -> _Reduction | None:
    """Return the only reduction of the measured kind in the statement, where it goes over one dimension."""
    measured = _OF.get(str(place.finding.argument("operation")), "")
    calls = [node for node in ast.walk(place.statement) if isinstance(node, ast.Call)]
    found = [one for call in calls if (one := _reduction(place, call, known)) is not None]
    found = [one for one in found if measured in ("", _last(one.name))]
    return found[0] if len(found) == 1 and found[0].dim is not None else None


def _reduction(place: EditPlace, call: ast.Call, known: Mapping[str, tuple[str, ...]]) -> _Reduction | None:
    name = place.source.names.dotted(call.func).removeprefix("torch.")
    if name in known:
        places = known[name]
    elif isinstance(call.func, ast.Attribute) and call.func.attr in known and not place.source.names.dotted(call.func):
        name, places = call.func.attr, known[call.func.attr][1:]
    else:
        return None
    if any(isinstance(each, ast.Starred) for each in call.args) or len(call.args) > len(places):
        return None
    given = dict(zip(places, call.args, strict=False))
    given |= {_OTHER_NAMES.get(each.arg or "**", each.arg or "**"): each.value for each in call.keywords}
    if isinstance(call.func, ast.Attribute):
        given.setdefault("input", call.func.value)
    return _Reduction(call, name, given)


def _by_squares(one: _Reduction, changes: TextChanges) -> str:
    order = one.given.get("p")
    plain = order is None or (isinstance(order, ast.Constant) and order.value in (2, None))
    if not plain or one.given.keys() - {"input", "p", "dim", "keepdim"}:
        return ""
    x = operand(changes, one.given["input"])
    return f"{x}.square().sum({one.dim}{one.keep(changes)}).clamp_min({_LEAST}).sqrt()"


def _by_spread(one: _Reduction, changes: TextChanges) -> str:
    x, less = one.given["input"], _taken_off(one.given)
    if less is None or not is_plain(x) or one.given.keys() - {"input", "dim", "keepdim", "unbiased", "correction"}:
        return ""
    text = changes.text(x)
    number = f"({text}.size({one.dim}) - 1)" if less else f"{text}.size({one.dim})"
    squares = f"({text} - {text}.mean({one.dim}, keepdim=True)).square().sum({one.dim}{one.keep(changes)})"
    return f"({squares} / {number}).clamp_min({_LEAST}).sqrt()" if one.name == "std" else f"({squares} / {number})"


def _taken_off(given: dict[str, ast.expr]) -> int | None:
    """Return what is taken off the number of values before a variance is divided by it, None where that is not said."""
    value = given.get("correction", given.get("unbiased"))
    if value is None:
        return 1
    said = value.value if isinstance(value, ast.Constant) else None
    return int(said) if isinstance(said, int) and int(said) in (0, 1) else None


def _number(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    whole = isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return node.value if whole else None  # type: ignore[union-attr]


def _last(name: str) -> str:
    return "norm" if name.endswith("norm") else name
