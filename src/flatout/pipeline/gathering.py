"""Batches of which everything is kept, and nothing is left to do but to gather: the shortest way to them.

A batch of 64 images of 28x28 is gathered in 32 us; asking each time whether everything is there, and what is to be done
to it, takes as long as a third of that.
"""

from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.keeping import Keeping

__all__ = ["gathering"]


def gathering(keeping: Keeping) -> Callable[[torch.Tensor], Any] | None:
    """Return a function from indices to their batch, None where that is not all known, or more is to be done.

    It does what `keeping.take` does, as long as `keeping` stays as it is.
    """
    store, maker, layout = keeping.store, keeping.maker, keeping.layout
    if type(keeping) is not Keeping or store is None or layout is None or not keeping.full:
        return None
    if maker is not None and not maker.keeps_all:
        return None
    build = layout.build if maker is None else maker.layout.build
    reads = store.reads
    if reads is None:
        return None
    return lambda indices: build([read(indices) for read in reads])
