"""Everything that a function read, as it was: names in modules, attributes, containers, numbers in memory.

It begins at the function, at what it was given, and at the globals that its code names. From there it follows names: of
an object count the attributes that some of the code reads, whatever else it holds. Nothing of the script's is called.
What cannot be followed to its end is a reason to keep nothing.
"""

import abc
import argparse
import collections
import enum
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from flatout.kept.held_values import ABSENT, LEAVES, alike, dict_of, form_of, hold, is_whole, ndarray
from flatout.kept.lying_places import Places
from flatout.kept.observed_call import COMPUTES, ObservedCall, is_let_through
from flatout.kept.tensor_methods import tensor_methods
from flatout.watch.components import attributes_of, handle_of, is_filled, is_own, module_of, names_in
from flatout.watch.memory.buffers import gradient_of
from flatout.watch.memory.object_graph import available
from flatout.watch.memory.object_kinds import POINTERS, is_immutable
from flatout.watch.state_watch import StateWatch

__all__ = ["ReadState"]

_PLACES = ("_parameters", "_buffers", "_modules")
_BEYOND = frozenset({"_base", "base", "as_strided", "storage", "untyped_storage", "set_", "ctypes"})
"""Names by which code reads memory beyond what a tensor or an array sees of it."""
_MOST = 4096  # items of all containers

_FIELD = type(collections.namedtuple("Fields", "field").field)  # type: ignore[attr-defined]

Check = Callable[[], str]


