"""A name for everything that the samples of a data set depend on, so that another process may use what one prepared.

Told are: the user's own code as bytecode, with what it reads (module constants, closures, other functions); the code
of installed packages by their versions; all state of the objects, tensors and arrays to the bit; files and folders that
are named anywhere by size, times and number. Equal digests in two processes then mean equal samples. A pair of file
name and label costs 10 us (200,000 of them in 2.05 s, n=2, one core of an AMD EPYC, Python 3.11).

What is left: samples that depend on what nothing names, as environment variables, the network, or a file whose name is
put together without its folder being named; settings of packages that were changed after import. Compute a key before
samples are made and again afterwards: where they differ, something changed meanwhile.
"""

import copyreg
import io
import marshal
import random
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import torch

from flatout.pipeline.cache.disk.key_code import Code
from flatout.pipeline.cache.disk.key_content import told_content
from flatout.pipeline.cache.disk.key_files import Allowance, Files, KeyLimits, Untold, digest
from flatout.pipeline.cache.disk.key_versions import environment
from flatout.watch.script_signals import any_but_signals

__all__ = ["Key", "KeyLimits", "key_of"]

_NUMBERS = (type(None), bool, int, float, complex, type(...), type(NotImplemented))
_LEAVES = {type(None), bool, int, float, str}
_BUILT_IN = (list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, complex)
_POINTER = tuple.__itemsize__
# Their objects stand for something outside the process, whatever they say of themselves.
_HANDLES = {"h5py", "lmdb", "sqlite3", "netCDF4", "tables", "tarfile", "zipfile", "socket", "ssl", "av", "decord"}
_HANDLES |= {"rasterio", "psycopg2", "pymongo", "redis", "duckdb", "queue", "multiprocessing", "subprocess"}


@dataclass(frozen=True, slots=True)
class Key:
    """`digest` in hexadecimal; empty where there is none, and `reason` says why."""

    digest: str
    reason: str


def key_of(*things: object, limits: KeyLimits | None = None) -> Key:
    """Return a key of everything that `things` (data set, collate function, plain values) depend on.

    Nothing is called on them but the `__reduce_ex__` of objects of installed packages. What cannot be told (handles,
    generators, objects without visible state, more than `limits`) gives a reason instead of a digest.
    """
    teller = _Teller(Allowance(limits or KeyLimits()))
    try:
        told = [teller.tell_named(type(thing).__name__, thing) for thing in things]
        around = [one.encode() for one in environment()]
    except Untold as untold:
        return Key("", str(untold))
    except RecursionError:
        return Key("", "it is nested too deeply")
    except any_but_signals() as error:  # a stranger's object may do anything when it is looked at
        return Key("", f"looking at it raised {type(error).__name__}: {error}")
    return Key(digest("key", *around, *told).hex(), "")


