"""Whether each row of a batch is its sample's alone: samples are collated by themselves, and held against the batch.

A function that pads to the longest sample gives rows of one length wherever each batch happens to have a long one; what
is kept of them would be wrong in a batch that has none.
"""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data.dataloader import default_collate

from flatout.pipeline.cache.batch_layout import Layout, layout_of
from flatout.pipeline.cache.numpy_collate import quicker
from flatout.watch.dataset_state import same
from flatout.watch.refused_writes import in_words
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard

__all__ = ["DEPENDS", "DRAWS", "RowIndependence", "rows_equal"]

DEPENDS = "a row of its batches depends on the other samples, or changes from call to call"
DRAWS = "random numbers are drawn while a batch is made"

_TRIED = 8
"""Samples of each batch. Where one in five is shorter than the rest, 20 batches leave 1 in 10^15 that none is tried;
where they are too few to be met so, there is hardly ever a batch of nothing else."""
_TRIED_BYTES = 16 * 1024**2  # of rows of each batch, but for two samples
_ALWAYS, _SHARE = 32, 0.05  # batches of which samples are tried in any case; then it may take this part of the time


class RowIndependence:
    """A collate function; `against` says what speaks against keeping what it gave last row by row, "" for nothing.

    Samples that are collated by themselves are copies, and what the function changes meanwhile is put back, random
    streams too: all that is the script's is as it would be.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        """Take the script's function; nothing is tried of torch's own, which stacks."""
        self._collate = quicker(collate)
        self.stacks = collate is default_collate  # what it gives is its own, and each row is its sample's
        self._turn, self._tried = 0, 2
        self._began = self._spent_s = 0.0
        self.against = ""

    def __call__(self, samples: Any) -> Any:
        """Return the batch of `samples`."""
        if self.stacks or self.against or not isinstance(samples, list) or len(samples) < 2 or not self._due():
            return self._collate(samples)
        start, number = time.perf_counter(), len(samples)
        places = sorted({(self._turn + number * each // self._tried) % number for each in range(self._tried)})
        try:
            some = [copy.deepcopy(samples[place]) for place in places]
        except any_but_signals() as error:  # a stranger's sample
            some, self.against = [], f"copying a sample raised {type(error).__name__}"
        copied = time.perf_counter()
        batch = self._collate(samples)
        made = time.perf_counter()
        found = layout_of(batch, number)
        if found is not None and some:
            self._tried = max(2, min(_TRIED, _TRIED_BYTES // max(1, found[0].num_bytes)))
            with StateGuard(self._collate) as untouched:
                self.against = self._compared(some, places, *found)
            self.against = self.against or (DEPENDS if untouched.changed or untouched.drew else "")
        self._spent_s += time.perf_counter() - made + copied - start
        return batch

    def _due(self) -> bool:
        self._turn += 1
        now = time.perf_counter()
        self._began = self._began or now
        return self._turn <= _ALWAYS or self._spent_s < _SHARE * (now - self._began)

    def _compared(self, some: list[Any], places: list[int], layout: Layout, parts: list[Any]) -> str:
        """Compare the form of each of `some` with that of the batch, and the values of one."""
        try:
            for sample, place in zip(some, places, strict=True):
                found = layout_of(self._collate([sample]), 1)
                if found is None or (found[0].skeleton, found[0].rows) != (layout.skeleton, layout.rows):
                    return DEPENDS
                if place == places[0] and not rows_equal(found[1], parts, [place]):
                    return DEPENDS
        except any_but_signals() as error:  # a stranger's function on a batch of a size that it may never have seen
            return f"its collate function {in_words(error, message=False)} on 1 sample"
        return ""


def rows_equal(made: Sequence[Any], whole: Sequence[Any], places: list[int]) -> bool:
    """Return whether the parts `made` are those of `whole` at `places`, bit for bit."""
    if len(made) != len(whole):
        return False
    for one, part in zip(made, whole, strict=True):
        wanted = [part[place] for place in places] if isinstance(part, list) else part[places].contiguous()
        if not same(one.contiguous() if isinstance(one, torch.Tensor) else one, wanted):
            return False
    return True
