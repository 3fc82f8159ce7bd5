"""What the code of a module names besides its tensors: settings and counters, in attributes, globals and closures.

A setting of the program may decide what a module does with its batch, and a list outside of it may take down what it
was given. Both are found by the names in the code of the module's class and of the functions that it calls by name.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from flatout.ranks.held_state import HeldState

__all__ = ["NamedValues", "called_functions", "is_foreign", "is_own", "variables"]

_PLAIN = (bool, int, float, str, type(None))
_FOREIGN = ("torch", "torchvision", "torchaudio", "numpy", "scipy", "flatout", "builtins", "typing")
_CODE = (FunctionType, BuiltinFunctionType, type, ModuleType)
_DEEPEST = 2  # functions that are called by name, from one to the next
_MOST = 300  # values
_WRAPPED = 4  # decorators, one around the other


class _Cell:
    """A variable of a closure, as a mapping of one name."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def get(self, name: str) -> Any:
        try:
            return self._cell.cell_contents
        except ValueError:  # not bound yet
            return None

    def __setitem__(self, name: str, value: Any) -> None:
        self._cell.cell_contents = value


class _Fields:
    """The attributes of a class, which are set by their names."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def get(self, name: str) -> Any:
        return vars(self._kind).get(name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._kind, name, value)


class NamedValues:
    """Where the values are that the code of some modules names."""

    def __init__(self, modules: Sequence[Any]) -> None:
        """Look at the code of `modules`, a module and its parts."""
        functions = dict.fromkeys(called_functions(modules))
        names = {name for function in functions for name in _names(function.__code__)}
        self._places: list[tuple[Any, str]] = []
        self._holders: list[tuple[Any, str]] = []  # of what is no plain value
        self.iterator = ""  # that the code names: what it gives out cannot be put back
        self._fields: list[Any] = [vars(function) for function in functions]
        kinds = {kind for module in modules for kind in type(module).__mro__}
        self._kinds = [kind for kind in kinds if not is_foreign(kind.__module__)]
        known: set[tuple[int, str]] = set()
        for holder, name in [*_outside(functions, names), *_attributes(modules, names)]:
            if (id(holder), name) not in known and len(self._places) < _MOST:
                known.add((id(holder), name))
                self._take(holder, name, names)

    def _take(self, holder: Any, name: str, names: set[str]) -> None:
        value = holder.get(name)
        if isinstance(value, _PLAIN):
            self._places.append((holder, name))
            return
        if not isinstance(value, (type, ModuleType)):
            self._holders.append((holder, name))
        if isinstance(value, Iterator):
            self.iterator = name
        if isinstance(value, dict):
            self._places += [(value, key) for key in names & set(value)]
        elif is_own(value):
            fields = vars(value)
            place = _Fields(value) if isinstance(value, type) else fields
            named = [key for key in fields if key in names]
            if not isinstance(value, ModuleType):
                self.iterator = next((key for key in fields if isinstance(fields[key], Iterator)), self.iterator)
            self._places += [(place, key) for key in named if isinstance(fields[key], _PLAIN)]
            if isinstance(value, (type, ModuleType)):
                self._holders += [(place, key) for key in named if not isinstance(fields[key], (*_PLAIN, ModuleType))]

    @property
    def are_all(self) -> bool:
        """Whether there are no more than are looked at."""
        return len(self._places) < _MOST

    def now(self) -> tuple[Any, ...]:
        """Return the plain values as they are; what is none any more counts as None."""
        found = (holder.get(name) for holder, name in self._places)
        return tuple(value if isinstance(value, _PLAIN) and value == value else None for value in found)

    def kept(self) -> Callable[[], str]:
        """Take down what there is; return what puts it back, and says which of it had changed, "" where none had."""
        plain, held = _kept_places([*self._places, *self._holders]), self._held()
        kinds = [(kind, dict(vars(kind))) for kind in self._kinds]

        def put_back() -> str:
            changed = held.put_back()
            for kind, copied in kinds:
                changed = _put_back_fields(kind, copied) or changed
            return plain() or changed

        return put_back

    def plain_kept(self) -> Callable[[], str]:
        """Take down plain values alone, as `kept` does."""
        return _kept_places(self._places)

    def mutable(self) -> list[Any]:
        """Return what code names that it may write to: containers, arrays, tensors, objects, generators."""
        found = (holder.get(name) for holder, name in self._holders)
        return [value for value in found if not isinstance(value, _CODE)]

    def generators(self) -> list[Any]:
        """Return the generators of random numbers that code names, and those that objects hold that it names."""
        return self._held().generators

    def _held(self) -> HeldState:
        found = [holder.get(name) for holder, name in self._holders]
        buffers = [each for one in found if isinstance(one, torch.nn.Module) for each in one.buffers()]
        return HeldState([*self._fields, *found, *buffers], is_own)


def _kept_places(places: Sequence[tuple[Any, str]]) -> Callable[[], str]:
    """Return what puts back the values that are in these places, and says the name of one that was another."""
    before = [(holder, name, holder.get(name)) for holder, name in places]

    def put_back() -> str:
        changed = ""
        for holder, name, value in before:
            now = holder.get(name)
            if now is not value and not (isinstance(now, _PLAIN) and now == value):
                changed = name
                holder[name] = value
        return changed

    return put_back


def _put_back_fields(kind: type, before: dict[str, Any]) -> str:
    """Give a class the attributes that it had; return the name of one that was another."""
    now, changed = dict(vars(kind)), ""
    for name in now.keys() | before.keys():
        if name in before and now.get(name) is not before[name]:
            changed = name
            setattr(kind, name, before[name])
        elif name not in before and not name.startswith("__"):
            changed = name
            delattr(kind, name)
    return changed


def is_own(value: Any) -> bool:
    """Return whether a value has fields that the script may have given it."""
    if isinstance(value, (torch.nn.Module, torch.Tensor, FunctionType)) or not hasattr(value, "__dict__"):
        return False
    named = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    named = named if isinstance(named, str) else type(value).__module__
    return named.partition(".")[0] not in (*_FOREIGN, "logging")


def called_functions(modules: Sequence[Any]) -> Iterator[FunctionType]:
    """Yield the methods of modules that are none of torch's, and what the script has written that they call by name."""
    kinds = {kind for module in modules for kind in type(module).__mro__ if not is_foreign(kind.__module__)}
    methods = [each for kind in kinds for name, each in vars(kind).items() if name != "__init__"]
    held = [each for module in modules for each in vars(module).values() if callable(each)]
    given = [one for each in held for one in (each, *_methods(each, {"__call__"}))]
    waiting = [(each, 0) for value in (*methods, *given) for each in _code_of(value)]
    seen: set[Any] = set()
    while waiting:
        function, depth = waiting.pop()
        if function in seen or is_foreign(function.__module__):
            continue
        seen.add(function)
        yield function
        if depth < _DEEPEST:
            waiting += [(each, depth + 1) for value in _named(function) for each in _code_of(value)]


