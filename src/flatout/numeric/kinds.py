"""Kinds of values that compiled code knows: Python's numbers apart from numpy's, arrays, lists of numbers, texts.

A kind is what Python would have in that place, since `1`, `1.0`, `np.uint8(1)` and `True` are different results. All
whole numbers are carried as int64 and all others but float32 as float64; a `Kind` says what they are in Python.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "BOOL",
    "FLOAT",
    "INT",
    "LARGEST",
    "LETTER",
    "NONE",
    "NUMPY_BOOL",
    "Kind",
    "array",
    "is_array",
    "is_float",
    "is_number",
    "is_whole",
    "kind_of",
    "limits",
    "list_of",
    "number",
    "packed",
    "restored",
    "tuple_of",
]

LARGEST = 2**63 - 1
_LONGEST_TEXT = 1_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its name, and what it is made of.

    `dtype` is numpy's short name ("u1", "f8"); `layout` is "C", "F" or "A", in small letters where it is read-only.
    """

    name: str
    dtype: str = ""
    ndim: int = 0
    layout: str = ""
    inner: tuple["Kind", ...] = ()

    def plain(self) -> list[Any]:
        """Return it as text and numbers."""
        return [self.name, self.dtype, self.ndim, self.layout, [each.plain() for each in self.inner]]

    @classmethod
    def of_plain(cls, plain: list[Any]) -> "Kind":
        """Return the kind that `plain` gave."""
        name, dtype, ndim, layout, inner = plain
        return cls(str(name), str(dtype), int(ndim), str(layout), tuple(map(cls.of_plain, inner)))


