"""The names that the user's own code reads: of globals, of attributes, of modules."""

import sys
import types
from typing import Any, NamedTuple

from flatout.watch.components import OUT_OF_SIGHT, attributes_in, is_own, is_own_once_imported, names_in

__all__ = ["Names", "Read"]

_DYNAMIC = {"getattr", "vars", "eval", "exec", "globals", "locals", "attrgetter", "methodcaller", "dir", "__dict__"}
_DYNAMIC |= {"deepcopy", "asdict", "astuple", "__getattribute__", "__getattr__", "getattr_static"}
_DYNAMIC |= {"pickle", "cloudpickle", "dill", "dumps", OUT_OF_SIGHT}
_UNWRITTEN = {"eval", "exec", "globals", "__import__", "import_module"}
_MODES = {"is_grad_enabled", "is_inference_mode_enabled", "is_inference"}  # that change with who walks a loader
_NEVER_CALLED = {"__init__", "__new__", "__init_subclass__", "__del__", "__repr__", "__str__"}
_NEVER_CALLED |= {"__dict__", "__weakref__"}
_NEVER_CALLED |= {"__doc__", "__module__", "__annotations__", "__qualname__", "__abstractmethods__", "_abc_impl"}
_NEVER_CALLED |= {"__slotnames__", "__static_attributes__", "__firstlineno__", "__match_args__"}
_NEVER_CALLED |= {"__classcell__"}
_NEVER_CALLED |= {"__parameters__", "__orig_bases__", "__slots__", "__getstate__", "__setstate__", "__reduce__"}


class Read(NamedTuple):
    """What one function reads: names of globals, of attributes, and of modules that it imports."""

    names: set[str]
    attributes: set[str]
    imported: frozenset[str]

    def modules(self, scope: dict[str, Any]) -> list[types.ModuleType]:
        """Return the modules that it has under its names, or imports, and those of the user's that these name."""
        found = [scope[name] for name in self.names if isinstance(scope.get(name), types.ModuleType)]
        found += [sys.modules[name] for name in self._imports(scope) if name in sys.modules]
        for module in found:  # which grows
            within = vars(module) if is_own(module.__name__) else {}
            inner = [within[name] for name in self.attributes if isinstance(within.get(name), types.ModuleType)]
            found += [one for one in inner if one not in found]
        return found

    def to_come(self, scope: dict[str, Any]) -> set[str]:
        """Return the names of modules of the user's that it imports, and that nobody has imported yet."""
        return {name for name in self._imports(scope) if name not in sys.modules and is_own_once_imported(name)}

    def _imports(self, scope: dict[str, Any]) -> set[str]:
        """Return names under which what it imports may be known: how far up a relative import begins is not told."""
        package = scope.get("__package__")
        parts = package.split(".") if isinstance(package, str) and package else []
        above = [".".join(parts[:number]) for number in range(1, len(parts) + 1)]
        relative = {f"{one}.{name}" if name else one for one in above for name in self.imported}
        return {*(name for name in self.imported if name), *relative}


class _OfClasses(set[str]):
    """Names of attributes; those that Python itself looks up count as named."""

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name.startswith("__") and name.endswith("__"):
            return name not in _NEVER_CALLED
        return super().__contains__(name)


class Names:
    """All names that were met in code.

    Attributes:
        dynamic: some code reads attributes by names that are not written down.
        of_instances: names that count in the attributes of an object.
        of_modules: names that count in a module of the user's.
        unwritten: what some code reads globals or modules with, by such names; an empty string for nothing.
    """

    def __init__(self) -> None:
        """Know none."""
        self.globals: set[str] = set()
        self.of_classes: set[str] = _OfClasses()
        self.dynamic, self.unwritten = False, ""
        self.of_instances: set[str] = _OfInstances(self)
        self.of_modules: set[str] = _OfModules(self)
        self._known: set[types.CodeType] = set()
        self._classes: set[type] = set()

    @property
    def attributes(self) -> set[str]:
        """Return the names of attributes."""
        return self.of_classes

    def read(self, code: types.CodeType) -> Read:
        """Take note of the names in the code of a function."""
        found = names_in(code)
        if code not in self._known:
            self._known.add(code)
            self.globals |= found.read
            self.of_classes |= found.attributes
            named = found.read | found.attributes
            self.dynamic = self.dynamic or bool(_DYNAMIC & named) or "copy" in found.read  # array.copy() reads none
            loose = (_UNWRITTEN | _MODES) & named
            loose |= {"sys.modules"} if "sys" in found.read and "modules" in found.attributes else set()
            self.unwritten = self.unwritten or next(iter(loose), "")
        return Read(set(found.read | found.stored), set(found.attributes), found.imported)

    def add(self, names: set[str]) -> None:
        """Take note of names of attributes that were met elsewhere."""
        self.of_classes |= names

    def read_class(self, kind: type) -> None:
        """Take note of the names in the methods of an installed class, which are given the object itself."""
        if kind in self._classes or kind in (object, dict, list, tuple, set):
            return
        self._classes.add(kind)
        for value in list(vars(kind).values()):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, types.FunctionType):
                self.of_classes |= attributes_in(function.__code__)


class _OfInstances(set[str]):
    """Names that count in the attributes of an object: all, as soon as code is met that does not write them down."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names

    def __contains__(self, name: object) -> bool:
        return self._names.dynamic or name in self._names.of_classes


class _OfModules(_OfInstances):
    """Names that count in a module: as in an object, but for what Python has in every module."""

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and name.startswith("__") and name.endswith("__"):
            return name == "__getattr__"
        return super().__contains__(name)
