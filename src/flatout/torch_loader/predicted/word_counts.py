"""Arithmetic of random generators: how many words lie between two states, and what state some words lead to.

The Mersenne Twister of Python, NumPy and torch is one generator in three layouts: 624 words and a position. NumPy's
PCG64 is a linear congruence modulo 2**128, in which the way from one state to another is found bit by bit.
"""

import ctypes
import functools
import sys
from typing import Any

__all__ = ["BLOCK", "KEY_BYTES", "Twister", "lcg_advanced", "lcg_words", "twister"]

BLOCK = 624
"""Words of a Mersenne Twister that are made at once."""

KEY_BYTES = 4 * BLOCK
_MOST = 1 << 25  # words that are looked for: 54,000 blocks, some 0.1 s
_MODULUS = 1 << 128


class Twister:
    """A Mersenne Twister of its own, set to any state and moved on; it stands for nobody's stream."""

    def __init__(self) -> None:
        """Make one, with the library that counts fastest."""
        self._bits: Any = sys.modules["numpy"].random.MT19937(0)
        self._address = int(self._bits.ctypes.state_address)
        self._key = (ctypes.c_uint32 * BLOCK).from_address(self._address)
        self._position = ctypes.c_int.from_address(self._address + KEY_BYTES)

    def advanced(self, key: bytes, position: int, words: int) -> tuple[bytes, int]:
        """Return the 624 words and the position that `words` draws lead to."""
        self._put(key, position)
        self._bits.random_raw(words, output=False)
        return ctypes.string_at(self._address, KEY_BYTES), int(self._position.value)

    def words(self, before: tuple[bytes, int], after: tuple[bytes, int]) -> int | None:
        """Return how many draws lead from one state to the other, None where no number up to some million does."""
        count = (after[1] - before[1]) % BLOCK
        wanted = int.from_bytes(after[0][:4], sys.byteorder)
        self._put(*before)
        self._bits.random_raw(count, output=False)
        while not (self._key[0] == wanted and self._is_at(after)):
            if count > _MOST:
                return None
            self._bits.random_raw(BLOCK, output=False)
            count += BLOCK
        return count

    def _put(self, key: bytes, position: int) -> None:
        ctypes.memmove(self._address, key, KEY_BYTES)
        self._position.value = position

    def _is_at(self, state: tuple[bytes, int]) -> bool:
        return self._position.value == state[1] and ctypes.string_at(self._address, KEY_BYTES) == state[0]


@functools.cache
def twister() -> Twister:
    """Return the one that this process counts with; NumPy is there."""
    return Twister()


def lcg_advanced(state: int, increment: int, multiplier: int, words: int) -> int:
    """Return the state of a linear congruence modulo 2**128 after `words` draws."""
    factor, added = 1, 0
    while words:
        if words & 1:
            factor, added = factor * multiplier % _MODULUS, (added * multiplier + increment) % _MODULUS
        increment = (multiplier + 1) * increment % _MODULUS
        multiplier = multiplier * multiplier % _MODULUS
        words >>= 1
    return (factor * state + added) % _MODULUS


def lcg_words(before: int, after: int, increment: int, multiplier: int) -> int:
    """Return how many draws lead from one state of a linear congruence to another: there is always a number."""
    words, bit = 0, 1
    while before != after:
        if (before ^ after) & bit:
            before = (before * multiplier + increment) % _MODULUS
            words |= bit
        increment = (multiplier + 1) * increment % _MODULUS
        multiplier = multiplier * multiplier % _MODULUS
        bit <<= 1
    return words
