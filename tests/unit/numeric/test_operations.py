"""Operations of compiled code, one by one, on the numbers at which they turn."""

import math
import operator
import random

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from flatout.numeric.arithmetic import Untranslatable, common
from flatout.numeric.comparison import same_bits
from flatout.numeric.kinds import FLOAT, INT, NUMPY_BOOL, kind_of, number
from flatout.numeric.operations import operations

pytestmark = pytest.mark.slow

WHOLE = [0, 1, -1, 2, -2, 3, 7, -7, 255, 2**31, -(2**31), 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63 - 1)]
REAL = [0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3.0, 1e-320, 1e300, -1e300, math.inf, -math.inf, 5.0, 1e16 + 2]


def compiled(name, arguments):
    """Return a function of Python that calls one operation."""
    space = {"operation": operations()[name]}
    names = ", ".join(f"a{number}" for number in range(arguments))
    exec(f"def f({names}):\n    return operation({names})\n", space)
    return numba.njit(space["f"])


def python(act, *values):
    try:
        return act(*values)
    except (ZeroDivisionError, OverflowError, ValueError):
        return OverflowError


def machine(function, *values):
    try:
        return function(*values)
    except OverflowError:
        return OverflowError


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("add", operator.add), ("subtract", operator.sub), ("multiply", operator.mul),
        ("floor_divide", operator.floordiv),
        ("modulo", operator.mod), ("bit_and", operator.and_), ("bit_or", operator.or_), ("bit_xor", operator.xor),
    ],
)  # fmt: skip
def test_a_whole_number_is_python_s_or_left_to_python(name, act):
    function = compiled(name, 2)
    for one in WHOLE:
        for other in WHOLE:
            theirs = python(act, one, other)
            fits = theirs is not OverflowError and -(2**63) <= theirs < 2**63
            assert machine(function, one, other) == (theirs if fits else OverflowError), (one, other)


@pytest.mark.parametrize(("name", "act"), [("shift_left", operator.lshift), ("shift_right", operator.rshift)])
def test_a_shifted_number_is_python_s_or_left_to_python(name, act):
    function = compiled(name, 2)
    for one in WHOLE:
        for by in (0, 1, 5, 31, 61, 62, 63, -1, 200):
            mine = machine(function, one, by)
            if mine is not OverflowError:
                assert mine == python(act, one, by)
    assert machine(function, 3, 5) == act(3, 5)


def test_a_ratio_is_exact_or_left_to_python():
    function = compiled("ratio", 2)
    for one in WHOLE:
        for other in WHOLE:
            mine = machine(function, one, other)
            assert mine is OverflowError or same_bits(mine, one / other)
    assert machine(function, 1, 3) == 1 / 3


@pytest.mark.parametrize(("name", "act"), [("real_divide", operator.truediv), ("real_modulo", operator.mod)])
def test_a_real_number_is_python_s_to_the_last_bit(name, act):
    function, rng = compiled(name, 2), random.Random(0)
    drawn = [(rng.uniform(-9, 9), rng.uniform(-3, 3)) for _ in range(2000)]
    for one, other in [*((one, other) for one in REAL for other in REAL), *drawn]:
        mine, theirs = machine(function, one, other), python(act, one, other)
        assert mine is theirs or same_bits(mine, theirs) or mine != mine != theirs, (one, other, mine, theirs)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "tan", "atan", "tanh", "log", "log2", "log10", "asin", "sqrt"])
def test_a_function_of_math_is_python_s_to_the_last_bit(name):
    function, rng = compiled(name, 1), random.Random(1)
    for value in [*REAL, *(rng.uniform(-3, 30) for _ in range(3000)), *(rng.uniform(-1, 1) for _ in range(3000))]:
        mine = machine(function, value)
        assert mine is OverflowError or same_bits(mine, getattr(math, name)(value)), value
    assert machine(function, 0.5) is not OverflowError


def test_a_power_is_python_s_to_the_last_bit():
    function, rng = compiled("power", 2), random.Random(2)
    for one, other in [(rng.uniform(0, 30), rng.uniform(-9, 9)) for _ in range(3000)] + [
        (2.5, 2.0),
        (0.0, 0.0),
        (7.1, 3.0),
    ]:
        assert same_bits(machine(function, one, other), one**other)
    assert machine(function, -2.0, 0.5) is OverflowError  # a complex number


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("numpy_real_add", operator.add), ("numpy_real_subtract", operator.sub), ("numpy_real_multiply", operator.mul),
        ("numpy_real_divide", operator.truediv), ("numpy_real_modulo", operator.mod),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_what_numpy_warns_of_is_left_to_python_and_all_else_is_numpy_s(name, act, kind):
    if name == "numpy_real_modulo" and kind is np.float32:
        return  # it has no compiled form
    function = compiled(name, 2)
    with np.errstate(all="ignore"):
        values = [kind(value) for value in REAL]
    for one in values:
        for other in values:
            mine = machine(function, one, other)
            try:
                with np.errstate(over="raise", divide="raise", invalid="raise", under="ignore"):
                    theirs = act(one, other)
            except FloatingPointError:
                assert mine is OverflowError, (one, other)
                continue
            assert mine is OverflowError or same_bits(kind(mine), theirs), (one, other, mine, theirs)
    assert machine(function, kind(7.5), kind(2.5)) is not OverflowError


def test_products_are_not_fused_with_the_sums_behind_them():
    """x * y + z in one rounding is another number: machine code of this processor holds no such instruction."""

    @numba.njit
    def f(x, y, z):
        total = z
        for i in range(len(x)):
            total += x[i] * y[i]
        return total

    values = np.random.default_rng(0).random(100)
    f(values, values, 0.0)
    (text,) = f.inspect_asm().values()
    assert "fmadd" not in text and "fmla" not in text and "fmsub" not in text


@pytest.mark.parametrize("one", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8", "b1"])
@pytest.mark.parametrize("other", [INT, FLOAT, *("i1", "i4", "i8", "u1", "u4", "f4", "f8", "b1")])
def test_the_common_type_is_numpy_s(one, other):
    native = {INT: 1, FLOAT: 1.0}.get(other)
    mine, theirs = np.dtype(one).type(1), native if native is not None else np.dtype(other).type(1)
    kind = number(other) if isinstance(other, str) else other
    found = kind_of(mine + theirs)
    if found is None:
        with pytest.raises(Untranslatable):
            common(number(one), kind)
    elif not (kind_of(mine) == kind_of(theirs) == NUMPY_BOOL):
        assert common(number(one), kind) == found
