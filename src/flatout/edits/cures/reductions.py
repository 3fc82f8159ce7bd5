"""A norm, a variance or an argmax over a slow dimension, written by sums and maxima.

Squares are out of range long before numbers are, the root of a sum has no gradient at zero, and what is taken off a
mean has few bits where the mean is large: the script looks at the sums, and takes the call as it is written where one
of them is zero, tiny, huge, NaN, or small beside the mean. `max(dim)` names the first of equal values, and NaN before
numbers, as `argmax` does.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from flatout.edits.cures.asked_forms import asked_form, unasked
from flatout.edits.finding_edit import EditPlace
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_maximum", "by_sums"]

_LEAST, _MOST = "1e-30", "1e30"  # of sums of squares: what may have been lost of single ones is no matter
_SPREAD = "1e-8"  # of the square of the mean
_FLOATS = ("float32", "float64")
_COMPARED = ("float32", "float64", "float16", "bfloat16", "int64", "int32")
_NORMS = {  # by the name behind `torch.`: arguments by their place
    "norm": ("input", "p", "dim", "keepdim", "out", "dtype"),
    "linalg.norm": ("input", "p", "dim", "keepdim"),
    "linalg.vector_norm": ("input", "p", "dim", "keepdim"),
    "functional.norm": ("input", "p", "dim", "keepdim", "out", "dtype"),
}
_SPREADS = {"var": ("input", "dim", "unbiased", "keepdim"), "std": ("input", "dim", "unbiased", "keepdim")}
_MAXIMA = {"argmax": ("input", "dim", "keepdim"), "argmin": ("input", "dim", "keepdim")}
_OTHER_NAMES = {"ord": "p", "axis": "dim", "A": "input", "x": "input", "self": "input"}
_IN_RANGE = f"{_LEAST} < sums.amin() and sums.amax() < {_MOST}"
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

    def keep(self, names: tuple[str, ...]) -> str:
        """Return the argument that keeps the dimension, where its operands have these names."""
        value = self.given.get("keepdim")
        if value is None:
            return ""
        return f", keepdim={names[1] if len(names) > 1 else ast.unparse(value)}"

    @property
    def operands(self) -> dict[str, ast.expr]:
        """What is computed for it before."""
        keep = self.given.get("keepdim")
        return {"x": self.given["input"]} | ({"keep": keep} if not isinstance(keep, ast.Constant | None) else {})


def by_sums(place: EditPlace) -> WrittenEdit:
    """Write a norm, a variance or a standard deviation by sums of squares."""
    one = _one(place, {**_NORMS, **_SPREADS})
    if one is None:
        return place.left("a single norm, var or std over one dimension is not found on this line")
    if place.finding.argument("dtype") == "float16":
        return place.left("squares of float16 numbers are out of its range")
    less = _taken_off(one.given)
    if not _is_by_squares(one) if one.name not in _SPREADS else less is None:
        return place.left(f"{ast.unparse(one.call)} is of a kind that sums of squares do not give")
    against = unasked(place, one.call, compiled=True)
    if against:
        return place.left(against)
    asked = asked_form(place, one.call, one.operands)
    x, torch, keep = asked.names[0], asked.torch, one.keep(asked.names)
    kinds = ", ".join(f"{torch}.{each}" for each in _FLOATS)
    plain = f'{asked.is_tensor(x)} and {x}.device.type == "cpu" and {x}.dtype in ({kinds})'
    if one.name not in _SPREADS:
        sums = f"(sums := {x}.square().sum({one.dim}{keep})).numel()"
        return asked.put(place, f"{plain} and {sums} and {_IN_RANGE}", "sums.sqrt()")
    mean = f"(mean := {x}.mean({one.dim}, keepdim=True))"
    sums = f"(sums := ({x} - {mean}).square().sum({one.dim}{keep})).numel()"
    near = f"sums.amin() > {_SPREAD} * {x}.size({one.dim}) * mean.square().amax()"
    form = f"sums / ({x}.size({one.dim}) - 1)" if less else f"sums / {x}.size({one.dim})"
    form = f"({form}).sqrt()" if one.name == "std" else form
    return asked.put(place, f"{plain} and {x}.size({one.dim}) > 1 and {sums} and {_IN_RANGE} and {near}", form)


def by_maximum(place: EditPlace) -> WrittenEdit:
    """Write an argmax by the indices of a maximum."""
    one = _one(place, _MAXIMA)
    if one is None:
        return place.left("a single argmax or argmin over one dimension is not found on this line")
    if one.given.keys() - {"input", "dim", "keepdim"}:
        return place.left(f"{ast.unparse(one.call)} is given more than a dimension")
    against = unasked(place, one.call, shown=False)
    if against:
        return place.left(against)
    asked = asked_form(place, one.call, one.operands)
    x, kinds = asked.names[0], ", ".join(f"{asked.torch}.{each}" for each in _COMPARED)
    when = f'{asked.is_tensor(x)} and {x}.device.type == "cpu" and {x}.dtype in ({kinds})'
    when += f" and {x}.layout is {asked.torch}.strided"
    return asked.put(place, when, f"{x}.{one.name[3:]}({one.dim}{one.keep(asked.names)}).indices")


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


def _is_by_squares(one: _Reduction) -> bool:
    order = one.given.get("p")
    plain = order is None or (isinstance(order, ast.Constant) and order.value in (2, None))
    return plain and not one.given.keys() - {"input", "p", "dim", "keepdim"}


def _taken_off(given: dict[str, ast.expr]) -> int | None:
    """Return what is taken off the number of values before a variance is divided by it, None where that is not said."""
    if given.keys() - {"input", "dim", "keepdim", "unbiased", "correction"}:
        return None
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
