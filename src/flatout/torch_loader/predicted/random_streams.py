"""Random streams that samples are drawn from: where each stands, put elsewhere, and what some draws lead to.

A state is read and compared as plain bytes: 2.5 KB of Python's and NumPy's Mersenne Twister, 5 KB of torch's.
"""

import ctypes
import pickle
import random
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from flatout.torch_loader.predicted.word_counts import BLOCK, KEY_BYTES, lcg_advanced, lcg_words, twister
from flatout.watch.components import shared_streams
from flatout.watch.own_generators import access

__all__ = ["RandomStream", "StreamSet", "StreamState", "WordCounts", "at_one_place", "stream_of", "unpredictable"]

WordCounts = tuple[int, ...]
"""How many words of each stream."""

_HEAD = 16  # bytes of a Python object before what it holds
_MULTIPLIERS = {"PCG64": 0x2360ED051FC65DA44385DF649FCCF645, "PCG64DXSM": 0xDA942042E4DD58B5}


class StreamState(NamedTuple):
    """Where a stream stands.

    Attributes:
        mark: equal for equal streams, and for no others.
        spent: what a generator keeps and will never use again.
    """

    mark: Any
    spent: Any = None


class RandomStream(ABC):
    """One generator. States are values: what is asked about them moves no generator."""

    @abstractmethod
    def read(self) -> StreamState:
        """Return where the generator stands."""

    @abstractmethod
    def write(self, state: StreamState) -> None:
        """Let the generator stand there."""

    @abstractmethod
    def words(self, before: StreamState, after: StreamState) -> int | None:
        """Return how many words lead from one state to another, None where that is not known."""

    @abstractmethod
    def advanced(self, state: StreamState, words: int) -> StreamState:
        """Return the state that so many words lead to; `words` gave their number for two states before."""

    def residue(self, before: StreamState, after: StreamState) -> int | None:
        """Return what is equal where equally many words were drawn, at once; None where nobody can tell."""
        return self.words(before, after)


class _TwisterStream(RandomStream):
    """A Mersenne Twister; what else it keeps, a second normal number for instance, has to stay as it is."""

    @staticmethod
    @abstractmethod
    def _split(mark: Any) -> tuple[bytes, int, Any]:
        """Return the words, the position and the rest."""

    @staticmethod
    @abstractmethod
    def _joined(mark: Any, key: bytes, position: int) -> Any:
        """Return the mark of a stream with other words and another position."""

    def words(self, before: StreamState, after: StreamState) -> int | None:
        """Return how many words lead from one state to another."""
        if before.mark == after.mark:
            return 0
        (key, position, rest), (end_key, end_position, end_rest) = self._split(before.mark), self._split(after.mark)
        return twister().words((key, position), (end_key, end_position)) if rest == end_rest else None

    def advanced(self, state: StreamState, words: int) -> StreamState:
        """Return the state that so many words lead to."""
        if not words:
            return state
        key, position, _ = self._split(state.mark)
        return StreamState(self._joined(state.mark, *twister().advanced(key, position, words)))

    def residue(self, before: StreamState, after: StreamState) -> int | None:
        """Return the number of words modulo 624."""
        if before.mark == after.mark:
            return 0
        (_, position, rest), (_, end_position, end_rest) = self._split(before.mark), self._split(after.mark)
        return (end_position - position) % BLOCK if rest == end_rest else None


