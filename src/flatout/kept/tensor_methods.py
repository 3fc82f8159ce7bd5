"""Methods of tensors that code names: whether they are still those that it ran with."""

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import torch

from flatout.kept.library_functions import without_ours

__all__ = ["tensor_methods"]


def tensor_methods(codes: Iterable[CodeType]) -> Callable[[], str]:
    """Return what names a method of `torch.Tensor` that is another one by now, "" for none; flatout's own count not."""
    names = {name for code in codes for name in code.co_names}
    kept = [(name, getattr(torch.Tensor, name)) for name in sorted(names) if hasattr(torch.Tensor, name)]
    before = [(name, method) for name, method in kept if getattr(torch.Tensor, name) is method]  # no bound ones

    def changed() -> str:
        for name, method in before:
            now: Any = getattr(torch.Tensor, name, None)
            if now is not method and without_ours(now) is not without_ours(method):
                return f"torch.Tensor.{name}"
        return ""

    return changed
