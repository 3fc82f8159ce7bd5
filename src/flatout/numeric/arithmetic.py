"""Arithmetic as Python does it: from an operator and the kinds of its operands to a call and the kind of its result.

Every call names a function of `operations`; where one of those cannot give what Python gives, it raises, and Python
does the work itself.
"""

import ast

import numpy as np

from flatout.numeric.kinds import (
    BOOL,
    FLOAT,
    INT,
    LETTER,
    NUMPY_BOOL,
    Kind,
    is_float,
    is_number,
    is_whole,
    limits,
    number,
)

__all__ = ["Untranslatable", "binary", "call", "common", "compared", "converted", "negative", "truth"]


class Untranslatable(Exception):
    """Why compiled code cannot do what a piece of Python does, as a clause."""


_WHOLE: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "modulo",
}
_BITS: dict[type[ast.operator], str] = {
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.RShift: "shift_right",
    ast.LShift: "shift_left",
}
_REAL: dict[type[ast.operator], str] = {
    ast.Add: "real_add",
    ast.Sub: "real_subtract",
    ast.Mult: "real_multiply",
    ast.Div: "real_divide",
    ast.Mod: "real_modulo",
}
_COUNTS = Kind("element", "i8")
_AS_WRITTEN: dict[str, type[ast.operator]] = {"real_add": ast.Add, "real_subtract": ast.Sub, "real_multiply": ast.Mult}
_POWERS = {2, 3}


def call(name: str, *arguments: ast.expr) -> ast.expr:
    """Return a call of one of the operations, or the operator that does the same."""
    if name in _AS_WRITTEN:
        return ast.BinOp(arguments[0], _AS_WRITTEN[name](), arguments[1])
    return ast.Call(ast.Name(f"flatout_{name}", ast.Load()), list(arguments), [])


def converted(node: ast.expr, kind: Kind, wanted: str) -> ast.expr:
    """Return a number as an "int64", "float64" or "float32"."""
    carried = (
        "int64" if is_whole(kind) else "float32" if kind.dtype == "f4" else "float64" if is_float(kind) else "bool"
    )
    if carried == wanted:
        return node
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and wanted == "float64":
        return ast.Constant(float(node.value))
    if carried == "float64" and wanted == "float32":
        return call("narrowed", node)  # raises where that is beyond its range
    return call(wanted, node)


def binary(op: ast.operator, left: ast.expr, kind: Kind, right: ast.expr, other: Kind) -> tuple[ast.expr, Kind]:
    """Return what an operator gives.

    Raises:
        Untranslatable: compiled code does not know it.
    """
    if kind == _COUNTS and other == INT and isinstance(op, ast.Add | ast.Sub | ast.Mult):
        return call(_WHOLE[type(op)], left, right), kind
    if not is_number(kind) or not is_number(other):
        raise Untranslatable(f"{_shown(op)} is done to something that is no number")
    if isinstance(op, ast.Pow):
        return _power(left, kind, right, other)
    native = {INT, BOOL, FLOAT}
    if kind in native and other in native:
        return _of_python(op, left, kind, right, other)
    return _of_numpy(op, left, kind, right, other)


def _of_python(op: ast.operator, left: ast.expr, kind: Kind, right: ast.expr, other: Kind) -> tuple[ast.expr, Kind]:
    if FLOAT in (kind, other):
        name = _REAL.get(type(op))
        if name is None:
            raise Untranslatable(f"{_shown(op)} is done to numbers with a fraction")
        return call(name, converted(left, kind, "float64"), converted(right, other, "float64")), FLOAT
    left, right = converted(left, kind, "int64"), converted(right, other, "int64")
    if isinstance(op, ast.Div):
        return call("ratio", left, right), FLOAT
    if type(op) in _BITS:
        if BOOL in (kind, other):
            raise Untranslatable(f"{_shown(op)} is done to truth values")
        return call(_BITS[type(op)], left, right), INT
    if type(op) not in _WHOLE:
        raise Untranslatable(f"{_shown(op)} is done to whole numbers")
    return call(_WHOLE[type(op)], left, right), INT


def common(kind: Kind, other: Kind) -> Kind:
    """Return the type in which numpy brings together two numbers, one of them its own (NEP 50).

    Raises:
        Untranslatable: compiled code does not know it.
    """
    weak = {INT: 0, FLOAT: 0.0}
    parts = [weak[each] if each in weak else np.dtype(each.dtype or "b1") for each in (kind, other)]
    found = number(np.result_type(*parts).str[1:])
    if found is None:
        raise Untranslatable("numbers of two types of numpy have no common one that compiled code knows")
    return found