class PythonStream(_TwisterStream):
    """`random.Random`; its mark: position and words as they lie in memory, and the second normal number."""

    def __init__(self, generator: random.Random) -> None:
        """Take the generator."""
        self._generator = generator
        self._address = id(generator) + _HEAD
        number, state, _ = generator.getstate()
        assert number == 3
        packed = _packed(state)
        self._in_memory = ctypes.string_at(self._address, 4 + KEY_BYTES) == packed

    def read(self) -> StreamState:
        """Return where the generator stands."""
        if self._in_memory:  # 1 us in place of 17
            packed = ctypes.string_at(self._address, 4 + KEY_BYTES)
            return StreamState((packed, self._generator.gauss_next))  # type: ignore[attr-defined]
        _, state, second = self._generator.getstate()
        return StreamState((_packed(state), second))

    def write(self, state: StreamState) -> None:
        """Let the generator stand there."""
        packed, second = state.mark
        words = sys.modules["numpy"].frombuffer(packed, "u4", BLOCK, 4).tolist()
        self._generator.setstate((3, (*words, int.from_bytes(packed[:4], sys.byteorder)), second))

    @staticmethod
    def _split(mark: Any) -> tuple[bytes, int, Any]:
        return mark[0][4:], int.from_bytes(mark[0][:4], sys.byteorder), mark[1]

    @staticmethod
    def _joined(mark: Any, key: bytes, position: int) -> Any:
        return position.to_bytes(4, sys.byteorder) + key, mark[1]


def _packed(state: tuple[int, ...]) -> bytes:
    """Return Python's words and position as they lie in memory: the position first."""
    return state[-1].to_bytes(4, sys.byteorder) + struct.pack(f"{BLOCK}I", *state[:-1])


class NumpyTwisterStream(_TwisterStream):
    """NumPy's Mersenne Twister, under a `RandomState` or a `Generator`; its mark: words, position, second normal."""

    def __init__(self, generator: Any) -> None:
        """Take the generator."""
        self._generator, self._is_legacy = generator, hasattr(generator, "get_state")
        self._bits: Any = None
        self._address = 0
        self._known: tuple[bytes, Any] = (b"", (1, 0.0))  # where it stood when that was asked or set last

    def read(self) -> StreamState:
        """Return where the generator stands; 50 us only where it has moved since it was asked last."""
        bits = self._generator._bit_generator
        if type(bits) is not sys.modules["numpy"].random.MT19937:  # set anew: never as predicted
            return StreamState((bytes(KEY_BYTES + 4), pickle.dumps(bits.state)))
        if bits is not self._bits:
            self._bits, self._address = bits, int(bits.ctypes.state_address)
        packed = ctypes.string_at(self._address, KEY_BYTES + 4)
        if not self._is_legacy:
            return StreamState((packed, None))
        if packed != self._known[0] or self._known[1][0]:  # a second normal number may be taken without a word
            state = self._generator.get_state(legacy=False)
            self._known = packed, (state["has_gauss"], state["gauss"])
        return StreamState(self._known)

    def write(self, state: StreamState) -> None:
        """Let the generator stand there."""
        packed, second = state.mark
        key = sys.modules["numpy"].frombuffer(packed, "u4", BLOCK)
        position = int.from_bytes(packed[-4:], sys.byteorder)
        if self._is_legacy and not (self._known[1][0] or second[0]) and self._stands_at(self._known[0]):
            with self._bits.lock:  # 1 us in place of 40
                ctypes.memmove(self._address, packed, len(packed))
            self._known = state.mark
        elif self._is_legacy:
            self._generator.set_state(("MT19937", key, position, *second))
        else:
            self._generator.bit_generator.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}

    def _stands_at(self, packed: bytes) -> bool:
        bits = self._generator._bit_generator
        return bits is self._bits and ctypes.string_at(self._address, len(packed)) == packed

    @staticmethod
    def _split(mark: Any) -> tuple[bytes, int, Any]:
        return mark[0][:-4], int.from_bytes(mark[0][-4:], sys.byteorder), mark[1]

    @staticmethod
    def _joined(mark: Any, key: bytes, position: int) -> Any:
        return key + position.to_bytes(4, sys.byteorder), mark[1]


