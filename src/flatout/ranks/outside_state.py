"""State outside of modules that their code may change: whether a trial sees, and puts back, all that there can be.

Where it does, one rank may call a copy that the others do not call: nothing of it is left behind. That is said of code
only in which every name leads to something known; any other code may have a counter that nobody sees.
"""

import collections
import dis
import enum
import functools
import logging
import random
import sys
import types
import weakref
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from flatout.ranks.named_values import called_functions, is_foreign, variables

__all__ = ["all_is_seen"]

_CONSTANT = (
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice, enum.Enum),
    *(torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout),
)
_CONTAINERS = (list, tuple, set, frozenset, dict)
_CODE = (types.FunctionType, classmethod, staticmethod, property, functools.cached_property)
_MOST_ITEMS = 1000
_DEEPEST = 3  # containers and records, one in the other
_ANYWHERE = {  # by which code may reach what it does not name
    *("builtins", "ctypes", "gc", "importlib", "inspect", "multiprocessing", "os", "socket", "subprocess", "sys"),
    *("threading", "weakref", "__import__", "compile", "delattr", "eval", "exec", "globals", "input", "locals"),
    *("open", "setattr", "type", "vars", "__class__", "__closure__", "__dict__", "__globals__", "__self__"),
}
_OF_TORCH = ("_parameters", "_buffers", "_modules")  # attributes that torch keeps
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL")
_COPIES = {"__copy__", "__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__", "__setstate__"}
_GENERATED = {  # methods that are written for a class by `dataclass` and `namedtuple`
    *("__init__", "__repr__", "__eq__", "__hash__", "__replace__", "__lt__", "__le__", "__gt__", "__ge__"),
    *vars(collections.namedtuple("Example", ())),
}


def all_is_seen(modules: Sequence[Any]) -> bool:
    """Return whether `NamedValues` finds whatever the code of `modules`, a module and its parts, may write outside."""
    kinds = {kind for module in modules for kind in type(module).__mro__}
    functions = set(called_functions(modules))
    attributes = (
        value
        for module in modules
        for name, value in vars(module).items()
        if name not in _OF_TORCH and not (_is_library(type(module).__module__) and _is_weak(value))
    )
    return (
        all(_is_open(kind, functions) for kind in kinds if not _is_library(kind.__module__))
        and all(_sees(function, functions, kinds) for function in functions)
        and all(_is_copied(value, functions, kinds) for value in attributes)
    )


def _is_weak(value: Any) -> bool:
    """Return whether a value is a list of references to parameters, as recurrent layers have it."""
    return type(value) is list and all(isinstance(one, weakref.ref) for one in value)


# -- code -----------------------------------------------------------------------------------------------------------


def _is_open(kind: type, functions: set[Any]) -> bool:
    """Return whether a module's class holds constants and known methods; instances are copied in the usual way."""
    if type(kind) not in (type, ABCMeta) or not _COPIES.isdisjoint(vars(kind)):
        return False
    return all(
        name == "__init__" or value in functions
        if isinstance(value, types.FunctionType)
        else _is_constant(value) or (name.startswith("__") and not isinstance(value, _CODE))
        for name, value in vars(kind).items()
    )