def _of_numpy(op: ast.operator, left: ast.expr, kind: Kind, right: ast.expr, other: Kind) -> tuple[ast.expr, Kind]:
    result = common(kind, other)
    if result == NUMPY_BOOL or type(op) in _BITS:
        raise Untranslatable(f"{_shown(op)} is done to numpy's truth values or bits")
    if is_float(result) or isinstance(op, ast.Div):
        result = result if is_float(result) else FLOAT if result == FLOAT else _float64()
        wanted = "float32" if result.dtype == "f4" else "float64"
        name = _REAL.get(type(op))
        if name is None or (isinstance(op, ast.Mod) and wanted == "float32"):
            raise Untranslatable(f"{_shown(op)} is done to numbers with a fraction")
        arguments = (_weak_real(left, kind, wanted), _weak_real(right, other, wanted))
        return call(f"numpy_{name}", *arguments), result
    if type(op) not in _WHOLE:
        raise Untranslatable(f"{_shown(op)} is done to whole numbers of numpy")
    least, most = (ast.Constant(limit) for limit in limits(result.dtype))
    whole = [
        call("within", each, least, most) if of == INT else converted(each, of, "int64")
        for each, of in ((left, kind), (right, other))
    ]
    return call("within", call(_WHOLE[type(op)], *whole), least, most), result


def _float64() -> Kind:
    found = number("f8")
    assert found is not None
    return found


def _weak_real(node: ast.expr, kind: Kind, wanted: str) -> ast.expr:
    """Return an operand of numpy's arithmetic; whole numbers that the type does not hold exactly are left to Python."""
    if is_whole(kind):
        return call("exact32" if wanted == "float32" else "exact64", node)
    return converted(node, kind, wanted)


def _power(left: ast.expr, kind: Kind, right: ast.expr, other: Kind) -> tuple[ast.expr, Kind]:
    """Return a power: squares and cubes of Python's whole numbers, and whole powers of Python's floats."""
    exponent = right.value if isinstance(right, ast.Constant) and type(right.value) is int else None
    if kind == INT and exponent in _POWERS:
        square = call("multiply", left, left)
        return (square if exponent == 2 else call("multiply", square, left)), INT
    if kind == FLOAT and other in (FLOAT, INT):
        return call("power", left, converted(right, other, "float64")), FLOAT
    if kind == number("f8") and exponent == 2:
        return call("numpy_power", left, ast.Constant(2.0)), kind
    raise Untranslatable("a power is taken that compiled code does not know")


# -- comparisons, signs, truth ----------------------------------------------------------------------------------------


def compared(op: ast.cmpop, left: ast.expr, kind: Kind, right: ast.expr, other: Kind) -> tuple[ast.expr, Kind]:
    """Return a comparison.

    Raises:
        Untranslatable: compiled code does not know it.
    """
    if kind == LETTER and other == LETTER and isinstance(op, ast.Eq | ast.NotEq):
        return ast.Compare(left, [op], [right]), BOOL
    if kind == other and kind.name == "element" and not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn):
        return ast.Compare(left, [op], [right]), Kind("element", "b1")
    if isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) or not (is_number(kind) and is_number(other)):
        raise Untranslatable("things are compared that are no numbers")
    native = {INT, BOOL, FLOAT}
    result = BOOL if kind in native and other in native else NUMPY_BOOL
    if is_float(kind) or is_float(other):
        shared = FLOAT if result == BOOL else common(kind, other)
        wanted = "float32" if shared.dtype == "f4" else "float64"
        left, right = _weak_real(left, kind, wanted), _weak_real(right, other, wanted)
    else:
        left, right = converted(left, kind, "int64"), converted(right, other, "int64")
    return ast.Compare(left, [op], [right]), result


def negative(node: ast.expr, kind: Kind) -> tuple[ast.expr, Kind]:
    """Return a number with the other sign.

    Raises:
        Untranslatable: compiled code does not know it.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and type(node.value) is not bool:
        return ast.Constant(-node.value), kind
    if kind == INT:
        return call("subtract", ast.Constant(0), node), INT
    if is_float(kind):
        return ast.UnaryOp(ast.USub(), node), kind
    if is_whole(kind) and kind.dtype[0] == "i":
        least, most = (ast.Constant(limit) for limit in limits(kind.dtype))
        return call("within", call("subtract", ast.Constant(0), node), least, most), kind
    raise Untranslatable("the sign of something is changed that has none")


def truth(node: ast.expr, kind: Kind) -> ast.expr:
    """Return whether Python takes a value for true.

    Raises:
        Untranslatable: compiled code does not know it.
    """
    if kind in (BOOL, NUMPY_BOOL) or (kind.name, kind.dtype) == ("element", "b1"):
        return node
    if kind.name == "element":
        kind = number(kind.dtype) or kind
    if is_number(kind):
        zero = ast.Constant(0) if is_whole(kind) else ast.Constant(0.0)
        return ast.Compare(node, [ast.NotEq()], [zero])
    if kind.name in ("list", "listed", "text"):
        return ast.Compare(call("len", node), [ast.NotEq()], [ast.Constant(0)])
    raise Untranslatable("the truth of something is asked for that is no number")


_SIGNS: dict[type[ast.operator], str] = {ast.Pow: "**", ast.MatMult: "@", ast.LShift: "<<", ast.RShift: ">>"}


def _shown(op: ast.operator) -> str:
    return _SIGNS.get(type(op), type(op).__name__)
