"""What kinds of objects there are: what never changes, what is not followed, and what stands behind the rest."""

import ctypes
import datetime
import decimal
import enum
import functools
import gc
import logging
import pathlib
import re
import sys
import threading
import types
import weakref
from typing import Any

from flatout.watch.components import is_own, module_of
from flatout.watch.unwritten import UnwrittenMemory

__all__ = ["POINTERS", "base_container", "behind", "is_immutable", "is_mutable_iterator", "referents", "unfollowed"]

_IMMUTABLE = (
    *(pathlib.PurePath, re.Pattern, range, slice, types.CodeType, type(...), type(NotImplemented), decimal.Decimal),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, types.GetSetDescriptorType),
    *(types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GenericAlias),
    types.ClassMethodDescriptorType,
    UnwrittenMemory,
)
_IMMUTABLE_PACKAGES = {"pyarrow", "typing", "fractions", "uuid", "zoneinfo", "tokenizers", "sentencepiece"}
POINTERS = {"PyCapsule"}
"""Compiled classes whose objects say nothing by themselves; classes of compiled packages have some."""

_OF_TORCH = {"dtype", "device", "layout", "memory_format", "Size", "qscheme"}


@functools.cache
def unfollowed() -> tuple[type, ...]:
    """Return the types whose objects are passed over: locks, what only runs."""
    locks = (type(threading.Lock()), type(threading.RLock()))
    return (*locks, threading.Thread, types.FrameType, logging.RootLogger, logging.Logger)


def is_immutable(thing: Any) -> bool:
    """Tell whether an object never changes, all that it holds included."""
    kind = type(thing)
    if isinstance(thing, _IMMUTABLE) and not issubclass(kind, type):
        return True
    if isinstance(thing, types.BuiltinFunctionType | types.MethodWrapperType):
        return isinstance(getattr(thing, "__self__", None), types.ModuleType | type | None)
    if isinstance(thing, enum.Enum):  # as long as nobody gives a member attributes or another value
        return not is_own(module_of(kind))
    package = module_of(kind).partition(".")[0]
    if package == "numpy":
        numpy = sys.modules["numpy"]
        return isinstance(thing, numpy.generic | numpy.dtype | numpy.ufunc)
    return package in _IMMUTABLE_PACKAGES or (package == "torch" and kind.__name__ in _OF_TORCH)


def is_mutable_iterator(thing: Any) -> bool:
    """Tell whether an object moves on when it is asked for the next of something."""
    return callable(getattr(type(thing), "__next__", None)) and not isinstance(thing, type)


def base_container(kind: type) -> str | None:
    """Return the name of the container that a class is made from, None where it is made from none."""
    return next((base.__name__ for base in kind.__mro__ if base in (list, tuple, dict, set, frozenset)), None)


def referents(thing: Any) -> list[Any]:
    """Return what an object refers to, as the collector sees it."""
    return gc.get_referents(thing)


def behind(thing: Any, own: dict[str, Any] | None) -> list[Any]:
    """Return what an object holds besides its attributes and items, without a call of its own."""
    if isinstance(thing, weakref.ref):
        return [weakref.ref.__call__(thing)]
    if isinstance(thing, ctypes._SimpleCData | ctypes.Array | ctypes.Structure):
        return []
    passed = (type, types.ModuleType, types.FrameType)
    found = [one for one in referents(thing) if one is not own and not isinstance(one, passed)]
    if base_container(type(thing)) is not None:
        items = set(map(id, thing.values() if isinstance(thing, dict) else ()))
        return [one for one in found if id(one) not in items]
    return found
