"""How many hold the memory of a tensor: views, arrays, graphs, another tensor made of it."""

import sys
from collections.abc import Callable

import torch

__all__ = ["can_count_holders", "holders", "holders_of_one"]

# Torch's own count of a storage's holders: https://github.com/pytorch/pytorch/pull/155451; before, CUDA builds only.
_num_holders: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


def can_count_holders() -> bool:
    """Return whether this version of torch tells how many hold a tensor's memory."""
    return _num_holders is not None


def holders(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Return how often Python refers to a storage's object, and torch to the storage.

    The numbers say something only beside those of a storage that is held as one knows, counted in the same way.
    """
    assert _num_holders is not None
    return sys.getrefcount(storage), _num_holders(storage._cdata)


def holders_of_one(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the same for the storage of a tensor."""
    return holders(tensor.untyped_storage())
