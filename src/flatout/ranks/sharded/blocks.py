"""A model in blocks: modules so small that the parameters of one at a time are put together."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import ModuleDict, ModuleList, Sequential

__all__ = ["blocks_of"]

_OF_REPEATED = 2  # an element of a list is a block up to this part of the model
_OF_OTHERS = 8


def blocks_of(root: Any, size_of: Callable[[Any], int]) -> list[Any]:
    """Return the modules in `root` whose parameters are put together for as long as a call of them runs.

    `size_of` says how much of a module's parameters is shared out. What is in no block is put together for the whole
    call of `root`.
    """
    total, found, seen = size_of(root), dict[int, Any](), set[int]()

    def look(module: Any) -> None:
        repeated = isinstance(module, (ModuleList, ModuleDict, Sequential))
        for child in module.children():
            size = size_of(child)
            if not size or id(child) in seen:
                continue
            seen.add(id(child))
            small = size * (_OF_REPEATED if repeated else _OF_OTHERS) <= total
            called = not isinstance(child, (ModuleList, ModuleDict))
            if called and (small or _is_compiled(child) or next(child.children(), None) is None):
                found[id(child)] = child
            else:
                look(child)

    if not _is_compiled(root):
        look(root)
    return list(found.values())


def _is_compiled(module: Any) -> bool:
    """Return whether calls of the modules in this one are compiled into its own."""
    if isinstance(module, torch.jit.ScriptModule):
        return True
    return "_orig_mod" in vars(module).get("_modules", {}) or vars(module).get("_compiled_call_impl") is not None
