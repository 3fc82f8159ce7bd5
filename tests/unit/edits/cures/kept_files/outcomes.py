"""What a script's data set gives, run as it is written."""

import random
from collections.abc import Callable


def outcome(text: str, paths, between: Callable[[int], None] | None = None, turns: int = 2, count: int = 20):
    """Return what every sample of two epochs is in words, or its error, with the state of the generators behind it.

    `between` is called after each epoch.
    """
    import numpy
    import torch

    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    space: dict = {"__name__": "train"}
    found = []
    exec(compile(text, "train.py", "exec"), space)
    data = space["Data"](list(paths))
    for turn in range(turns):
        for index in range(count):
            try:
                found.append(shown(space.get("used", lambda x: x)(data[index])))
            except Exception as error:
                found.append((type(error), getattr(error, "errno", 0), str(getattr(error, "filename", error))))
        if between is not None:
            between(turn)
    states = (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    return found, states, space


def shown(value) -> object:
    """Return a value as something that can be compared, types and strides with it."""
    import numpy
    import torch

    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), value.stride(), value.tolist())
    if isinstance(value, numpy.ndarray):
        return ("array", str(value.dtype), value.strides, value.flags.writeable, value.tolist())
    if isinstance(value, list | tuple):
        return (type(value), [shown(each) for each in value])
    return (type(value), repr(value))


def hits(space) -> int:
    """Return how often something came from memory."""
    kept = [each for name, each in space.items() if hasattr(each, "cache_info")]
    return sum(each.cache_info().hits for each in kept)
