"""What a data set is made of: attributes, small containers, closures, classes, and what its own code reads.

Code of installed packages is not followed; what the user's functions and methods name in their modules is.
"""

import contextlib
import dis
import functools
import importlib.machinery
import logging
import random
import re
import string
import sys
import sysconfig
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from flatout.watch.per_class_cache import PerClassCache
from flatout.watch.script_signals import any_but_signals

__all__ = [
    "LEAVES",
    "OUT_OF_SIGHT",
    "attributes_in",
    "attributes_of",
    "handle_of",
    "is_filled",
    "is_generator",
    "is_own",
    "is_own_once_imported",
    "module_of",
    "names_in",
    "parts",
    "shared_streams",
]

LEAVES = (str, bytes, int, float, complex, bool, type(None), types.ModuleType, PurePath)
_MOST = 2000  # objects looked at
_DEPTH = 9
_ITEMS = 64  # of one container
_SCRIPT = {"__main__", "__mp_main__"}
_INSTALLED = {"site-packages", "dist-packages"}
# Packages whose objects stand for something outside the process that two processes cannot share after a fork.
_HANDLES = {"h5py", "lmdb", "sqlite3", "netCDF4", "tables", "tarfile", "zipfile", "socket", "ssl", "av", "decord"}
_HANDLES |= {"rasterio", "psycopg2", "pymongo", "redis", "duckdb", "queue", "multiprocessing"}

_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


def parts(thing: Any, transforms: bool = True) -> Iterator[Any]:
    """Yield `thing` and what it is made of, a few levels deep; plain values each time that they are met.

    `transforms`: what data sets hold that can be called, too.
    """
    queue: deque[tuple[Any, int]] = deque([(thing, 0)])
    seen: set[int] = set()
    number = 0
    while queue and number < _MOST:
        part, depth = queue.popleft()
        leaf = isinstance(part, LEAVES)
        if not leaf and id(part) in seen:
            continue
        number += 1
        yield part
        if leaf:
            continue
        seen.add(id(part))
        left_out = set() if transforms else {id(one) for one in _callables(part, part is thing)}
        if depth < _DEPTH:
            queue.extend((inner, depth + 1) for inner in _inside(part) if id(inner) not in left_out)