class TorchStream(_TwisterStream):
    """torch's generator on the CPU; its mark: seed (8 bytes), left (4), seeded (4), next (8), 624 words of 8, rest."""

    _WORDS = 24
    _REST = _WORDS + 8 * BLOCK

    def __init__(self, generator: Any) -> None:
        """Take the generator."""
        self._generator = generator

    def read(self) -> StreamState:
        """Return where the generator stands."""
        return StreamState(self._generator.get_state().numpy().tobytes())

    def write(self, state: StreamState) -> None:
        """Let the generator stand there."""
        torch = sys.modules["torch"]
        self._generator.set_state(torch.frombuffer(bytearray(state.mark), dtype=torch.uint8))

    @classmethod
    def _split(cls, mark: Any) -> tuple[bytes, int, Any]:
        left = int.from_bytes(mark[8:12], sys.byteorder)
        words = sys.modules["numpy"].frombuffer(mark, "u8", BLOCK, cls._WORDS).astype("u4")
        return words.tobytes(), BLOCK + 1 - left, (mark[:8], mark[cls._REST :])

    @classmethod
    def _joined(cls, mark: Any, key: bytes, position: int) -> Any:
        words = sys.modules["numpy"].frombuffer(key, "u4").astype("u8").tobytes()
        place = (BLOCK + 1 - position).to_bytes(4, sys.byteorder) + mark[12:16] + position.to_bytes(8, sys.byteorder)
        return bytes(mark[:8]) + place + words + bytes(mark[cls._REST :])

    def residue(self, before: StreamState, after: StreamState) -> int | None:
        """Return the number of words modulo 624."""
        one, other = before.mark, after.mark
        if one[self._REST :] != other[self._REST :]:
            return None
        return (int.from_bytes(one[8:12], sys.byteorder) - int.from_bytes(other[8:12], sys.byteorder)) % BLOCK


class CongruenceStream(RandomStream):
    """NumPy's PCG64; its mark: state, increment, and the half of a word that was not used yet, if any."""

    def __init__(self, generator: Any) -> None:
        """Take the generator."""
        self._bits = generator.bit_generator
        self._kind = type(self._bits).__name__
        self._multiplier = _MULTIPLIERS[self._kind]

    def read(self) -> StreamState:
        """Return where the generator stands."""
        state = self._bits.state
        half = state["uinteger"] if state["has_uint32"] else None
        return StreamState((state["state"]["state"], state["state"]["inc"], half), state["uinteger"])

    def write(self, state: StreamState) -> None:
        """Let the generator stand there."""
        number, increment, half = state.mark
        self._bits.state = {
            "bit_generator": self._kind,
            "state": {"state": number, "inc": increment},
            "has_uint32": int(half is not None),
            "uinteger": state.spent if half is None else half,
        }

    def words(self, before: StreamState, after: StreamState) -> int | None:
        """Return how many words lead from one state to another."""
        if before.mark[1:] != after.mark[1:]:
            return None
        return lcg_words(before.mark[0], after.mark[0], before.mark[1], self._multiplier)

    def advanced(self, state: StreamState, words: int) -> StreamState:
        """Return the state that so many words lead to."""
        number, increment, half = state.mark
        return StreamState((lcg_advanced(number, increment, self._multiplier, words), increment, half), state.spent)


class OtherStream(RandomStream):
    """Any other generator whose state can be read and set: it is followed, and not predicted."""

    def __init__(self, generator: Any) -> None:
        """Take the generator."""
        self._get, self._set = access(generator)
        self.read()

    def read(self) -> StreamState:
        """Return where the generator stands."""
        return StreamState(pickle.dumps(self._get()))

    def write(self, state: StreamState) -> None:
        """Let the generator stand there."""
        self._set(pickle.loads(state.mark))

    def words(self, before: StreamState, after: StreamState) -> int | None:
        """Return 0 where nothing was drawn."""
        return 0 if before.mark == after.mark else None

    def advanced(self, state: StreamState, words: int) -> StreamState:
        """Return the state itself."""
        return state


