"""The random streams of this process: taken down, put back, and begun alike on all ranks."""

import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from flatout.probe.core.seams import Seams, dressed

__all__ = ["begin_alike", "put_back", "remembered", "same_streams", "taken"]


def taken() -> tuple[Any, ...]:
    """Return the states of all streams that have no owner."""
    numpy = sys.modules.get("numpy")
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None, devices


def put_back(states: tuple[Any, ...]) -> None:
    """Set the streams to where they were."""
    own, python, of_numpy, devices = states
    torch.set_rng_state(own)
    random.setstate(python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)
    if devices:
        torch.cuda.set_rng_state_all(devices)


def remembered(module: Any) -> Callable[[], None]:
    """Return what puts streams and the buffers of `module` back to where they are now."""
    states = taken()
    buffers = [(each, each.detach().clone()) for each in module.buffers()]

    def back() -> None:
        put_back(states)
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
    return torch.equal(one[0], other[0]) and one[1] == other[1] and numpy_alike and devices


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
