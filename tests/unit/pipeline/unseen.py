"""A count of calls that nothing of a data set refers to: so a test can count what a data set is asked for.

It lies in memory that all processes of a test share, and is named by its address alone. What a copy of the process
does, in which a data set is looked at, is not counted: its memory is its own.
"""

import ctypes
import mmap
import os

_ROOM = 4096
_kept = []


def tally():
    """Return the address of a new count of calls, by number: of this process, then of others."""
    memory = mmap.mmap(-1, 16 * _ROOM)
    _kept.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _place(address, _ROOM - 1).value = os.getpid()
    return address


def _place(address, number):
    return ctypes.c_int64.from_address(address + 8 * number)


def count(address, number=0, calls=1):
    """Count calls for `number`."""
    here = os.getpid() == _place(address, _ROOM - 1).value
    _place(address, number + (0 if here else _ROOM)).value += calls


def value(address, number=0):
    """Return how often this process asked for `number`."""
    return _place(address, number).value


def enter(address):
    """Count somebody who is inside, and remember how many were at the most."""
    inside, most = _place(address, 0), _place(address, 1)
    inside.value += 1
    most.value = max(most.value, inside.value)


def leave(address):
    """Count somebody who is outside again."""
    _place(address, 0).value -= 1


def counted(address, numbers=1):
    """Return how often each of `numbers` was asked for: in this process, and in others; begin anew."""
    found = [[_place(address, number + base).value for number in range(numbers)] for base in (0, _ROOM)]
    for number in (*range(numbers), *range(_ROOM, _ROOM + numbers)):
        _place(address, number).value = 0
    return found
