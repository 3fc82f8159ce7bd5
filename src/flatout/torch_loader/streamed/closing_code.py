"""Code of a stream that runs where its pass ends: a `finally` around a `yield`, or what a `with` leaves.

Where another process has read ahead, the script's own generator stands elsewhere when it is closed.
"""

import dis
import functools
import inspect
import types
from collections.abc import Iterable, Iterator

from flatout.watch.components import is_own, module_of, parts

__all__ = ["closing_code"]

_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_ATTR"}
_LOADS |= {"LOAD_METHOD", "LOAD_CONST", "BUILD_TUPLE"}
_PASSING = {"NOP", "CACHE", "PRECALL", "CALL", "PUSH_NULL", "POP_TOP", "RESUME", "NOT_TAKEN"}
_MET = ("GeneratorExit", "BaseException")


def closing_code(*things: object) -> str:
    """Return the name of what runs as a generator of the script's own is closed, an empty string for nothing."""
    found = [part for thing in things for part in parts(thing)]
    functions = [part for part in found if isinstance(part, types.FunctionType)]
    own = [each for each in functions if is_own(str(each.__globals__.get("__name__", "")))]
    codes = [code for function in own for code in _generators_in(function.__code__)]
    named = next((code.co_qualname for code in codes if "finally" in _around_yields(code)), "")
    if named or not any("with" in _around_yields(code) for code in codes):
        return named
    kinds = [part for part in found if isinstance(part, type) and is_own(module_of(part))]
    return next((f"{kind.__name__}.__exit__" for kind in kinds if "__exit__" in vars(kind)), "")


def _generators_in(code: types.CodeType) -> Iterator[types.CodeType]:
    if code.co_flags & inspect.CO_GENERATOR:
        yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _generators_in(const)


@functools.lru_cache(maxsize=1024)
def _around_yields(code: types.CodeType) -> frozenset[str]:
    """Return "finally" and "with" where such a block, or what does the same, has a `yield` within."""
    instructions = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]
    at = {each.offset: number for number, each in enumerate(instructions)}
    yields = [each.offset for each in instructions if each.opname == "YIELD_VALUE"]
    found = set[str]()
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        if any(entry.start <= offset < entry.end for offset in yields) and entry.target in at:
            found.add(_kind(instructions[at[entry.target] :]))
    return frozenset(found)


def _kind(handler: list[dis.Instruction]) -> str:
    """Return what a handler of exceptions was written as: "finally", "with", or "" for what does not see a closing."""
    if handler[0].opname != "PUSH_EXC_INFO" or len(handler) < 2:  # of the interpreter's own
        return ""
    if handler[1].opname == "WITH_EXCEPT_START":
        return "with"
    if handler[1].opname == "RERAISE":
        return ""
    return "" if _is_except(handler[1:]) or _only_closes(handler[1:]) else "finally"


def _is_except(body: list[dis.Instruction]) -> bool:
    """Return whether it names exceptions, and none that a generator is closed by."""
    named = next((each.opname for each in body if each.opname not in _LOADS), "")
    closed = any(each.opname in _LOADS and each.argval in _MET for each in body)  # by a later clause, too
    return named == "CHECK_EXC_MATCH" and not closed


def _only_closes(body: Iterable[dis.Instruction]) -> bool:
    """Return whether all that it does is to call methods with the name `close`."""
    for each in body:
        if each.opname == "RERAISE":
            return True
        if each.opname in ("LOAD_METHOD", "LOAD_ATTR") and each.argval == "close":
            continue
        if each.opname not in _PASSING | {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF"}:
            return False
    return False
