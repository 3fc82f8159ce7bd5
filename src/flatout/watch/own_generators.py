"""Random generators that a data set holds, besides the global ones: where they stand."""

import pickle
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flatout.watch.components import is_generator, parts

__all__ = ["GeneratorState", "access", "generators_in", "mark_of", "restore_states", "states_of"]


def generators_in(thing: Any) -> list[Any]:
    """Return the generators among the parts of `thing`."""
    return [part for part in parts(thing) if is_generator(part)]


def access(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return what reads the state of a generator, and what sets it."""
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    if isinstance(generator, sys.modules["torch"].Generator):
        return generator.get_state, generator.set_state
    bits = getattr(generator, "bit_generator", None) or generator._bit_generator
    return lambda: bits.state, lambda state: setattr(bits, "state", state)


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """Where a generator stands; states are equal when their marks are."""

    mark: bytes
    value: Any = field(compare=False)


def states_of(generators: Sequence[Any]) -> list[GeneratorState]:
    """Return where generators stand."""
    values = [access(each)[0]() for each in generators]
    return [GeneratorState(mark_of(value), value) for value in values]


def mark_of(state: Any) -> bytes:
    """Return what is equal for equal states; what pickle makes of a tensor names the memory that it lies in."""
    return state.numpy().tobytes() if isinstance(state, sys.modules["torch"].Tensor) else pickle.dumps(state)


def restore_states(generators: Sequence[Any], states: Sequence[GeneratorState]) -> None:
    """Put generators back to where they stood."""
    for each, state in zip(generators, states, strict=True):
        access(each)[1](state.value)
