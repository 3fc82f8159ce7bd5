"""Whether batches that were kept are those that the data set gives."""

from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.dataset_state import random_states, restore_random_states, same, seed_streams
from flatout.pipeline.examination import ask

__all__ = ["agree"]

_SEED = 4099


def agree(dataset: Any, collate: Callable[[Any], Any], take: Callable[[torch.Tensor], Any], indices: list[int]) -> bool:
    """Return whether `take` gives for `indices` what `dataset`, asked again, gives from the same random state.

    Random streams are put back to where they stood.

    Raises:
        Exception: whatever the data set or the collate function raises.
    """
    before = random_states()
    try:
        seed_streams(_SEED)
        plain = collate(ask(dataset, indices, put_back=False))
        seed_streams(_SEED)
        return same(plain, take(torch.tensor(indices)))
    finally:
        restore_random_states(before)
