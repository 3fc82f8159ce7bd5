"""Where in the bytecode time was spent that the interpreter does not look at: before a function that has just begun.

CPython answers a sampler after calls, at jumps back and at the beginning of functions; operators, stores and freeing
what a name held have no such place. A look that was due in them comes at the next one: where that is the beginning
of a function, the function has run nothing, and what took the time stands before the call (`CHECK_EVAL_BREAKER` in
ceval.c; in a loop that frees a list and calls a function of one line, this was charged with 27 to 35% of the time by
Python 3.11 to 3.13, n=1 each).
"""

import bisect
import dis
import functools
from types import CodeType

__all__ = ["before", "has_just_begun"]

_BEGINS = dis.opmap["RESUME"]
_LOOKED_AT = ("CALL", "JUMP_BACKWARD", "RESUME", "YIELD_VALUE", "SEND")
_TAKES_TIME = (
    "STORE_", "DELETE_", "BINARY_", "UNARY_", "COMPARE_", "CONTAINS_", "UNPACK_", "BUILD_", "LIST_", "DICT_", "SET_",
    "FORMAT_", "POP_TOP", "GET_ITER", "FOR_ITER",
)  # fmt: skip


def has_just_begun(code: CodeType, offset: int) -> bool:
    """Return whether a frame has run nothing since it was called, or since a generator was asked for its next value."""
    return 0 <= offset < len(code.co_code) and code.co_code[offset] == _BEGINS


def before(code: CodeType, offset: int) -> int:
    """Return the offset of the instruction that took the time before the call at `offset`: the last that can have.

    `offset` itself, where the interpreter could look between any such and the call.
    """
    offsets, names = _instructions(code)
    for place in range(bisect.bisect_right(offsets, offset) - 2, -1, -1):
        if names[place].startswith(_TAKES_TIME):
            return offsets[place]
        if names[place].startswith(_LOOKED_AT):
            break
    return offset


@functools.lru_cache(maxsize=256)
def _instructions(code: CodeType) -> tuple[list[int], list[str]]:
    found = list(dis.get_instructions(code))
    return [each.offset for each in found], [each.opname for each in found]