INT, FLOAT, BOOL, LETTER, NONE = (Kind(name) for name in ("int", "float", "bool", "letter", "none"))
NUMPY_BOOL = Kind("number", "b1")
_NUMBERS = {name: Kind("number", name) for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8", "b1")}
_ARRAYS = frozenset(_NUMBERS)
_SCALARS: dict[type, Kind] = {np.dtype(name).type: kind for name, kind in _NUMBERS.items()}


def number(dtype: str) -> Kind | None:
    """Return the kind of numpy's scalars of that type, None where compiled code does not know it."""
    return _NUMBERS.get(dtype)


def array(dtype: str, ndim: int, layout: str = "A") -> Kind:
    """Return the kind of an array."""
    return Kind("array", dtype, ndim, layout)


def list_of(element: Kind | None) -> Kind:
    """Return the kind of a list; None: nothing is known of its elements yet."""
    return Kind("list", inner=() if element is None else (element,))


def tuple_of(kinds: Iterable[Kind]) -> Kind:
    """Return the kind of a tuple."""
    return Kind("tuple", inner=tuple(kinds))


def is_array(kind: Kind) -> bool:
    """Return whether it is an array of numpy's or a tensor."""
    return kind.name in ("array", "tensor")


def is_whole(kind: Kind) -> bool:
    """Return whether it is carried as an int64: whole numbers, Python's and numpy's."""
    return kind == INT or (kind.name == "number" and kind.dtype[0] in "iu")


def is_float(kind: Kind) -> bool:
    """Return whether it is a number with a fraction."""
    return kind == FLOAT or (kind.name == "number" and kind.dtype[0] == "f")


def is_number(kind: Kind) -> bool:
    """Return whether it is any number, truth values among them."""
    return kind in (BOOL, NUMPY_BOOL) or is_whole(kind) or is_float(kind)


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the largest whole number of a type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


# -- from Python's values, and back -----------------------------------------------------------------------------------


def kind_of(value: Any) -> Kind | None:
    """Return the kind of an argument; None: compiled code cannot take it."""
    known = _OF_TYPE.get(type(value))
    if known is not None:
        return known(value)
    torch = sys.modules.get("torch")
    return _of_tensor(value, torch) if torch is not None and type(value) is torch.Tensor else None


def _of_int(value: int) -> Kind | None:
    return INT if -LARGEST <= value <= LARGEST else None


def _of_array(value: np.ndarray[Any, Any]) -> Kind | None:
    dtype, flags = value.dtype, value.flags
    name = dtype.str[1:]
    if name not in _ARRAYS or not dtype.isnative or not value.ndim or not flags.aligned:
        return None
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    return _array_kind(name, value.ndim, layout if flags.writeable else layout.lower())


def _of_tensor(value: Any, torch: Any) -> Kind | None:
    """Return the kind of a tensor on the CPU that no gradient goes through."""
    if value.device.type != "cpu" or value.requires_grad or value.layout is not torch.strided or not value.dim():
        return None
    if value.is_inference() or value.is_conj() or value.is_neg() or value.is_quantized:
        return None
    try:
        kind = _of_array(value.numpy())
    except (RuntimeError, TypeError):  # a type or a tensor that numpy does not know
        return None
    return None if kind is None else Kind("tensor", kind.dtype, kind.ndim, kind.layout)


_made: dict[tuple[str, int, str], Kind] = {}


def _array_kind(dtype: str, ndim: int, layout: str) -> Kind:
    key = (dtype, ndim, layout)
    return _made.get(key) or _made.setdefault(key, Kind("array", dtype, ndim, layout))


def _of_list(value: list[Any]) -> Kind | None:
    return _OF_ELEMENTS.get(frozenset(map(type, value)))


def _of_tuple(value: tuple[Any, ...]) -> Kind | None:
    kinds = tuple(map(kind_of, value)) if len(value) <= 8 else (None,)
    return tuple_of(kind for kind in kinds if kind) if all(kind and is_number(kind) for kind in kinds) else None


_OF_ELEMENTS = {
    frozenset({int}): Kind("listed", inner=(INT,)),
    frozenset({float}): Kind("listed", inner=(FLOAT,)),
    frozenset({bool}): Kind("listed", inner=(BOOL,)),
}
_OF_TYPE: dict[type, Callable[[Any], Kind | None]] = {
    int: _of_int,
    float: lambda value: FLOAT,
    bool: lambda value: BOOL,
    str: lambda value: Kind("text") if len(value) <= _LONGEST_TEXT else None,
    list: _of_list,
    tuple: _of_tuple,
    np.ndarray: _of_array,
    **dict.fromkeys(_SCALARS, lambda value: _SCALARS[type(value)]),
}
_PACKED_LISTS = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}


def packed(value: Any, kind: Kind) -> Any:
    """Return what compiled code is given for an argument of that kind.

    Raises:
        OverflowError: a list holds a number that no int64 holds.
    """
    if kind.name == "listed":
        return np.array(value, dtype=_PACKED_LISTS[kind.inner[0]])
    if kind.name == "text":
        return np.frombuffer(value.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    if kind.name == "tuple":
        return tuple(packed(each, inner) for each, inner in zip(value, kind.inner, strict=True))
    if kind.name == "number" and kind.dtype != "f4":
        return value.item()
    if kind.name == "tensor":
        value = value.numpy()
    if kind.dtype == "b1":
        return value.view(np.uint8)  # a byte of such an array may be any number, and all but 0 are true
    return value


_RESTORED: dict[Kind, Callable[[Any], Any]] = {
    INT: int,
    FLOAT: float,
    BOOL: bool,
    **{kind: np.dtype(name).type for name, kind in _NUMBERS.items()},
}


def restored(value: Any, kind: Kind) -> Any:
    """Return what Python has where compiled code returned `value`."""
    if kind.name == "tuple":
        return tuple(restored(each, inner) for each, inner in zip(value, kind.inner, strict=True))
    if kind.name == "array":
        if kind.dtype == "b1":
            return value.astype(np.bool_)
        return value.copy()  # memory of numpy's own, as in Python
    if kind.name == "list":
        return list(value)
    return None if kind == NONE else _RESTORED[kind](value)