def _named(function: FunctionType) -> Iterator[Any]:
    """Yield what the code of a function may call: by a name, or by one in a module, a class or an object."""
    names = set(_names(function.__code__))
    closed = (cell.get(name) for cell, name in variables(function))
    for value in (*(function.__globals__.get(name) for name in names), *closed):
        yield value
        if isinstance(value, ModuleType):
            if is_own(value):
                yield from (vars(value)[name] for name in names & set(vars(value)))
        elif value is not None:
            yield from _methods(value, {*names, "__call__"})


def _methods(value: Any, names: set[str]) -> Iterator[Any]:
    """Yield methods of those names of a class of the script, or of an object of one."""
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, FunctionType) or is_foreign(kind.__module__):
        return
    for one in kind.__mro__:
        if not is_foreign(one.__module__):
            yield from (vars(one)[name] for name in names & set(vars(one)))


def _code_of(value: Any, depth: int = _WRAPPED) -> Iterator[FunctionType]:
    """Yield the function that a value is, or is made of, with those that a decorator has put it into."""
    if not depth:
        return
    if isinstance(value, FunctionType):
        yield value
        inner = [cell.get(name) for cell, name in variables(value)]
        around = [value.__dict__["__wrapped__"]] if "__wrapped__" in value.__dict__ else []
        inner = [*around, *(one for one in inner if isinstance(one, (FunctionType, MethodType, partial)))]
    elif isinstance(value, (staticmethod, classmethod, MethodType)):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget, value.fset]
    elif isinstance(value, (partial, cached_property)):
        inner = [value.func]
    else:
        return
    for one in inner:
        yield from _code_of(one, depth - 1)


def is_foreign(name: Any) -> bool:
    """Return whether a Python module of that name is part of a library that trials know."""
    return str(name).partition(".")[0] in _FOREIGN


def variables(function: FunctionType) -> Iterator[tuple[Any, str]]:
    """Yield the variables of a function's closure, each with its name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    yield from ((_Cell(cell), name) for name, cell in cells)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, str) and each.isidentifier():
            yield each
        elif isinstance(each, CodeType):
            yield from _names(each)


def _outside(functions: Any, names: set[str]) -> Iterator[tuple[Any, str]]:
    for function in functions:
        yield from ((function.__globals__, name) for name in _names(function.__code__) if name in function.__globals__)
        yield from variables(function)


def _attributes(modules: Sequence[Any], names: set[str]) -> Iterator[tuple[Any, str]]:
    for module in modules:
        if not is_foreign(type(module).__module__):
            yield from ((vars(module), name) for name in vars(module) if name in names and name[0] != "_")
