"""Everything that the samples of a data set are made from, and where it stands in memory.

From the data set and what else is named, attributes, containers, closures, classes, weak references, arrays and tensors
are followed, and what the user's own code reads in its modules. Nothing of a stranger's is called: attributes are read
where they stand, so a `__getattr__`, a property or a `__len__` of the script's does not run. Code of installed packages
is not followed, objects made of its classes are.
"""

import argparse
import builtins
import enum
import functools
import operator
import os
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from flatout.watch import code_names
from flatout.watch.components import handle_of, is_filled, is_generator, is_own, module_of, shared_streams
from flatout.watch.memory import buffers
from flatout.watch.memory.layouts import (
    DICT,
    HEAD,
    IGNORED,
    INSTANCE,
    LEAF,
    LIST,
    SET,
    TUPLE,
    WORD,
    body_ranges,
    class_ranges,
    compiled,
    deque_ranges,
    function_ranges,
    holds,
    is_plain_instance,
)
from flatout.watch.memory.object_kinds import (
    base_container,
    behind,
    is_immutable,
    is_mutable_iterator,
    referents,
    unfollowed,
)

__all__ = ["ObjectGraph", "available"]

_BUILTIN = {"list": LIST, "tuple": TUPLE, "dict": DICT, "set": SET, "frozenset": SET}
_LEAVES = (str, bytes, int, float, complex, bool, type(None))
_NEEDED = ("list", "dict", "some", "set", "instance", "function", "cell")
_FEW = 32  # objects of a class of the script's of which only the attributes that code names are watched
_MOST = 2_000_000  # ranges: to follow and sort 400,000 takes about half a second
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the class was made by a class statement
_READ_VARIABLES = {"environ", "environb", "getenv", "getenvb", "expandvars", "expanduser", "home"}


def available() -> bool:
    """Tell whether this process can tell what its objects consist of."""
    return all(map(holds, _NEEDED))


class TracedRanges(NamedTuple):
    """Ranges of memory, each with the address of the object that it belongs to, and what has to live for them."""

    pairs: bytes
    owners: bytes
    held: list[object]


class _Met(NamedTuple):
    num_of: dict[type, int]
    generators: list[Any]


