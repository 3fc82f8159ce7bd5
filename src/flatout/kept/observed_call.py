"""One call of a user's function, watched from inside: which code ran, and whether it did anything but compute.

Python's profiler sees each function that is entered, and each compiled one that is called. What neither writes nor asks
for anything but values leaves no other trace: no output, no file, no clock, no random numbers, no setting. Given the
same values again it would run the same code, and come to the same. What an operation of another package does inside
compiled code is not seen: only packages that are known to compute are let through.
"""

import dis
import functools
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

from flatout.kept.warned_calls import Warnings, has_shown
from flatout.probe.core.user_places import is_user_file
from flatout.watch.components import OUT_OF_SIGHT, names_in
from flatout.watch.dataset_state import random_states, undrawn
from flatout.watch.no_collection import no_collection

__all__ = ["COMPUTES", "ObservedCall", "is_let_through", "observe"]

COMPUTES = {"torch", "numpy", "math", "cmath", "itertools", "operator", "functools", "collections", "typing"}
COMPUTES |= {"einops", "numbers", "fractions", "types"}
"""Packages and modules of which code may name what it likes."""

_PYTHON = {"torch", "torch.functional", "torch._tensor", "torch.nn.functional", "torch._jit_internal"}
_PYTHON |= {"torch.overrides", "torch._VF", "torch.autograd.grad_mode", "torch.utils._contextlib", "torch._ops"}
_PYTHON |= {"torch.types", "torch.nn.modules.utils", "math", "functools", "collections"}
_PYTHON |= {"collections.abc", "operator", "typing", "enum", "abc", "numbers", "contextlib"}
_PYTHON |= {"collections_abc", "fractions", "heapq", "bisect", "types", "torch.compiler"}
_COMPILED = COMPUTES | {"builtins"}
_COMPILED |= {f"_{name}" for name in ("operator", "functools", "collections", "abc", "heapq", "bisect", "typing")}
_NOT = ("numpy.random", "numpy.lib.npyio", "numpy.lib._npyio", "numpy.lib.format", "numpy.lib._format", "numpy.testing")
_EFFECTS = {"print", "open", "input", "exec", "eval", "compile", "__import__", "breakpoint", "globals", "locals"}
_EFFECTS |= {"vars", "setattr", "delattr", "id", "__build_class__", "seed", "manual_seed", "initial_seed", "save"}
_EFFECTS |= {"load", "get_rng_state", "tofile", "fromfile", "from_file", "dump", "dumps", "memmap", "data_ptr"}
_EFFECTS |= {"share_memory_", "pin_memory", "register_hook", "register_post_accumulate_grad_hook", "retain_grad"}
_EFFECTS |= {"backward", "is_pinned", "geterr", "seterr", "get_printoptions", "synchronize", "record_stream"}
_EFFECTS |= {
    "is_anomaly_enabled",
    "is_anomaly_check_nan_enabled",
    "is_warn_always_enabled",
    "get_deterministic_debug_mode",
}
_EFFECTS |= {"is_deterministic_algorithms_warn_only_enabled"}  # settings that are no part of what was given
_DYNAMIC = {"getattr", "hasattr", "vars", "dir", "eval", "exec", "globals", "locals", "attrgetter", "methodcaller"}
_DYNAMIC |= {"setattr", "delattr", "import_module", "__dict__", "__class__", "__getattribute__", "__globals__"}
_DYNAMIC |= {"__closure__", "__code__", "__wrapped__", "__self__", "__func__"}
_DYNAMIC |= {OUT_OF_SIGHT}
_SETTING = {"__setattr__", "__delattr__", "__set__", "__delete__", "__setstate__"}  # of `object`, `type` and `super()`
_FRESH_SETTINGS = frozenset({"set_grad_enabled"})  # put back by who leaves the block
_MOST_EVENTS = 5_000_000


@dataclass
class ObservedCall:
    """What was seen of one call.

    Attributes:
        result: what it returned.
        refused: why it may not be left out, in words; an empty string where nothing speaks against that.
        scopes: the user's own code that ran, each with the globals that it ran in.
        codes: all code that ran.
        attributes: names of attributes that the user's own code reads.
    """

    result: Any = None
    refused: str = ""
    scopes: dict[CodeType, dict[str, Any]] = field(default_factory=dict)
    codes: set[CodeType] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)

    def refuse(self, reason: str) -> None:
        """Note a reason; the first one stays."""
        self.refused = self.refused or reason

    def add(self, other: "ObservedCall") -> None:
        """Take what was seen of another call of the same function as well."""
        self.scopes |= other.scopes
        self.codes |= other.codes
        self.attributes |= other.attributes


def observe(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], packages: tuple[str, ...] = ()
) -> ObservedCall:
    """Call `function` and return what was seen; what it raises is raised.

    `packages`: installed modules whose functions only compute, besides those that are known; what code reads may then
    be written down in any way, for who calls watches all that there is to read.
    """
    seen = ObservedCall()
    if sys.getprofile() is not None:
        seen.refuse("the thread is profiled already")
        seen.result = function(*args, **kwargs)
        return seen
    states, modes = random_states(), _modes()
    watch = _Watch(seen, packages)
    with no_collection(), Warnings() as warned:
        sys.setprofile(watch.event)
        try:
            seen.result = function(*args, **kwargs)
        finally:
            alone = sys.getprofile() == watch.event
            sys.setprofile(None)
    if not alone:
        seen.refuse("it profiles the thread itself")
    if not undrawn(states, random_states()):
        seen.refuse("it draws random numbers")
    if modes != _modes():
        seen.refuse("it changes a setting of torch")
    if warned.seen or (not seen.refused and has_shown(seen.scopes, seen.codes)):
        seen.refuse("it warns")
    for code, scope in seen.scopes.items():
        seen.refuse(("" if packages else _reads_more(code)) or _writes(code) or _asks_which(code, scope))
        seen.attributes |= names_in(code).attributes
    return seen


