"""The random streams of this process: taken down, put back, and begun alike on all ranks."""

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.probe.core.seams import Seams, dressed

__all__ = ["Streams", "begin_alike", "is_generator", "put_back", "same_streams", "state_of", "taken"]


def is_generator(value: Any) -> bool:
    """Return whether a value is a stream of random numbers of its own, with a state that can be taken."""
    numpy = sys.modules.get("numpy.random")
    kinds = (random.Random, torch.Generator, *((numpy.Generator, numpy.RandomState) if numpy else ()))
    return isinstance(value, kinds) and not isinstance(value, random.SystemRandom)


def taken(owned: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the states of all streams that have no owner, and of those that are `owned` by the script."""
    numpy = sys.modules.get("numpy")
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    own = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
    return *own, devices, [state_of(one) for one in owned]


def put_back(states: tuple[Any, ...], owned: Sequence[Any] = ()) -> None:
    """Set the streams to where they were."""
    own, python, of_numpy, devices, of_owned = states
    torch.set_rng_state(own)
    random.setstate(python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)
    if devices:
        torch.cuda.set_rng_state_all(devices)
    for one, state in zip(owned, of_owned, strict=True):
        _set_state(one, state)


class Streams:
    """All streams at one moment, with those that the script owns."""

    def __init__(self, owned: Sequence[Any] = ()) -> None:
        """Take down where they are."""
        self._owned = owned
        self._states = taken(owned)

    def now(self) -> tuple[Any, ...]:
        """Return the states of the same streams as they are now."""
        return taken(self._owned)

    def put_back(self) -> None:
        """Set them to where they were."""
        put_back(self._states, self._owned)


def state_of(generator: Any) -> Any:
    """Return where a generator stands."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    bits = getattr(generator, "bit_generator", None)  # of NumPy's newer kind
    return generator.get_state() if bits is None else bits.state


def _set_state(generator: Any, state: Any) -> None:
    bits = getattr(generator, "bit_generator", None)
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif bits is None:
        generator.set_state(state)
    else:
        bits.state = state


def same_streams(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two states are one."""
    return _same_state(one[:3], other[:3]) and all(map(_same_state, one[3], other[3])) and _same_state(one[4], other[4])


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same_state, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_state(value, other[key]) for key, value in one.items())
    return bool(one.tobytes() == other.tobytes()) if hasattr(one, "tobytes") else bool(one == other)


def begin_alike(seams: Seams, seed: int) -> random.Random:
    """Begin all streams, which a plain process begins anywhere, at the same place on all ranks.

    Return the one that seeds of generators without a seed are drawn from.
    """
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)  # of devices that are in use later, too
    fresh = random.Random(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)

    def seeded(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
            return original(fresh.getrandbits(64) if seed is None else seed, *args, **kwargs)

        return dressed(begin, original)

    seams.replace(random, "seed", seeded(random.seed))  # a method of an object that has no name
    if numpy is not None:
        seams.replace(numpy.random, "default_rng", seeded(numpy.random.default_rng))
    return fresh