class ObjectGraph:
    """What some things are made from, by ranges of memory, parents first.

    Attributes:
        unwatched: what cannot be watched, each with the reason; such things may change unseen.
        opaque: names of compiled classes of packages, of whose objects only the outer part is seen.
        files: names of files that are mapped.
        names: those that code reads.
        met: random generators, of which nothing is watched, and how many objects of each class.
    """

    def __init__(self, *roots: Any, left_out: Iterable[Any] = (), live: frozenset[int] = frozenset()) -> None:
        """Follow `roots`.

        `left_out`: what is passed over where it is met. `live`: addresses of numbers that may change.
        """
        self._live = live
        self.unwatched: list[str] = []
        self.opaque: set[str] = set()
        self.files: set[str] = set()
        self.filtered: dict[int, FilteredDict] = {}
        self.names = code_names.Names()
        self._kinds: dict[type, int] = dict.fromkeys(_LEAVES, LEAF)
        self._kinds.update((kind, IGNORED) for kind in unfollowed())
        self._kinds |= {list: LIST, tuple: TUPLE, dict: DICT, set: SET, frozenset: SET}
        self._tracer = compiled.Tracer(self._kinds)
        self._alive: list[Any] = []  # what only this graph refers to, while it is followed
        self.met = _Met({}, [])
        self._tracer.pass_over([*left_out, *shared_streams()])
        self._follow([*roots])
        self._environment(roots)
        self._methods_of(sys.modules["torch"].Tensor, self.names.of_classes)
        self._follow([])
        if self.names.unwritten:
            self.unwatched.append(f"code that reads what changes out of sight ({self.names.unwritten})")
        self.ranges = TracedRanges(*self._tracer.ranges())
        self.named = self._tracer.named()  # what may be names of files
        if len(self.ranges.owners) > _MOST * WORD:
            self.unwatched.append(f"{len(self.ranges.owners) // WORD} pieces of memory, of which more than {_MOST}")
        self._alive.clear()  # what is referred to weakly goes when the script lets it go

    def _environment(self, roots: Iterable[Any]) -> None:
        """Follow the variables of the environment where code names them."""
        if _READ_VARIABLES & (self.names.attributes | self.names.globals):
            self._follow([os.environ._data])  # type: ignore[attr-defined]
        if "argv" in self.names.attributes | self.names.globals:
            self._follow([sys.argv])

    def _follow(self, things: list[Any]) -> None:
        found = deque(self._tracer.follow(things))
        while True:
            while found:
                inner = self._inside(found.popleft())
                self._alive.append(inner)
                found.extend(self._tracer.follow(inner))
            found.extend(self._more_names())
            if not found:
                return

    def _more_names(self) -> list[Any]:
        """Return what is met where dictionaries are looked into again, for names that were met since."""
        for each in self.filtered.values():
            wanted = each.wanted()
            if wanted:
                lost = self._tracer.some(id(each.within), each.within, wanted)
                if lost:
                    self.unwatched.append(f"{each.what}: {lost} values stand nowhere that is known")
        return self._tracer.follow([])

    def _stand_in(self, module: types.ModuleType, names: set[str], depth: int = 3) -> None:
        """Watch under which names an installed module has what code asks it for; none of that is followed."""
        within = vars(module)
        wanted = [name for name in names if name in within]
        followed = (types.ModuleType, list)  # of lists there is `sys.argv`
        self._tracer.pass_over([within[name] for name in wanted if not isinstance(within[name], followed)])
        self._filter(within, set(wanted), f"module {module.__name__}")
        inner = [within[name] for name in wanted if isinstance(within[name], types.ModuleType)]
        for one in inner if depth else ():
            if not is_own(one.__name__):
                self._stand_in(one, names, depth - 1)

    def _filter(
        self, within: dict[str, Any], names: set[str], what: str, owner: Callable[[], Any] | None = None
    ) -> None:
        known = self.filtered.get(id(within))
        if known is None:
            self._tracer.note(id(within), id(within) + HEAD, WORD)  # how many there are
            self.filtered[id(within)] = FilteredDict(owner or (lambda: within), [names], what)
        elif not any(names is each for each in known.names):
            known.names.append(names)

    def names_again(self) -> tuple[bytes, bytes] | None:
        """Return where the names stand by now that code reads, and their owners; None where one cannot be told."""
        tracer = compiled.Tracer({})
        for at, each in self.filtered.items():
            tracer.note(at, at + HEAD, WORD)
            if tracer.some(at, each.within, each.taken):
                return None
        pairs, owners, _ = tracer.ranges()
        return pairs, owners

    # -- what things are made of --------------------------------------------------------------------------------

    def _inside(self, thing: Any) -> list[Any]:
        kind = type(thing)
        if is_immutable(thing):
            self._kinds[kind] = LEAF
            return [thing]
        if is_generator(thing):
            self.met.generators.append(thing)
            return []
        if handle_of(thing):  # a way to data, and not what it leads to
            return []
        if isinstance(thing, type):
            return self._of_class(thing)
        if kind in (operator.attrgetter, operator.methodcaller):
            self.names.add({part for name in thing.__reduce__()[1] for part in str(name).split(".")})
        special = _SPECIAL.get(kind)
        if special is not None:
            found: list[Any] = special(self, thing)
            return found
        if buffers.holds_memory(thing):
            return self._of_buffer(thing)
        if is_mutable_iterator(thing):
            self.unwatched.append(f"an iterator of type {kind.__name__}")
        return self._of_instance(thing)

    def _of_buffer(self, thing: Any) -> list[Any]:
        found = buffers.memory_of(thing)
        for start, length in found.ranges:
            if start not in self._live:
                self._tracer.note(id(thing), start, length)
        if found.unwatched:
            self.unwatched.append(found.unwatched)
        self.files |= {found.file} if found.file else set()
        if found.opaque:
            self.opaque.add(type(thing).__name__)
        self._alive.append(found.inner)
        held = is_own(module_of(type(thing))) or any(one is not type(thing) for one in referents(thing))
        own = getattr(thing, "__dict__", None) if held else None  # those of a tensor among them
        return [*found.inner, *([own] if type(own) is dict else [])]

    def _of_class(self, kind: type) -> list[Any]:
        meta = type(kind)
        found: list[Any] = [meta] if is_own(module_of(meta)) else []
        for base in kind.__mro__:
            if is_own(module_of(base)):
                for start, length in class_ranges(base) if holds("class") else ():
                    self._tracer.note(id(base), start, length)
                (within,) = [one for one in referents(vars(base)) if type(one) is dict] or [{}]
                self._filter(within, self.names.of_classes, f"class {base.__name__}")
            else:
                self.names.read_class(base)
                if base is kind and kind.__flags__ & _HEAP_TYPE:
                    self._methods_of(base)
        return found

    def _methods_of(self, kind: type, names: set[str] | None = None) -> None:
        """Watch which functions an installed class has under `names`, or its own; none of them is followed."""
        for within in (one for one in referents(vars(kind)) if type(one) is dict):
            methods = [name for name, value in within.items() if isinstance(value, types.FunctionType)]
            self._tracer.pass_over([within[name] for name in methods])
            self._filter(within, set(methods) if names is None else names, f"class {kind.__name__}")

    def _of_function(self, function: types.FunctionType) -> list[Any]:
        for start, length in function_ranges(function):
            self._tracer.note(id(function), start, length)
        own = is_own(str(function.__globals__.get("__name__", "")))
        found = [function.__closure__, function.__defaults__, function.__kwdefaults__]
        if function.__dict__:
            found.append(function.__dict__)
        if own:
            read = self.names.read(function.__code__)
            self._filter(function.__globals__, read.names, f"module {function.__globals__.get('__name__')}")
            for module in read.modules(function.__globals__):
                if is_own(module.__name__):
                    attributes = self.names.of_modules if self.names.dynamic else {*read.attributes, "__getattr__"}
                    self._filter(vars(module), attributes, f"module {module.__name__}")
                else:
                    self._stand_in(module, read.attributes)
            if to_come := read.to_come(function.__globals__):
                self._filter(sys.modules, to_come, "module")
            self._stand_in(builtins, read.names - function.__globals__.keys())
        return found

    def _of_module(self, module: types.ModuleType) -> list[Any]:
        if is_own(module.__name__):
            self._filter(vars(module), self.names.of_modules, f"module {module.__name__}")
        return []

    def _of_cell(self, cell: types.CellType) -> list[Any]:
        self._tracer.note(id(cell), id(cell) + HEAD, WORD)
        return [cell.cell_contents] if is_filled(cell) else []

    def _of_deque(self, items: Any) -> list[Any]:
        if not holds("deque"):
            self.unwatched.append("a deque")
            return []
        for start, length in deque_ranges(items):
            self._tracer.note(id(items), start, length)
        return list(items)

    def _of_instance(self, thing: Any) -> list[Any]:
        kind = type(thing)
        few = self.met.num_of.get(kind, 0) < _FEW
        self.met.num_of[kind] = self.met.num_of.get(kind, 0) + 1
        own = is_own(module_of(kind)) or kind in (argparse.Namespace, types.SimpleNamespace)
        filtered = few and own and not self.names.dynamic and not isinstance(thing, enum.Enum)
        if is_plain_instance(kind) and not filtered:
            self._kinds[kind] = INSTANCE
            self._tracer.inside(thing, INSTANCE)
            return [kind, *self._hooks(kind)]
        found: list[Any] = [kind, *self._hooks(kind)]
        container = base_container(kind)
        if container is not None:
            self._tracer.inside(thing, _BUILTIN[container])
        self._tracer.note(id(thing), id(thing) + WORD, WORD)  # its class
        for start, length in body_ranges(thing, container):
            self._tracer.note(id(thing), start, length)
        attributes = _dict_of(thing)
        if attributes is not None and filtered:
            self._filter(attributes, self.names.of_instances, f"{kind.__name__}", _weakly(thing))
        elif attributes is not None:
            found.append(attributes)
        inner = behind(thing, attributes)
        if not kind.__flags__ & _HEAP_TYPE and not inner and attributes is None and container is None:
            self.opaque.add(type(thing).__name__)
        return [*found, *inner]

    def _hooks(self, kind: type) -> list[Any]:
        """Return the hooks that torch runs for every module, where objects of this class are modules."""
        module = sys.modules["torch"].nn.Module
        if self.met.num_of[kind] > 1 or not issubclass(kind, module):
            return []
        shared = vars(sys.modules[module.__module__])
        return [value for name, value in shared.items() if name.startswith("_global_") and isinstance(value, dict)]