def _sees(function: types.FunctionType, functions: set[Any], kinds: set[type]) -> bool:
    """Return whether all that the code of a function names is known."""
    for name in _global_names(function.__code__):
        if name in _ANYWHERE:
            return False
        if name in function.__globals__ and not _is_known(function.__globals__[name], functions, kinds):
            return False
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    closed = (cell.get(name) for cell, name in variables(function))
    return all(map(_is_constant, given)) and all(_is_known(value, functions, kinds) for value in closed)


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Yield what code looks up outside of itself, `__dict__` for whatever it may reach besides."""
    for each in dis.get_instructions(code):
        name = str(each.argval)
        if each.opname == "IMPORT_NAME":
            yield "__import__" if not _is_library(name) or name.partition(".")[0] in _ANYWHERE else "torch"
        elif each.opname in _WRITES or (each.opname == "STORE_DEREF" and name in code.co_freevars):
            yield "__dict__"
        elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME") or (name[:2] == "__" and name in code.co_names):
            yield name
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _global_names(one)


def _is_library(name: Any) -> bool:
    """Return whether a Python module of that name belongs to a library that trials know, or to Python."""
    return is_foreign(name) or str(name).partition(".")[0] in sys.stdlib_module_names


# -- values ---------------------------------------------------------------------------------------------------------


def _is_known(value: Any, functions: set[Any], kinds: set[type]) -> bool:
    """Return whether a value outside of modules cannot change, or is put back if it does."""
    if type(value) in (list, set, dict):
        items = [*value, *(value.values() if isinstance(value, dict) else ())]
        return len(items) <= _MOST_ITEMS and all(_is_fixed(one, functions, kinds) for one in items)
    if _is_fixed(value, functions, kinds):
        return True
    return _is_record(type(value)) and all(_is_constant(one) or _is_flat(one) for one in vars(value).values())


def _is_fixed(value: Any, functions: set[Any], kinds: set[type]) -> bool:
    """Return whether a value has no state of its own."""
    if _is_constant(value) or isinstance(value, logging.Logger):
        return True
    if isinstance(value, types.ModuleType):
        return _is_library(value.__name__) and value.__name__.partition(".")[0] not in _ANYWHERE
    if isinstance(value, types.FunctionType):
        return value in functions or _is_library(value.__module__)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodType)):
        owner = value.__self__
        if isinstance(owner, (types.ModuleType, type)):
            return _is_library(owner.__name__ if isinstance(owner, types.ModuleType) else owner.__module__)
        return owner is None or owner is random._inst
    if isinstance(value, type):
        return value in kinds or _is_library(value.__module__) or _is_record(value)
    return str(type(value).__module__) == "typing"


def _is_constant(value: Any) -> bool:
    if isinstance(value, _CONSTANT):
        return True
    return type(value) in (tuple, frozenset) and len(value) <= _MOST_ITEMS and all(map(_is_constant, value))


def _is_flat(value: Any) -> bool:
    """Return whether a value is a list, a set or a table of constants."""
    if type(value) not in (list, set, dict) or len(value) > _MOST_ITEMS:
        return False
    return all(map(_is_constant, value.values() if isinstance(value, dict) else value))


def _is_record(kind: type) -> bool:
    """Return whether instances of a class have fields, and no methods that the script has written."""
    if kind is types.SimpleNamespace or (kind.__module__, kind.__name__) == ("argparse", "Namespace"):
        return True
    for one in kind.__mro__:
        if one in (object, tuple):
            continue
        methods = {name for name, each in vars(one).items() if isinstance(each, _CODE)} - _GENERATED
        written = "__init__" in vars(one) and not hasattr(one, "__dataclass_fields__")
        if methods or written or _is_library(one.__module__) or not _COPIES.isdisjoint(vars(one)):
            return False
    return True


def _is_copied(value: Any, functions: set[Any], kinds: set[type], depth: int = _DEEPEST) -> bool:
    """Return whether a copy of a module has a value for itself, without code that nobody has looked at."""
    if isinstance(value, torch.Tensor) or _is_fixed(value, functions, kinds):
        return True
    if isinstance(value, dict) and not value:  # of hooks
        return True
    if not depth or isinstance(value, torch.nn.Module):
        return False
    if type(value) in _CONTAINERS and len(value) <= _MOST_ITEMS:
        items = list(value.values()) if isinstance(value, dict) else list(value)
    elif _is_record(type(value)) and hasattr(value, "__dict__"):
        items = list(vars(value).values())
    else:
        return False
    return all(_is_copied(one, functions, kinds, depth - 1) for one in items)