def stream_of(generator: Any) -> RandomStream:
    """Return the stream of a generator of Python, NumPy or torch."""
    torch, numpy = sys.modules["torch"], sys.modules["numpy"]
    if type(generator) is random.Random:
        return PythonStream(generator)
    if isinstance(generator, torch.Generator):
        return TorchStream(generator)
    bits = getattr(generator, "_bit_generator", None) or getattr(generator, "bit_generator", None)
    legacy = isinstance(generator, numpy.random.RandomState)
    if type(bits) is numpy.random.MT19937:
        return NumpyTwisterStream(generator)
    if not legacy and type(bits).__name__ in _MULTIPLIERS:
        return CongruenceStream(generator)
    return OtherStream(generator)


def unpredictable(generators: Iterable[Any]) -> str:
    """Return why batches that draw from these generators stay in this process, an empty string for nothing."""
    torch = sys.modules["torch"]
    if "numpy" not in sys.modules:
        return "draws random numbers, and without NumPy nobody counts how many"
    for one in generators:
        if isinstance(one, torch.Generator) and one.device.type != "cpu":
            return f"draws from a random generator on {one.device}"
        if isinstance(one, random.SystemRandom):
            return "draws from the system's random generator"
    return ""


class StreamSet:
    """The streams of one process that a data set may draw from: Python's, torch's, NumPy's, and those that it holds."""

    def __init__(self, generators: Iterable[Any]) -> None:
        """Take the process's own and `generators`, each once."""
        found = {id(one): one for one in (*shared_streams(), *generators)}
        self._streams = [stream_of(one) for one in found.values()]

    def read(self) -> tuple[StreamState, ...]:
        """Return where they stand."""
        return tuple([each.read() for each in self._streams])

    def write(self, states: Sequence[StreamState], now: Sequence[StreamState] | None = None) -> None:
        """Let them stand there; `now`: where they stand, for those that stand there already."""
        for number, (each, state) in enumerate(zip(self._streams, states, strict=True)):
            if now is None or now[number] != state:
                each.write(state)

    @staticmethod
    def settled(
        now: Sequence[StreamState], start: Sequence[StreamState], end: Sequence[StreamState]
    ) -> tuple[StreamState, ...]:
        """Return `end`, which another process reached from `start`, as this one reaches it from `now`."""
        ways = zip(now, start, end, strict=True)
        return tuple([to._replace(spent=here.spent) if to.spent == there.spent else to for here, there, to in ways])

    def words(self, before: Sequence[StreamState], after: Sequence[StreamState]) -> WordCounts | None:
        """Return how many words each gave between two states, None where that is not known of one."""
        found: list[int] = []
        for each, one, other in zip(self._streams, before, after, strict=True):
            count = each.words(one, other)
            if count is None:
                return None
            found.append(count)
        return tuple(found)

    def words_of_each(self, before: Sequence[StreamState], after: Sequence[StreamState]) -> tuple[int | None, ...]:
        """Return how many words each gave between two states, None for those of which that is not known."""
        ways = zip(self._streams, before, after, strict=True)
        return tuple([each.words(one, other) for each, one, other in ways])

    def advanced(self, states: Sequence[StreamState], words: WordCounts) -> tuple[StreamState, ...]:
        """Return the states that so many words lead to."""
        ways = zip(self._streams, states, words, strict=True)
        return tuple([each.advanced(state, count) for each, state, count in ways])

    def residues(self, before: Sequence[StreamState], after: Sequence[StreamState]) -> tuple[int | None, ...]:
        """Return what is equal where equally many words were drawn."""
        ways = zip(self._streams, before, after, strict=True)
        return tuple([each.residue(one, other) for each, one, other in ways])


def at_one_place(states: Sequence[StreamState], others: Sequence[StreamState]) -> bool:
    """Return whether two states of all streams are the same, to the last bit that will be used."""
    return all(one.mark == other.mark for one, other in zip(states, others, strict=True))