def attributes_of(part: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, read where they stand: nothing of the script's runs for it."""
    try:
        own = object.__getattribute__(part, "__dict__")
    except (AttributeError, TypeError):
        return None
    return own if type(own) is dict else None


def _datasets() -> Any:
    return sys.modules["torch"].utils.data.Dataset


def _callables(part: Any, whole: bool) -> list[Any]:
    own = (attributes_of(part) or {}) if whole or issubclass(type(part), _datasets()) else {}
    return [value for value in own.values() if callable(value) and not isinstance(value, type | _datasets())]


def _inside(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [*list(part.values())[:_ITEMS], *_own_class(part)]
    if isinstance(part, list | tuple | set | frozenset | deque):
        return [*(list(part)[:_ITEMS] if len(part) <= 50 * _ITEMS else []), *_own_class(part)]
    if handle_of(part):
        return []
    for kind, inside in _KINDS:
        if isinstance(part, kind):
            return inside(part)
    if _is_array(part):
        return []
    referent = [weakref.ref.__call__(part)] if isinstance(part, weakref.ref) else []
    return [*(attributes_of(part) or {}).values(), *_slots(part), *referent, *_own_class(part)]


def _is_array(part: Any) -> bool:
    return isinstance(part, sys.modules["torch"].Tensor) or module_of(type(part)).partition(".")[0] == "numpy"


def module_of(kind: type) -> str:
    """Return the name of the module that a class is from, an empty string where it does not say."""
    name = kind.__module__
    return name if isinstance(name, str) else ""  # of compiled functions it is a descriptor


def _own_class(part: Any) -> list[Any]:
    """Return the class of an object where it says something: the user's own, or one that holds a generator."""
    kind = type(part)
    return [kind] if module_of(kind) != "builtins" else []


def _slots(part: Any) -> list[Any]:
    own = [kind for kind in type(part).__mro__ if is_own(module_of(kind))]
    slots = [value for kind in own for value in vars(kind).values() if type(value) is types.MemberDescriptorType]
    found = []
    for slot in slots:
        with contextlib.suppress(AttributeError):  # nothing there yet
            found.append(slot.__get__(part))
    return found


def _of_class(kind: type) -> list[Any]:
    """Return what the user's own classes among the bases hold and do, of others only their generators."""
    found: list[Any] = []
    for base in kind.__mro__:
        own = is_own(module_of(base))
        if not own and not _holds_generator(base):
            continue
        for name, value in list(vars(base).items()):
            if is_generator(value) or (own and name not in ("__dict__", "__weakref__", "__doc__", "__module__")):
                found += _behind(value)
    return found


@PerClassCache
def _holds_generator(kind: Any) -> bool:
    return any(is_generator(value) for value in vars(kind).values())


def _behind(value: Any) -> list[Any]:
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [one for one in (value.fget, value.fset) if one is not None]
    return [value.func] if isinstance(value, functools.cached_property) else [value]


def _of_function(function: types.FunctionType) -> list[Any]:
    bound = [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
    bound += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *vars(function).values()]
    if is_own(str(function.__globals__.get("__name__", ""))):
        bound += _read(function)
    return bound


def is_filled(cell: Any) -> bool:
    """Return whether a cell of a closure has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True


def _read(function: types.FunctionType) -> list[Any]:
    """Return what a function may read: globals, and what it names in the user's own modules."""
    names = names_in(function.__code__)
    found = [function.__globals__[name] for name in names.read if name in function.__globals__]
    modules = [sys.modules[name] for name in names.imported if name in sys.modules]
    seen: set[int] = set()
    while modules := [*modules, *(value for value in found if isinstance(value, types.ModuleType))]:
        found = [value for value in found if not isinstance(value, types.ModuleType)]
        module, modules = modules[-1], modules[:-1]
        if is_own(module.__name__) and id(module) not in seen:
            seen.add(id(module))
            found += [vars(module)[name] for name in names.attributes if name in vars(module)]
    return found


class _Names(NamedTuple):
    read: frozenset[str]
    stored: frozenset[str]
    attributes: frozenset[str]
    imported: frozenset[str]


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> _Names:
    """Return the names of globals that code, and code inside it, reads and stores, of attributes and of modules.

    Attributes in format strings count. `OUT_OF_SIGHT` is among those of attributes where code reads some whose names
    it does not hold: by the positions of a class pattern, or by a format string that was made elsewhere.
    """
    found: list[set[str]] = [set(), set(), set(), set()]
    last: Any = None
    for instruction in dis.get_instructions(code):
        for place, kinds in enumerate(_INSTRUCTIONS):
            if instruction.opname in kinds:
                found[place].add(str(instruction.argval))
        if instruction.opname == "MATCH_CLASS":
            found[2].add(OUT_OF_SIGHT)
        elif instruction.opname in _INSTRUCTIONS[2] and instruction.argval in _FORMATTING:
            found[2] |= attributes_formatted(last) if isinstance(last, str) else {OUT_OF_SIGHT}
        last = instruction.argval if instruction.opname == "LOAD_CONST" else None
    inner = [names_in(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return _Names(*(frozenset(names).union(*(each[place] for each in inner)) for place, names in enumerate(found)))


def attributes_formatted(text: str) -> set[str]:
    """Return the names of attributes that a format string reads."""
    found: set[str] = set()
    try:
        for _, field, inner, _ in string.Formatter().parse(text):
            found |= set(re.findall(r"\.(\w+)", field or ""))
            found |= attributes_formatted(inner) if inner else set()
    except ValueError:  # which no code can format either
        return found
    return found


@functools.lru_cache(maxsize=16384)
def attributes_in(code: types.CodeType) -> frozenset[str]:
    """Return `names_in(code).attributes`, without an object for each instruction, of which classes have thousands."""
    found, extended = set[str](), 0
    for kind, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        if kind == dis.EXTENDED_ARG:
            extended = (extended | argument) << 8
            continue
        if kind in _SHIFTS:
            found.add(code.co_names[(extended | argument) >> _SHIFTS[kind]])
        extended = 0
    inner = (attributes_in(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return frozenset(found).union(*inner)


_INSTRUCTIONS = (
    {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"},
    {"STORE_GLOBAL", "DELETE_GLOBAL"},
    {"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"},
    {"IMPORT_NAME"},
)
OUT_OF_SIGHT = "<by a name that is not written down>"
_FORMATTING = ("format", "format_map")
_FLAGS = {"LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0, "LOAD_SUPER_ATTR": 2}  # bits below a name's number
_SHIFTS = {dis.opmap[name]: _FLAGS.get(name, 0) for name in _INSTRUCTIONS[2] if name in dis.opmap}


def is_own(module: str) -> bool:
    """Return whether a module is the user's own: the script, or a file that is not installed."""
    if module in _SCRIPT or module not in sys.modules:
        return bool(module)
    return _is_file_of_the_user(module)


@functools.lru_cache(maxsize=4096)
def _is_file_of_the_user(module: str) -> bool:
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or module.partition(".")[0] == "flatout":
        return False
    return _is_the_user_s(file)


def _is_the_user_s(file: str) -> bool:
    return not file.startswith(_STANDARD) and not _INSTALLED & set(Path(file).parts)


def is_own_once_imported(module: str) -> bool:
    """Return whether a module that is not imported yet would be the user's own; nothing is imported for that."""
    top = module.partition(".")[0]
    if top in sys.modules:
        return is_own(top)
    try:
        spec = importlib.machinery.PathFinder.find_spec(top)
    except (ImportError, ValueError, OSError):
        return False
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(place and _is_the_user_s(place) for place in places)


def handle_of(part: Any) -> str:
    """Return what `part` stands for outside of this process or in another thread, an empty string for nothing."""
    kind = type(part)
    try:
        claimed = getattr(part, "__class__", None)  # a proxy's are two
    except any_but_signals():  # a stranger's
        claimed = None
    other = isinstance(claimed, type) and claimed is not kind
    return _handle_of_kind(kind) or (_handle_of_kind(claimed) if other else "")


@PerClassCache
def _handle_of_kind(kind: Any) -> str:
    if callable(getattr(kind, "fileno", None)):  # every io.IOBase has it
        return "an open file"
    if issubclass(kind, threading.Thread):
        return "a thread"
    package = module_of(kind).partition(".")[0]
    return f"an object of {package}" if package in _HANDLES else ""


def is_generator(part: Any) -> bool:
    """Return whether `part` is a random generator, none of the process's own three."""
    numpy = sys.modules.get("numpy")
    kind: type = type(part)
    if not (_is_of_generators(kind) or (numpy is not None and _is_of_numpys(kind))):
        return False
    return not any(part is one for one in shared_streams())


def shared_streams() -> list[Any]:
    """Return the process's own random generators, of Python, torch and NumPy: they are watched by their state."""
    numpy = sys.modules.get("numpy")
    shared = [getattr(random, "_inst", None), sys.modules["torch"].default_generator]
    if numpy is not None:
        shared.append(getattr(numpy.random.mtrand, "_rand", None))
    return [one for one in shared if one is not None]


@PerClassCache
def _is_of_generators(kind: Any) -> bool:
    return issubclass(kind, (random.Random, sys.modules["torch"].Generator))


@PerClassCache
def _is_of_numpys(kind: Any) -> bool:
    numbers = sys.modules["numpy"].random
    return issubclass(kind, (numbers.Generator, numbers.RandomState))


def _of_partial(part: Any) -> list[Any]:
    return [part.func, *part.args, *part.keywords.values()]


def _of_bound(part: Any) -> list[Any]:
    """Return what a method is bound to, and its function."""
    return [one for one in (part.__self__, getattr(part, "__func__", None)) if one is not None]


def _nothing(_part: Any) -> list[Any]:
    return []


_KINDS: tuple[tuple[Any, Callable[[Any], list[Any]]], ...] = (
    (type, _of_class),
    (types.FunctionType, _of_function),
    (types.MethodType | types.BuiltinMethodType, _of_bound),
    (functools.partial, _of_partial),
    (logging.Logger | logging.Handler, _nothing),  # their files are nobody's data
)
