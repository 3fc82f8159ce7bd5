"""What is told of code: the bytecode of the user's own functions and what they read, the version of everyone else's.

Lines, names of files and comments are not told: code that is moved stays the same code.
"""

import dis
import functools
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flatout.pipeline.cache.disk.key_files import Untold, digest
from flatout.pipeline.cache.disk.key_versions import owner_of
from flatout.watch.script_signals import any_but_signals

__all__ = ["Code"]

Tell = Callable[[Any], bytes]

_READ_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
# Of a class: what the interpreter keeps there, and what follows from the rest.
_KEPT_BY_PYTHON = {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__annotate__", "_abc_impl"}
_KEPT_BY_PYTHON |= {"__abstractmethods__", "__parameters__", "__orig_bases__", "__firstlineno__", "__match_args__"}
_KEPT_BY_PYTHON |= {"__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__annotate_func__"}
_KEPT_BY_PYTHON |= {"__annotations_cache__", "__slotnames__"}


class Code:
    """The code met while one key is made; `tell` tells what it refers to."""

    def __init__(self, tell: Tell, tell_constant: Tell) -> None:
        """Tell values with `tell`, and constants that stand in code with `tell_constant`."""
        self._tell = tell
        self._tell_constant = tell_constant
        self._owners: dict[str, str] = {}

    def encode(self, thing: Any) -> bytes | None:
        """Return what `thing` does where it is code (functions, methods, classes, modules), else None.

        Raises:
            Untold: it refers to something that cannot be told.
        """
        tell = self._tell
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.MethodType):
            return digest("method", tell(thing.__self__), tell(thing.__func__))
        if isinstance(thing, types.ModuleType):
            return self._module(thing)
        if isinstance(thing, types.BuiltinFunctionType | types.MethodWrapperType):
            return self._builtin(thing)
        if isinstance(thing, functools.partial):
            return digest("partial", *map(tell, (thing.func, thing.args, thing.keywords, vars(thing))))
        if isinstance(thing, _DESCRIPTORS):
            return digest("descriptor", tell(thing.__objclass__), thing.__name__.encode())
        return self._wrapped(thing)

    def _wrapped(self, thing: Any) -> bytes | None:
        tell = self._tell
        if isinstance(thing, functools._lru_cache_wrapper):
            return digest("cached", tell(thing.__wrapped__))
        if isinstance(thing, staticmethod | classmethod):
            return digest(type(thing).__name__, tell(thing.__func__))
        if isinstance(thing, property):
            return digest("property", tell(thing.fget), tell(thing.fset), tell(thing.fdel))
        if isinstance(thing, functools.cached_property):
            return digest("cached property", tell(thing.func))
        if isinstance(thing, types.CodeType):
            return self._code(thing)
        return None

    # -- whose it is --------------------------------------------------------------------------------------------

    def owner(self, module: str) -> str:
        """Return the package and version that `module` belongs to, an empty string where it is the user's own."""
        if module not in self._owners:
            self._owners[module] = owner_of(module)
        return self._owners[module]

    def is_own(self, kind: type) -> bool:
        """Return whether the user wrote this class."""
        return not self.owner(_module_of(kind))

    # -- functions ----------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType) -> bytes:
        module = str(function.__globals__.get("__name__", ""))  # `__module__` may be that of what it wraps
        cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        bound = [*map(self._tell, (function.__defaults__, function.__kwdefaults__)), *map(self._tell, cells)]
        owner = self.owner(module)
        if owner:
            name = f"{owner} {module}.{function.__code__.co_qualname}"
            return digest("library function", name.encode(), *bound)
        attributes = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
        names, imports = _reads(function.__code__)
        reads = [self._read(name, function) for name in sorted(names)]
        reads += [self._imported(name, level, function) for name, level in sorted(imports)]
        return digest("function", self._code(function.__code__), self._tell(attributes), *bound, *reads)

    def _read(self, name: str, function: types.FunctionType) -> bytes:
        if name not in function.__globals__:
            return digest("builtin", name.encode())
        value = function.__globals__[name]
        try:
            if isinstance(value, types.ModuleType) and not self.owner(value.__name__):
                told = self._read_from(value, _attributes(function.__code__), {id(value)})
            else:
                told = self._tell(value)
        except Untold as untold:
            untold.names.append(name)
            raise
        return digest("global", name.encode(), told)

    def _imported(self, name: str, level: int, function: types.FunctionType) -> bytes:
        """Tell what is imported when the function runs."""
        whole = importlib.util.resolve_name("." * level + name, str(function.__globals__.get("__package__") or ""))
        owner = self.owner(whole)
        if owner:
            return digest("library import", f"{owner} {whole}".encode())
        if whole in sys.modules:
            module = sys.modules[whole]
            return digest(
                "import", name.encode(), self._read_from(module, _attributes(function.__code__), {id(module)})
            )
        raise Untold(f"{function.__name__} imports {whole} when it runs, which is not there yet")

    def _read_from(self, module: types.ModuleType, names: set[str], seen: set[int]) -> bytes:
        """Tell what a function reads of a module of the user's own: the attributes it names; all if it names none."""
        found = []
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if not isinstance(value, types.ModuleType) or self.owner(value.__name__):
                found.append(digest("attribute", name.encode(), self._tell(value)))
            elif id(value) not in seen:
                seen.add(id(value))
                found.append(digest("attribute", name.encode(), self._read_from(value, names, seen)))
        return digest("read", *found) if found else self._tell(module)

    def _code(self, code: types.CodeType) -> bytes:
        inner = [self._code(one) for one in code.co_consts if isinstance(one, types.CodeType)]
        consts = [self._tell_constant(one) for one in code.co_consts if not isinstance(one, types.CodeType)]
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        exceptions = getattr(code, "co_exceptiontable", b"")
        return digest("code", code.co_code, exceptions, repr((names, counts)).encode(), *inner, *consts)

    def _builtin(self, function: Any) -> bytes:
        owned, name = function.__self__, str(getattr(function, "__qualname__", function.__name__))
        if owned is None or isinstance(owned, types.ModuleType):
            module = owned.__name__ if owned is not None else str(function.__module__)
            return digest("builtin", f"{self.owner(module)} {module}.{name}".encode())
        return digest("builtin method", self._tell(owned), name.encode())

    # -- classes and modules ------------------------------------------------------------------------------------

    def _class(self, kind: type) -> bytes:
        module = _module_of(kind)
        owner = self.owner(module)
        if owner:
            return digest("library class", f"{owner} {module}.{kind.__qualname__}".encode())
        inside = {name: value for name, value in vars(kind).items() if name not in _KEPT_BY_PYTHON}
        pieces = [self._member(kind, name, inside[name]) for name in sorted(inside)]
        above = [*map(self._tell, kind.__bases__), self._tell(type(kind))]
        return digest("class", kind.__qualname__.encode(), *above, *pieces)

    def _member(self, kind: type, name: str, value: Any) -> bytes:
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            return digest("slot", name.encode())
        try:
            return digest("member", name.encode(), self._tell(value))
        except Untold as untold:
            untold.names += [name, kind.__name__]
            raise

    def _module(self, module: types.ModuleType) -> bytes:
        """Tell a module that is handed about as a value: its source, and its plain values as they are now."""
        owner = self.owner(module.__name__)
        if owner:
            return digest("library module", f"{owner} {module.__name__}".encode())
        plain = {n: v for n, v in vars(module).items() if type(v) in (bool, int, float, str) and not n.startswith("__")}
        file = getattr(module, "__file__", None)
        try:
            source = Path(file).read_bytes() if file else b""
        except any_but_signals(OSError) as error:
            raise Untold(f"the source of module {module.__name__} cannot be read ({error.strerror})") from None
        return digest("module", source, *(self._tell(item) for item in sorted(plain.items())))


def _module_of(kind: type) -> str:
    return str(vars(kind).get("__module__", "") or kind.__module__)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _codes(one)


def _reads(code: types.CodeType) -> tuple[set[str], set[tuple[str, int]]]:
    """Return the global names that `code` reads, and the modules it imports, each with its level."""
    names, imports = set(), set()
    for inner in _codes(code):
        before: list[Any] = [0, 0]
        for one in dis.get_instructions(inner):
            if one.opname in _READ_GLOBAL:
                names.add(str(one.argval))
            elif one.opname == "IMPORT_NAME":
                imports.add((str(one.argval), int(before[-2])))
            before.append(one.argval)
    return names, imports


def _attributes(code: types.CodeType) -> set[str]:
    return {name for inner in _codes(code) for name in inner.co_names}
