"""The random streams of this process: taken down, put back, and begun alike on all ranks."""

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.probe.core.seams import Seams, dressed
from flatout.ranks.fitness import is_of_torch
from flatout.ranks.held_state import HeldState, set_state, state_of
from flatout.ranks.named_values import NamedValues, is_own

__all__ = ["begin_alike", "put_back", "remembered", "same_streams", "taken"]

_OF_MODULES = frozenset(vars(torch.nn.Module()))
_MOST_BYTES = 1 << 20  # of tensors and arrays in attributes, which are copied before each call


def taken(generators: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the states of all streams that have no owner, and of `generators`."""
    numpy = sys.modules.get("numpy")
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    of_numpy = numpy.random.get_state() if numpy else None
    return torch.get_rng_state(), random.getstate(), of_numpy, devices, list(map(state_of, generators))


def put_back(states: tuple[Any, ...], generators: Sequence[Any] = ()) -> None:
    """Set the streams, and the `generators` whose states were taken with them, to where they were."""
    own, python, of_numpy, devices, of_generators = states
    torch.set_rng_state(own)
    random.setstate(python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)
    if devices:
        torch.cuda.set_rng_state_all(devices)
    for generator, state in zip(generators, of_generators, strict=True):
        set_state(generator, state)


def remembered(modules: Sequence[Any], objects: Sequence[Any], named: NamedValues) -> Callable[[], None]:
    """Return what puts streams, and all that a call may change, back to what they are.

    `modules`: a module and its parts; `objects`: arguments that are no tensors; `named`: what the code names.
    """
    own = [vars(one) for one in modules if not is_of_torch(one)]
    held = [value for table in own for name, value in table.items() if name not in _OF_MODULES]
    tables = [(table, dict(table)) for table in (*own, *(one._buffers for one in modules if one._buffers))]
    inner, plain = HeldState([*held, *objects, *named.mutable()], is_own, _MOST_BYTES), named.plain_kept()
    states = taken(inner.generators)
    buffers = [(each, each.detach().clone()) for one in modules for each in one._buffers.values() if each is not None]

    def back() -> None:
        inner.put_back()
        plain()
        for table, before in tables:
            table.clear()
            table.update(before)
        put_back(states, inner.generators)
        with torch.no_grad():
            for each, before in buffers:
                each.copy_(before)

    return back


def same_streams(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two states are one."""
    numpy_alike = one[2] is None or other[2] is None or (
        bool((one[2][1] == other[2][1]).all()) and one[2][2:] == other[2][2:]
    )  # fmt: skip
    devices = all(torch.equal(a, b) for a, b in zip(one[3], other[3], strict=False))
    own = len(one[4]) == len(other[4]) and all(map(_alike, one[4], other[4]))
    return torch.equal(one[0], other[0]) and one[1] == other[1] and numpy_alike and devices and own


def _alike(one: Any, other: Any) -> bool:
    """Return whether two states of a generator are one: tensors, tuples, tables with arrays in them."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    return bool((one == other).all()) if hasattr(one, "tobytes") else bool(one == other)


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