class FilteredDict:
    """A dictionary of which only some keys are looked at: those that code names."""

    def __init__(self, within: Callable[[], dict[str, Any]], names: list[set[str]], what: str) -> None:
        """Look at none yet; `names` grow while code is read."""
        self._within, self.names, self.what = within, names, what
        self._taken: dict[str, Any] = {}

    @property
    def within(self) -> dict[str, Any]:
        """Return the dictionary; an empty one where its object is gone."""
        return self._within()

    def wanted(self) -> list[str]:
        """Return keys that are looked at from now on."""
        within = self.within
        found = {key: None for names in self.names for key in _common(within, names) if key not in self._taken}
        for key in found:
            value = within[key]
            self._taken[key] = value if isinstance(value, _LEAVES) else id(value)
        return [*found]

    @property
    def taken(self) -> list[str]:
        """Return the keys that are looked at."""
        return [*self._taken]

    def _named(self, key: Any) -> bool:
        return any(key in names for names in self.names)

    def as_before(self) -> bool:
        """Tell whether all that is named has the value that it had, and nothing came or went."""
        now = {key: self.within[key] for names in self.names for key in _common(self.within, names)}
        return now.keys() == self._taken.keys() and all(_alike(now[key], self._taken[key]) for key in now)

    def differing(self) -> str:
        """Return a name that has another value by now, an empty string for none."""
        keys = [*self._taken, *(key for key in self.within if self._named(key) and key not in self._taken)]
        return next((str(key) for key in keys if not self._is_as_before(key)), "")

    def _is_as_before(self, key: str) -> bool:
        return key in self.within and key in self._taken and _alike(self.within[key], self._taken[key])


def _alike(now: Any, before: Any) -> bool:
    if isinstance(now, _LEAVES):
        return type(now) is type(before) and (now == before or now != now)
    return type(before) is int and id(now) == before


def _weakly(thing: Any) -> Callable[[], Any]:
    """Return what gives the attributes of an object, and does not keep it alive."""
    try:
        alive = weakref.ref(thing)
    except TypeError:
        return lambda: _dict_of(thing) or {}
    return lambda: _dict_of(alive()) or {}


def _dict_of(thing: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, read where they stand."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return None
    return own if type(own) is dict else None


_SPECIAL: dict[type, Any] = {
    types.FunctionType: ObjectGraph._of_function,
    types.CellType: ObjectGraph._of_cell,
    types.ModuleType: ObjectGraph._of_module,
    functools._lru_cache_wrapper: lambda _, memo: [memo.__wrapped__],  # what it keeps is the script's own memory
    deque: ObjectGraph._of_deque,
}


def _common(within: dict[str, Any], names: set[str]) -> list[str]:
    """Return the keys that are among `names`, which may be a set that holds more than it lists."""
    if type(names) is set and len(names) < len(within):
        return [name for name in names if name in within]
    return [key for key in within if key in names]
