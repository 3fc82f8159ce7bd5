"""Single operations of compiled code: each gives what Python gives, or raises, and then Python does the work itself.

An int64 that runs over raises; so do a division by zero, a float of numpy's that becomes infinite or NaN where Python
would warn, and a conversion that would not be exact. Functions of `math` are those of the C library that Python calls.
"""

import ctypes
import functools
import math
import os
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from flatout.numeric.known_functions import LIBRARY

__all__ = ["operations"]

_LEAST, _MOST = -(2**63), 2**63 - 1
_EXACT64, _EXACT32 = 2**53, 2**24
_LEFT_TO_PYTHON = OverflowError  # no text: numba would carry it along


def _checked(name: str) -> Any:
    """Return a whole-number operation that raises where it runs over."""

    @intrinsic
    def operation(context: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            both = getattr(builder, name)(*arguments)
            with builder.if_then(builder.extract_value(both, 1), likely=False):
                context.call_conv.return_user_exc(builder, _LEFT_TO_PYTHON, ())
            return builder.extract_value(both, 0)

        return types.int64(types.int64, types.int64), generate

    return operation


_jit: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(error_model="numpy")
_add, _subtract, _multiply = map(_checked, ("sadd_with_overflow", "ssub_with_overflow", "smul_with_overflow"))


@_jit
def _floor_divide(left: Any, right: Any) -> Any:
    if right == 0 or (left == _LEAST and right == -1):
        raise OverflowError
    return left // right


@_jit
def _modulo(left: Any, right: Any) -> Any:
    if right == 0 or (left == _LEAST and right == -1):
        raise OverflowError
    return left % right


@_jit
def _bit_and(left: Any, right: Any) -> Any:
    return left & right


@_jit
def _bit_or(left: Any, right: Any) -> Any:
    return left | right


@_jit
def _bit_xor(left: Any, right: Any) -> Any:
    return left ^ right


@_jit
def _shift_right(left: Any, right: Any) -> Any:
    if right < 0 or right > 63:
        raise OverflowError
    return left >> right


@_jit
def _shift_left(left: Any, right: Any) -> Any:
    if right < 0 or right > 62 or left > (_MOST >> right) or left < -(_MOST >> right):
        raise OverflowError
    return left << right


@_jit
def _within(value: Any, least: Any, most: Any) -> Any:
    if value < least or value > most:
        raise OverflowError
    return value


@_jit
def _exact64(value: Any) -> Any:
    if value > _EXACT64 or value < -_EXACT64:
        raise OverflowError
    return np.float64(value)


@_jit
def _exact32(value: Any) -> Any:
    if value > _EXACT32 or value < -_EXACT32:
        raise OverflowError
    return np.float32(value)


@_jit
def _ratio(left: Any, right: Any) -> Any:
    if right == 0 or abs(left) > _EXACT64 or abs(right) > _EXACT64:
        raise OverflowError
    return np.float64(left) / np.float64(right)


@_jit
def _narrowed(value: Any) -> Any:
    narrow = np.float32(value)
    if abs(narrow) == np.inf and abs(value) != np.inf:
        raise OverflowError
    return narrow


@_jit
def _truncated(value: Any) -> Any:
    if not (-9.2e18 < value < 9.2e18):
        raise OverflowError
    return np.int64(value)


@_jit
def _rounded(value: Any) -> Any:
    return _truncated(np.rint(value))


# -- numbers with a fraction ------------------------------------------------------------------------------------------


@_jit
def _real_divide(left: Any, right: Any) -> Any:
    if right == 0.0:
        raise OverflowError
    return left / right


@_jit
def _real_modulo(left: Any, right: Any) -> Any:
    if right == 0.0:
        raise OverflowError
    rest = np.fmod(left, right)
    if rest == 0.0:
        return math.copysign(0.0, right)
    return rest + right if (right < 0.0) != (rest < 0.0) else rest


@_jit
def _inherited(result: Any, left: Any, right: Any) -> Any:
    """Return whether an infinity comes from an infinite operand, or a NaN from one: then numpy does not warn."""
    if result == result:
        return abs(left) == np.inf or abs(right) == np.inf
    return left != left or right != right


@_jit
def _numpy_real_add(left: Any, right: Any) -> Any:
    result = left + right
    if not abs(result) < np.inf and not _inherited(result, left, right):
        raise OverflowError
    return result


@_jit
def _numpy_real_subtract(left: Any, right: Any) -> Any:
    result = left - right
    if not abs(result) < np.inf and not _inherited(result, left, right):
        raise OverflowError
    return result


@_jit
def _numpy_real_multiply(left: Any, right: Any) -> Any:
    result = left * right
    if not abs(result) < np.inf and not _inherited(result, left, right):
        raise OverflowError
    return result


@_jit
def _numpy_real_divide(left: Any, right: Any) -> Any:
    if right == 0.0:
        raise OverflowError
    result = left / right
    if not abs(result) < np.inf and not _inherited(result, left, right):
        raise OverflowError
    return result


@_jit
def _numpy_real_modulo(left: Any, right: Any) -> Any:
    if right == 0.0 or not abs(left) < np.inf or not abs(right) < np.inf:
        raise OverflowError
    rest = np.fmod(left, right)
    if rest == 0.0:
        return math.copysign(0.0, right)
    return rest + right if (right < 0.0) != (rest < 0.0) else rest


@_jit
def _least(left: Any, right: Any) -> Any:
    return right if right < left else left


@_jit
def _largest(left: Any, right: Any) -> Any:
    return right if right > left else left


@_jit
def _whole_absolute(value: Any) -> Any:
    if value == _LEAST:
        raise OverflowError
    return -value if value < 0 else value


@_jit
def _real_absolute(value: Any) -> Any:
    return abs(value)


@_jit
def _floor(value: Any) -> Any:
    return _truncated(np.floor(value))


@_jit
def _ceil(value: Any) -> Any:
    return _truncated(np.ceil(value))


@_jit
def _require(condition: Any) -> Any:
    if not condition:
        raise OverflowError


# -- functions of the C library ---------------------------------------------------------------------------------------

_ABOVE_ZERO = ("log", "log2", "log10")


def _of_library(name: str, function: Any) -> Callable[[Any], Any]:
    above = name in _ABOVE_ZERO

    def one(value: Any) -> Any:
        if not abs(value) < np.inf or (above and value <= 0.0):
            raise OverflowError
        result = function(value)
        if not abs(result) < np.inf:
            raise OverflowError
        return result

    return one


@_jit
def _sqrt(value: Any) -> Any:
    if not (0.0 <= value < np.inf):
        raise OverflowError
    return math.sqrt(value)


def _power_by(function: Any) -> Callable[[Any, Any], Any]:
    def power(value: Any, exponent: Any) -> Any:
        if not abs(value) < np.inf or not abs(exponent) < np.inf or value < 0.0 or (value == 0.0 and exponent < 0.0):
            raise OverflowError
        result = function(value, exponent)
        if not abs(result) < np.inf:
            raise OverflowError
        return result

    return power


def _numpy_power_by(function: Any) -> Callable[[Any, Any], Any]:
    def power(value: Any, exponent: Any) -> Any:
        result = function(value, exponent)
        if not abs(result) < np.inf:
            raise OverflowError
        return result

    return power


_POWERS = {"power": _power_by, "numpy_power": _numpy_power_by}


@functools.cache
def operations() -> dict[str, Any]:
    """Return what translated code may name, by those names."""
    kind = type(_floor)
    found = {name[1:]: value for name, value in globals().items() if isinstance(value, kind)}
    found |= {"add": _add, "subtract": _subtract, "multiply": _multiply}
    found |= {"int64": np.int64, "float64": np.float64, "float32": np.float32}
    for name in LIBRARY:
        function = _library_function(name, 1)
        if function is not None:
            found[name] = _jit(_of_library(name, function))
    function = _library_function("pow", 2)
    if function is not None:
        found |= {name: _jit(make(function)) for name, make in _POWERS.items()}
    return found


def _library_function(name: str, arguments: int) -> Any:
    """Return a function of the C library that this process calls, None where it is not told which that is."""
    if os.name != "posix":
        return None
    for library in (None, "libm.so.6"):
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (AttributeError, OSError):
            continue
        function.argtypes, function.restype = [ctypes.c_double] * arguments, ctypes.c_double
        return function
    return None
