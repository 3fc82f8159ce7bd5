"""The functions that compiled code knows, told by what they are, not by what a script calls them."""

import builtins
import math
from typing import Any

import numpy as np

__all__ = ["LIBRARY", "TYPES", "known_name"]

LIBRARY = ("exp", "sin", "cos", "tan", "atan", "tanh", "sinh", "cosh", "log", "log2", "log10", "asin", "acos", "expm1")
"""Functions of one number that Python's `math` takes from the C library as they are, where they get an ordinary one."""

_BUILTINS = (
    "abs",
    "bool",
    "enumerate",
    "float",
    "int",
    "len",
    "list",
    "max",
    "min",
    "range",
    "reversed",
    "round",
    "zip",
)
_MATH = (*LIBRARY, "sqrt", "floor", "ceil", "fabs", "isnan", "isinf", "isfinite")
_MAKERS = ("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like")
TYPES = {
    name: np.dtype(name).str[1:]
    for name in ("float64", "float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
}
"""numpy's types by their names, and by the short ones."""

_KNOWN: dict[int, str] = {
    **{id(getattr(builtins, name)): name for name in _BUILTINS},
    **{id(getattr(math, name)): f"math.{name}" for name in _MATH},
    **{id(getattr(np, name)): f"np.{name}" for name in _MAKERS},
    **{id(np.dtype(name).type): f"np.{name}" for name in TYPES},
}


def known_name(value: Any) -> str:
    """Return what a function is called here, "" for all that compiled code does not know."""
    return _KNOWN.get(id(value), "")
