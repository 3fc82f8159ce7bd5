"""Arguments and results of calls as leaves of a tree, by torch's own trees; the plainest ones without walking them.

Two trees of one form have the same structure object where they are plain, so that comparing them takes no time.
"""

from operator import is_
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["flattened", "left_as_given", "put_together", "words_of"]

_LEAVES = (torch.Tensor, bool, int, float, str, type(None))  # exactly these: nobody has made trees of them
_MOST = 8
_ONE = tree_flatten(0)[1]
_CALLS = [tree_flatten(((0,) * number, {}))[1] for number in range(_MOST)]  # with that many plain arguments
_NUMBERS = {id(structure): number for number, structure in enumerate(_CALLS)}
_WORDS = {id(structure): repr(structure) for structure in (_ONE, *_CALLS)}


def flattened(value: Any) -> tuple[list[Any], Any]:
    """Return the leaves of a result, or of the arguments `(args, kwargs)` of a call, and their structure."""
    if type(value) in _LEAVES:
        return [value], _ONE
    if type(value) is tuple and len(value) == 2 and type(value[0]) is tuple and type(value[1]) is dict:
        args = value[0]
        if not value[1] and len(args) < _MOST and all(type(one) in _LEAVES for one in args):
            return list(args), _CALLS[len(args)]
    return tree_flatten(value)


def put_together(leaves: list[Any], structure: Any) -> Any:
    """Return the value that has these leaves."""
    if structure is _ONE:
        return leaves[0]
    number = _NUMBERS.get(id(structure))
    return (tuple(leaves), {}) if number == len(leaves) else tree_unflatten(leaves, structure)


def left_as_given(args: Any, kwargs: Any, leaves: list[Any], structure: Any) -> bool:
    """Return whether lists and tables among the arguments still hold what was put together."""
    if id(structure) in _NUMBERS:
        return True
    now, form = tree_flatten((args, kwargs))
    return bool(form == structure) and all(map(is_, now, leaves))


def words_of(structure: Any) -> str:
    """Return a structure in words."""
    return _WORDS.get(id(structure)) or repr(structure)
