"""Whether code that reads a sample names what draws from a global random stream: such a draw may come seldom.

A few samples that are tried need not show it. Where samples are read by threads before their batch is due, it would
come earlier than the script's own, among other numbers. This goes by names: what installed packages draw inside of
their own functions is not seen.
"""

import random
import sys
import types
from collections.abc import Iterator
from typing import Any

from flatout.watch.components import is_filled, names_in
from flatout.watch.dataset_state import parts
from flatout.watch.script_signals import any_but_signals

__all__ = ["names_draws"]

_ITEM = ("__getitem__", "__getitems__")
_READING = {*_ITEM, "__call__", "forward"}
_DRAWING = {
    "random", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "normal",
    "multinomial", "poisson", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "rvs",
    "random_", "uniform_", "dropout", "rsample", "distributions",
}  # fmt: skip
_OWN = {"RandomState", "default_rng", "Generator", "Random"}  # what is drawn where one is made is taken to be from it
_BOUND = (types.BuiltinMethodType, types.MethodType)


def names_draws(dataset: Any) -> bool:
    """Return whether code that reads samples of `dataset` names a draw; True, too, where that cannot be told.

    Looked at are methods that read, of it and of what it holds, and functions and methods that those name. A name that
    is something else here, as `self.random` may be, counts: it is for what is safe only where nothing is drawn.
    """
    try:
        return any(map(_draws, _reading(list(parts(dataset)))))
    except any_but_signals():  # a stranger's objects, looked at
        return True


def _reading(found: list[Any]) -> Iterator[types.FunctionType]:
    """Yield the functions that a sample is read with, as far as they are the script's own."""
    methods = [vars(kind).get(name) for each in found for kind in type(each).__mro__[:3] for name in _ITEM]
    functions = {id(one): one for one in (*found, *methods) if isinstance(one, types.FunctionType)}
    owners = [each.__dict__ for each in found if type(getattr(each, "__dict__", None)) is dict and not _is_module(each)]
    held = [(name, id(value)) for own in owners for name, value in own.items() if id(value) in functions]
    named = held + [(one.__name__, key) for key, one in functions.items()]
    reached = {key for key, one in functions.items() if one.__name__ in _READING}
    todo = list(reached)
    while todo:
        function = functions[todo.pop()]
        yield function
        names = names_in(function.__code__)
        called = names.read | names.attributes
        inside = {id(value) for value in _globals(function)} | {id(cell) for cell in _closed_over(function)}
        new = {key for name, key in named if name in called} | (inside & functions.keys())
        todo += new - reached
        reached |= new


def _is_module(thing: Any) -> bool:
    return isinstance(thing, types.ModuleType)


def _globals(function: types.FunctionType) -> list[Any]:
    return [function.__globals__.get(name) for name in names_in(function.__code__).read]


def _closed_over(function: types.FunctionType) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]


def _draws(function: types.FunctionType) -> bool:
    """Return whether a function names a draw, or a global stream's module or function under any name."""
    numpy = sys.modules.get("numpy")
    modules = {random} if numpy is None else {random, numpy.random}
    kinds = (random.Random,) if numpy is None else (random.Random, numpy.random.RandomState)
    names, seen = names_in(function.__code__), [*_globals(function), *_closed_over(function)]
    if {each.__name__ for each in modules} & names.imported:
        return True
    if any(_is_module(one) and one in modules for one in seen):
        return True
    if any(isinstance(one, _BOUND) and isinstance(one.__self__, kinds) for one in seen):
        return True
    called = names.read | names.attributes
    return bool(_DRAWING & called) and not _OWN & called
