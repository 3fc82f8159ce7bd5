"""Whether code that reads a sample names what draws from a global random stream: such a draw may come seldom.

A few samples that are tried need not show it. Where samples are read by threads before their batch is due, it would
come earlier than the script's own, among other numbers.
"""

import random
import sys
import types
from collections.abc import Iterable
from typing import Any

from flatout.pipeline.dataset_state import parts
from flatout.pipeline.reach import names_in

__all__ = ["names_draws"]

_READING = {"__getitem__", "__getitems__"}
_DRAWING = {
    "random", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli",
    "multinomial", "poisson", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_",
    "random_", "uniform_", "dropout",
}  # fmt: skip
_OWN = {"RandomState", "default_rng", "Generator", "Random"}  # what is drawn where one is made is taken to be from it


def names_draws(dataset: Any) -> bool:
    """Return whether code that reads samples of `dataset` names a draw: its own methods, and functions that it holds.

    Methods count where one that reads names them. A name that is something else here, as `self.random` may be, counts,
    too: it is for what is safe only where nothing is drawn.
    """
    found = list(parts(dataset))
    methods = [vars(kind).get(name) for each in found for kind in type(each).__mro__[:3] for name in _READING]
    functions = {id(one): one for one in (*found, *methods) if isinstance(one, types.FunctionType)}
    reached = {key for key, one in functions.items() if one.__name__ in _READING or not _is_method(one)}
    todo = list(reached)
    while todo:
        function = functions[todo.pop()]
        names = names_in(function.__code__)
        called = names.read | names.attributes
        drawing = _DRAWING & called and not _OWN & called
        if drawing or _draw(function.__globals__.get(name) for name in names.read):
            return True
        new = [key for key, one in functions.items() if key not in reached and one.__name__ in called]
        reached.update(new)
        todo += new
    return False


def _is_method(function: types.FunctionType) -> bool:
    owner = function.__qualname__.rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


def _draw(things: Iterable[Any]) -> bool:
    """Return whether one of some globals is a function of a global stream under another name."""
    numpy = sys.modules.get("numpy")
    kinds = (random.Random,) if numpy is None else (random.Random, numpy.random.RandomState)
    return any(isinstance(getattr(one, "__self__", None), kinds) for one in things)