class _Teller:
    """Walks what is given; each object is told once, and told by what it holds."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._files = Files(allowance)
        self._code = Code(self.tell, self.tell_constant)
        self._told: dict[int, tuple[bytes, Any]] = {}  # the object is kept: its number must not go to another
        self._open: dict[int, int] = {}

    def tell_named(self, name: str, thing: Any) -> bytes:
        try:
            return self.tell(thing)
        except Untold as untold:
            untold.names.append(name)
            raise

    def tell(self, thing: Any) -> bytes:
        kind = type(thing)
        if kind is str:
            return digest("str", thing.encode("utf-8", "surrogatepass"), self._files.encode(thing))
        if kind in _NUMBERS:
            return digest(kind.__name__, _number(thing))
        self._allowance.step()
        if kind in (list, tuple) and set(map(type, thing)) <= _LEAVES:  # by far the most, and not worth remembering
            return self._sequence(kind.__name__, thing)
        known = self._told.get(id(thing))
        if known is not None:
            return known[0]
        if id(thing) in self._open:
            return digest("above", b"%d" % self._open[id(thing)])
        self._open[id(thing)] = len(self._open)
        try:
            told = self._look(kind, thing)
        finally:
            del self._open[id(thing)]
        self._told[id(thing)] = (told, thing)
        return told

    def tell_constant(self, thing: Any) -> bytes:
        """Tell a constant of a function's code, where a string of signs alone is hardly the name of a folder."""
        if type(thing) is str and not any(map(str.isalnum, thing)):
            return digest("str", thing.encode("utf-8", "surrogatepass"))
        if type(thing) is tuple:
            return digest("tuple", *map(self.tell_constant, thing))
        return self.tell(thing)

    def _look(self, kind: type, thing: Any) -> bytes:
        if kind in (list, tuple, dict, set, frozenset, bytes, bytearray):
            return self._container(thing)
        refused = _refused(kind, thing)
        if refused:
            raise Untold(refused)
        if any(thing is one for one in _streams()):
            return digest("stream of the process", kind.__name__.encode())
        told = self._code.encode(thing)
        if told is not None:
            return told
        told = told_content(thing, self.tell, self._files, self._allowance)
        if told is not None:
            return digest("content", self.tell(kind), told)
        if isinstance(thing, PurePath):
            return digest("path", str(thing).encode("utf-8", "surrogatepass"), self._files.encode(str(thing)))
        return self._object(kind, thing)

    # -- containers ---------------------------------------------------------------------------------------------

    def _container(self, thing: Any) -> bytes:
        if isinstance(thing, list | tuple):
            return self._sequence("list" if isinstance(thing, list) else "tuple", thing)
        if isinstance(thing, dict):
            pairs = ((self.tell(name), self._tell_item(name, value)) for name, value in dict.items(thing))
            return digest("dict", *(piece for pair in pairs for piece in pair))
        if isinstance(thing, set | frozenset):
            return digest("set", *sorted(map(self.tell, thing)))
        return digest("bytearray" if isinstance(thing, bytearray) else "bytes", bytes(thing))

    def _sequence(self, name: str, thing: Any) -> bytes:
        items = [*(list if isinstance(thing, list) else tuple).__iter__(thing)]
        kinds = set(map(type, items))
        if kinds <= _LEAVES:
            strings = [item for item in items if type(item) is str]
            rest = marshal.dumps([... if type(item) is str else item for item in items] if strings else items, 2)
            whole = b"\xff".join([item.encode("utf-8", "surrogatepass") for item in strings])  # no byte of UTF-8
            return digest(name + " of leaves", rest, whole, *map(self._files.encode, strings))
        return digest(name, *map(self.tell, items))

    def _tell_item(self, name: Any, value: Any) -> bytes:
        return self.tell_named(name, value) if type(name) is str else self.tell(value)

    # -- objects ------------------------------------------------------------------------------------------------

    def _object(self, kind: type, thing: Any) -> bytes:
        if isinstance(thing, types.MappingProxyType):
            return digest("view", self.tell(dict(thing)))
        if isinstance(thing, types.SimpleNamespace):
            return digest("namespace", *self._attributes(thing))
        own = self._code.is_own(kind)
        built_in = next((one for one in _BUILT_IN if isinstance(thing, one)), None)
        if (not own and _reduces_itself(kind)) or (built_in is None and _hides_state(kind)):
            return digest("object", self.tell(kind), self._reduced(kind, thing))
        content = b"" if built_in is None else self._of(built_in, thing)
        return digest("object", self.tell(kind), content, *self._attributes(thing))

    def _of(self, built_in: type, thing: Any) -> bytes:
        if built_in is str:
            return self.tell(str.__str__(thing))
        if built_in in (int, float, complex):
            return _number(thing)
        return self._container(thing)

    def _attributes(self, thing: Any) -> Iterator[bytes]:
        for name, value in sorted(_state(thing).items()):
            yield digest("attribute", name.encode(), self._tell_item(name, value))

    def _reduced(self, kind: type, thing: Any) -> bytes:
        """Tell an object by what it would be pickled as; nothing is pickled."""
        reduce: Callable[[Any], Any] | None = copyreg.dispatch_table.get(kind)
        try:
            found = reduce(thing) if reduce is not None else thing.__reduce_ex__(4)
        except Untold:
            raise
        except any_but_signals() as error:
            name = f"{kind.__module__}.{kind.__qualname__}"
            raise Untold(f"an object of {name}, which shows no state ({error})") from None
        if isinstance(found, str):
            return digest("name", found.encode())
        made, args, *rest = found
        state, items, pairs = (*rest, None, None, None)[:3]
        lists = [list(one) if one is not None else None for one in (items, pairs)]
        return digest("reduced", *map(self.tell, (made, args, state, *lists)))


def _number(thing: Any) -> bytes:
    if isinstance(thing, int):
        return int.__format__(thing, "x").encode()
    if isinstance(thing, float):
        return float.hex(thing).encode()
    return complex.__repr__(thing).encode() if isinstance(thing, complex) else repr(thing).encode()


def _state(thing: Any) -> dict[str, Any]:
    """Return all attributes of an object, in its dictionary and in its slots."""
    found = {}
    for kind in type(thing).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, types.MemberDescriptorType) and name != "__dict__":
                try:
                    found[f"{kind.__name__}.{name}"] = slot.__get__(thing)
                except AttributeError:
                    continue
    try:
        inside = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return found
    return {**found, **{str(name): value for name, value in inside.items()}}


def _generators() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    there = (random.Random, torch.Generator)
    return there if numpy is None else (*there, numpy.random.Generator, numpy.random.RandomState)


def _streams() -> tuple[Any, ...]:
    """Return the process's own random generators: who holds one of them holds what everyone has."""
    numpy = sys.modules.get("numpy")
    shared = (getattr(random, "_inst", None), torch.default_generator)
    return shared if numpy is None else (*shared, getattr(numpy.random.mtrand, "_rand", None))


def _refused(kind: type, thing: Any) -> str:
    """Return why an object has no state to tell: it is a handle, or changes as it is used."""
    if isinstance(thing, type | types.ModuleType | types.FunctionType):
        return ""
    if isinstance(thing, _generators()) and not any(thing is one for one in _streams()):
        return f"a random generator of its own ({kind.__name__})"
    if isinstance(thing, io.BytesIO | io.StringIO):
        return ""
    if isinstance(thing, io.IOBase) or callable(getattr(kind, "fileno", None)):
        return f"an open file ({kind.__name__})"
    if kind.__module__.partition(".")[0] in _HANDLES:
        return f"an object of {kind.__module__.partition('.')[0]} ({kind.__name__})"
    if callable(getattr(kind, "__next__", None)):
        return f"an iterator ({kind.__name__})"
    return ""


def _reduces_itself(kind: type) -> bool:
    """Return whether a class says what its state is; `object` has ways of its own to do that since Python 3.11."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return kind in copyreg.dispatch_table or any(getattr(kind, n, None) is not getattr(object, n, None) for n in names)


def _hides_state(kind: type) -> bool:
    """Return whether objects of a class hold more than their dictionary and their slots, as classes made in C do."""
    slots = sum(isinstance(slot, types.MemberDescriptorType) for one in kind.__mro__ for slot in vars(one).values())
    shown = object.__basicsize__ + _POINTER * (slots + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))
    return kind.__itemsize__ != 0 or kind.__basicsize__ > shown
