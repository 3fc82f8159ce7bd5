"""A pipeline as it is and compiled, each built anew and from the same seed: what a training sees of the two."""

import random

import numpy as np
import torch
from tests.unit.pipeline.programs import _copied, _spoil
from torch.utils.data import DataLoader

from flatout.pipeline import compile_loader
from flatout.watch.dataset_state import random_states, same

OPTIONS = {"batch_size": 6, "shuffle": True}


def seed():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def seen(build, wrap, between=None, passes=3, **options):
    """Return every batch and the random states after each pass; `between(number, dataset)` is called before each."""
    seed()
    dataset, own = build()
    loader = wrap(DataLoader(dataset, **OPTIONS | own | options))
    seed()
    made = []
    for number in range(passes):
        if between is not None:
            between(number, dataset)
        for batch in loader:
            made += [_copied(batch), torch.rand(2)]
            _spoil(batch)
        made.append([np.asarray(state[1] if isinstance(state, tuple) else state) for state in random_states()])
    return made, loader


def compared(build, between=None, passes=3, **options):
    """Return what `explain` says, once every batch and every random stream of `build`'s loader were seen to be equal.

    `build()` returns a data set and options of a DataLoader beyond `OPTIONS`; `options` go over both.
    """
    plain, _ = seen(build, lambda loader: loader, between, passes, **options)
    ours, loader = seen(build, compile_loader, between, passes, **options)
    assert len(plain) == len(ours)
    for place, (one, other) in enumerate(zip(plain, ours, strict=True)):
        assert same(one, other), f"{place} of {len(plain)}: {loader.explain()}"
    return loader.explain()