def _modes() -> tuple[object, ...]:
    return torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()


class _Watch:
    """Takes the profiler's events of one call."""

    def __init__(self, seen: ObservedCall, packages: tuple[str, ...]) -> None:
        self._seen, self._packages = seen, packages
        self._events = 0

    def event(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take one event; what is refused once is not looked at any more."""
        if self._seen.refused:
            return
        self._events += 1
        if self._events > _MOST_EVENTS:
            self._seen.refuse("it makes too many calls to be watched")
        elif event == "call":
            self._entered(frame)
        elif event == "c_call" and argument is not sys.setprofile and not _is_ours(frame):
            self._seen.refuse(_of_compiled(argument))

    def _entered(self, frame: FrameType) -> None:
        code = frame.f_code
        if code in self._seen.codes:
            if self._seen.scopes.get(code, frame.f_globals) is not frame.f_globals:
                self._seen.refuse(f"{code.co_qualname} runs in several modules")
            return
        self._seen.codes.add(code)
        if is_user_file(code.co_filename):
            self._seen.scopes[code] = frame.f_globals
        else:
            self._seen.refuse(_of_python(str(frame.f_globals.get("__name__", "")), code.co_name, self._packages))


def _is_ours(frame: FrameType) -> bool:
    """Return whether what stands in between, of this fix and of others, makes a call itself."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "flatout"


def _of_python(module: str, name: str, packages: tuple[str, ...]) -> str:
    """Return why a function of an installed package may do more than compute, an empty string where it does not."""
    if module.partition(".")[0] == "flatout":
        return ""
    if module == "torch.nn.modules.module" and name == "__getattr__":
        return ""
    if is_let_through(module, packages) and not _acts(name):
        return ""
    return f"it calls {module or 'code of an unknown module'}.{name}"


def is_let_through(module: str, packages: tuple[str, ...] = ()) -> bool:
    """Return whether functions of an installed module may run in a call that is watched."""
    computes = module.lstrip("_") in _PYTHON or module in _PYTHON or module.startswith(("numpy", "einops", *packages))
    return computes and not module.startswith(_NOT)


def _acts(name: str) -> bool:
    acting = name in _EFFECTS or name.lstrip("_").startswith(("set_", "use_deterministic"))
    return acting and name.lstrip("_") not in _FRESH_SETTINGS


def _of_compiled(function: Any) -> str:
    """Return why a compiled function may do more than compute, an empty string where it does not."""
    name, bound = str(getattr(function, "__name__", "")), getattr(function, "__self__", None)
    kind = bound if isinstance(bound, type) else type(bound)
    if isinstance(bound, ModuleType):
        home = bound.__name__
    elif bound is None or kind.__module__ == "pybind11_builtins":
        home = str(getattr(function, "__module__", None) or "builtins")
    else:
        home = str(kind.__module__)
    if home.partition(".")[0] in _COMPILED and not home.startswith(_NOT) and not _acts(name):
        return ""
    return f"it calls {'' if home == 'builtins' else home + '.'}{name}"


@functools.lru_cache(maxsize=1024)
def _reads_more(code: CodeType) -> str:
    """Return what code of the user's reads by names that are not in it, an empty string for nothing."""
    names = names_in(code)
    loose = sorted(_DYNAMIC & (names.read | names.attributes))
    if loose:
        return f"{code.co_qualname} reads by names that are not written down ({loose[0]})"
    foreign = sorted(name for name in names.imported if name.partition(".")[0] not in COMPUTES)
    return f"{code.co_qualname} imports {foreign[0]}" if foreign else ""


def _asks_which(code: CodeType, scope: dict[str, Any]) -> str:
    """Return a global that code compares with by `is`, though what it is given counts by its value; "" for none."""
    for before, instruction in itertools.pairwise(dis.get_instructions(code)):
        name = str(before.argval)
        by_identity = instruction.opname == "IS_OP" and before.opname == "LOAD_GLOBAL"
        if by_identity and type(scope.get(name)) in (list, dict, tuple, str, bytes, int, float, complex):
            return f"{code.co_qualname} asks whether something is {name} itself"
    return ""


@functools.lru_cache(maxsize=1024)
def _writes(code: CodeType) -> str:
    """Return what code of the user's writes that outlives it, an empty string for nothing; items are seen elsewhere."""
    for instruction in dis.get_instructions(code):
        kind, what = instruction.opname, str(instruction.argval)
        if kind in ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL") or what in _SETTING:
            return f"{code.co_qualname} writes {what}"
        if kind in ("STORE_DEREF", "DELETE_DEREF") and what in code.co_freevars:
            return f"{code.co_qualname} writes {what} of the function around it"
        if kind == "LOAD_BUILD_CLASS":
            return f"{code.co_qualname} makes a class"
    return ""