class ReadState:
    """What calls that ran the same code read.

    Attributes:
        refused: why it cannot be told whether it is as it was; an empty string where it can.
        places: where lies what was read.
    """

    def __init__(self, seen: ObservedCall, roots: Mapping[str, Any]) -> None:
        """Take everything as it is now; `roots`: the function and the objects that it was given."""
        self.refused, self.places = "", Places()
        self._names = frozenset(seen.attributes)
        self._read = frozenset().union(*(names_in(code).read for code in seen.scopes))
        self._codes: set[types.CodeType] = set()
        self._run = seen.codes
        self._checks: list[Check] = []
        self._arrays: list[tuple[str, Any]] = []
        self._memory: StateWatch | None = None
        self._walk(seen, roots)

    def changed(self) -> str:
        """Return what is not as it was, in words; an empty string for nothing."""
        for check in self._checks:
            if what := check():
                return what
        if self._memory is None:
            return ""
        return self._memory.look_deep() if self._memory.unseen else self._memory.look()

    # -- what is looked at --------------------------------------------------------------------------------------

    def _walk(self, seen: ObservedCall, roots: Mapping[str, Any]) -> None:
        self._waiting = collections.deque(roots.items())
        self._seen: dict[int, Any] = {}
        self._items = 0
        self._checks.append(tensor_methods(seen.codes))
        if self._read & {"isinstance", "issubclass"}:
            token = abc.get_cache_token()
            self._checks.append(lambda: "" if abc.get_cache_token() == token else "what classes are registered as")
        for code, scope in seen.scopes.items():
            self._globals(code, scope)
        while self._waiting and not self.refused:
            self._visit(*self._waiting.popleft())
        for code in seen.scopes:
            if code not in self._codes:
                self._refuse(f"{code.co_qualname} is reached in a way that cannot be followed")
        if self._arrays and not self.refused:
            self._watch_memory()
        self.places.objects |= set(self._seen)
        for _, value in self._arrays:
            self.places.add(value)
        del self._waiting, self._seen, self._arrays

    def _refuse(self, reason: str) -> None:
        self.refused = self.refused or reason

    def _watch_memory(self) -> None:
        if not available():
            self._refuse("flatout's compiled code is missing here")
            return
        self._memory = StateWatch(self._arrays, files="passed")
        graph = self._memory.graph
        if graph.unwatched or graph.opaque - POINTERS:
            self._refuse(f"it reads {[*graph.unwatched, *graph.opaque][0]}, which may change unseen")

    def _globals(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        read = names_in(code).read
        within = scope.get("__builtins__")
        builtin = vars(within) if isinstance(within, types.ModuleType) else within or {}
        self._named(lambda: scope, read, f"the global {{}} of {scope.get('__name__')}")
        self._named(lambda: builtin, (name for name in read if name not in scope), "the builtin {}", follow=False)

    def _named(
        self, where: Callable[[], Mapping[str, Any]], names: Iterable[str], what: str, *, follow: bool = True
    ) -> None:
        """Hold on to what a dictionary has under names, and follow it: all of it, or what is data of the script's."""
        before = where()
        taken = [(name, hold(before.get(name, ABSENT))) for name in sorted(names)]

        def check() -> str:
            now = where()
            for name, held in taken:
                if not alike(now.get(name, ABSENT), held()):
                    return what.format(name)
            return ""

        self._checks.append(check)
        there = [(what.format(name), before[name]) for name, _ in taken if name in before]
        self._waiting.extend(each for each in there if follow or _is_data(each[1]))

    # -- by kind ------------------------------------------------------------------------------------------------

    def _visit(self, what: str, value: Any) -> None:
        kind = type(value)
        if kind in LEAVES or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if kind in _BY_KIND:
            _BY_KIND[kind](self, what, value)
        elif isinstance(value, type):
            self._class(what, value)
        elif isinstance(value, torch.Tensor) or kind is ndarray():
            self._array(what, value)
        elif _is_constant(value):
            return
        elif isinstance(value, tuple) and hasattr(kind, "_fields"):
            self._fields(what, value)
        elif handle_of(value):
            self._refuse(f"it reads {handle_of(value)} ({what})")
        elif is_own(module_of(kind)) or isinstance(value, torch.nn.Module) or kind in _NAMESPACES:
            self._instance(what, value)
        else:
            self._refuse(f"{what} is an object of {module_of(kind)}.{kind.__name__}, which cannot be followed")

    def _array(self, what: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
            if not plain or value.device.type != "cpu" or value.is_inference():
                self._refuse(f"{what} is a tensor of a kind that is not watched")
                return
            self._beside_numbers(what, weakref.ref(value))
        if _BEYOND & (self._names | self._read) and not is_whole(value):
            self._refuse(f"{what} is a part of memory of which more may be read")
            return
        ref, before = weakref.ref(value), form_of(value)
        self._checks.append(lambda: "" if form_of(ref()) == before else what)  # before its memory is looked at
        self._arrays.append((what, value))

    def _beside_numbers(self, what: str, ref: "weakref.ref[torch.Tensor]") -> None:
        """Follow what a tensor has besides its numbers: attributes that somebody has set on it, and its gradient."""
        self._named(lambda: dict_of(ref()), self._names, f"{what}.{{}}")
        if "grad" not in self._names:
            return
        held = hold(gradient_of(ref()))
        self._checks.append(lambda: "" if gradient_of(ref()) is held() else f"{what}.grad")
        self._waiting.append((f"{what}.grad", held()))

    def _list(self, what: str, value: Any) -> None:
        self._items += len(value)
        if self._items > _MOST:
            self._refuse(f"{what} holds too many items to be compared at each call")
            return
        self._waiting.extend((what, each) for each in value)
        if type(value) is list:
            held = [hold(each) for each in value]

            def check() -> str:
                same = len(value) == len(held) and all(map(alike, value, (one() for one in held)))
                return "" if same else what

            self._checks.append(check)

    def _dict(self, what: str, value: dict[Any, Any]) -> None:
        self._items += len(value)
        if self._items > _MOST or not all(type(key) in LEAVES for key in value):
            self._refuse(f"{what} is a dictionary that cannot be compared at each call")
            return
        held = [(key, hold(each)) for key, each in value.items()]

        def check() -> str:
            same = len(value) == len(held) and all(
                alike(key, known) and alike(now, one())
                for (key, now), (known, one) in zip(value.items(), held, strict=True)
            )
            return "" if same else what

        self._checks.append(check)
        self._waiting.extend((what, each) for each in value.values())

    def _set(self, what: str, value: Any) -> None:
        self._items += len(value)
        if self._items > _MOST or not all(type(each) in LEAVES for each in value):
            self._refuse(f"{what} is a set that cannot be compared at each call")
            return
        before = list(value)
        self._checks.append(lambda: "" if len(value) == len(before) and all(map(alike, value, before)) else what)

    def _fields(self, what: str, value: Any) -> None:
        """Follow a named tuple."""
        if attributes_of(value) is not None:
            self._refuse(f"{what} is a tuple with attributes, which cannot be followed")
        self._waiting.append((what, tuple(tuple.__iter__(value))))
        self._class(what, type(value))

    def _function(self, what: str, value: types.FunctionType) -> None:
        ref = weakref.ref(value)
        self._named(lambda: dict_of(ref()), self._names - {"__wrapped__"}, f"{value.__qualname__}.{{}}")
        if _is_ours(value):
            self._waiting.append((what, vars(value).get("__wrapped__")))
            return
        code, defaults, named = value.__code__, value.__defaults__, value.__kwdefaults__

        def check() -> str:
            now = ref()
            if now is None or now.__code__ is not code:
                return what
            return "" if now.__defaults__ is defaults and now.__kwdefaults__ is named else what

        self._checks.append(check)
        if code not in self._run:
            return
        self._waiting.extend([(what, defaults), (what, named)])
        self._take(code)
        for cell in value.__closure__ or ():
            self._cell(what, cell)

    def _take(self, code: types.CodeType) -> None:
        self._codes.add(code)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self._take(const)

    def _cell(self, what: str, cell: types.CellType) -> None:
        if not is_filled(cell):
            self._refuse(f"{what} has a variable without a value")
            return
        held = hold(cell.cell_contents)
        self._checks.append(lambda: "" if is_filled(cell) and alike(cell.cell_contents, held()) else what)
        self._waiting.append((what, cell.cell_contents))

    def _method(self, what: str, value: types.MethodType) -> None:
        self._waiting.extend([(what, value.__self__), (what, value.__func__)])

    def _partial(self, what: str, value: Any) -> None:
        self._waiting.extend([(what, value.func), (what, value.args), (what, value.keywords)])

    def _module(self, what: str, value: types.ModuleType) -> None:
        own = is_own(value.__name__)
        if not own and value.__name__.partition(".")[0] not in COMPUTES:
            self._refuse(f"it names {value.__name__}")
            return
        within = vars(value)
        self._named(lambda: within, self._names, f"{value.__name__}.{{}}", follow=own)
        if not own:
            inner = [within[name] for name in self._names if isinstance(within.get(name), types.ModuleType)]
            self._waiting.extend((one.__name__, one) for one in inner if one.__name__.startswith(value.__name__))

    def _class(self, what: str, kind: type) -> None:
        order, named = kind.__mro__, (kind.__name__, kind.__qualname__)
        self._checks.append(
            lambda: "" if kind.__mro__ is order and (kind.__name__, kind.__qualname__) == named else what
        )
        if isinstance(kind, abc.ABCMeta):  # classes may be registered with it, which is seen nowhere else
            token = abc.get_cache_token()
            self._checks.append(lambda: "" if abc.get_cache_token() == token else what)
        for base in order:
            if not is_own(module_of(base)):
                continue
            if is_own(module_of(type(base))) or vars(base).get("__slots__"):
                self._refuse(f"{base.__name__} is a class of a kind that cannot be followed")
                return
            within, number = vars(base), len(vars(base))
            special = {name for name, value in within.items() if name.startswith("__") and callable(value)}
            self._named(lambda within=within: within, self._names | special, f"{base.__name__}.{{}}")  # type: ignore[misc]
            self._checks.append(
                lambda within=within, number=number: "" if len(within) == number else f"class {kind.__name__}"  # type: ignore[misc]
            )

    def _static(self, what: str, value: Any) -> None:
        self._waiting.append((what, value.__func__))

    def _property(self, what: str, value: Any) -> None:
        self._waiting.append((what, getattr(value, "fget", None) or getattr(value, "func", None)))

    def _instance(self, what: str, value: Any) -> None:
        kind = type(value)
        if attributes_of(value) is None or not all(map(_holds_attributes_alone, kind.__mro__)):
            self._refuse(f"{what} is an object of {kind.__name__}, which cannot be followed")
            return
        ref = hold(value)
        self._checks.append(lambda: "" if type(ref()) is kind else what)
        self._waiting.append((what, kind))
        names = self._names | {*dict_of(value)} if isinstance(value, enum.Enum) else self._names  # `enum` reads them
        self._named(lambda: dict_of(ref()), names, f"{kind.__name__}.{{}}")
        if isinstance(value, torch.nn.Module):
            for place in _PLACES:
                self._named(
                    lambda place=place: dict_of(ref()).get(place, {}),  # type: ignore[misc]
                    self._names,
                    f"{kind.__name__}.{{}}",
                )


def _is_data(value: Any) -> bool:
    """Return whether something in a library's module, or among what Python has, is data that a script keeps there."""
    kind = type(value)
    is_array = isinstance(value, torch.Tensor) or kind is ndarray()
    return is_array or kind in (list, dict, set) or (is_own(module_of(kind)) and not isinstance(value, type))


def _is_constant(value: Any) -> bool:
    kind = type(value)
    if kind is _FIELD or module_of(kind) == "torch.autograd.grad_mode":
        return True
    return is_immutable(value) and not is_own(module_of(kind))  # a class of the user's may add attributes


def _holds_attributes_alone(kind: type) -> bool:
    """Return whether a class gives its objects nothing but attributes that are read by name where that is seen.

    Neither fields of compiled code, as a list or a `bytearray` has, nor attributes that code which may run in a call
    reads for it, as `collections.UserDict` does.
    """
    if kind in _PLAIN:
        return True
    places = sum(name in vars(kind) for name in ("__dict__", "__weakref__"))
    if kind.__itemsize__ or kind.__basicsize__ - kind.__base__.__basicsize__ > places * tuple.__itemsize__:  # type: ignore[union-attr]
        return False
    module = module_of(kind)
    return is_own(module) or not is_let_through(module) or vars(kind).get("__slots__") == ()


def _is_ours(function: types.FunctionType) -> bool:
    """Return whether a function stands in the place of another one, for a probe or a fix."""
    return str(function.__globals__.get("__name__", "")).partition(".")[0] == "flatout"


_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_PLAIN = {object, enum.Enum, types.SimpleNamespace}
_BY_KIND: dict[type, Callable[[ReadState, str, Any], None]] = {
    list: ReadState._list,
    tuple: ReadState._list,
    dict: ReadState._dict,
    set: ReadState._set,
    frozenset: ReadState._set,
    types.FunctionType: ReadState._function,
    types.MethodType: ReadState._method,
    types.ModuleType: ReadState._module,
    functools.partial: ReadState._partial,
    staticmethod: ReadState._static,
    classmethod: ReadState._static,
    property: ReadState._property,
    functools.cached_property: ReadState._property,
}
