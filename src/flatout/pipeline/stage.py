"""Which stage of samples is kept: of what operations make, the latest that is worth the memory it takes."""

import time

import torch

from flatout.pipeline.dataset_state import random_states, restore_random_states
from flatout.pipeline.examination import some_indices
from flatout.pipeline.maker import Maker
from flatout.pipeline.store import Store

__all__ = ["worth_keeping"]

_MUCH, _TIMES = 1024**3, 2  # fresh memory is dear: 10,000 images of 224x224 as 5.6 GiB of float32 made a first pass 0.4
# times as fast as the plain loader, as bytes 1.3 times; later passes gave 13.0k and 8.4k a second (2 cores, n=2)
_SOME_MEMORY = 256 * 1024**2  # below, fresh memory takes less than 0.15 s
_TIMES_LESS = 4  # an earlier stage takes
_TIMES_AS_LONG = 1.75  # a batch made of it: of images of 32x32 resized to 224, 1.2 to 1.6 times as long (n=8, one core
# and two); their first pass takes half as long, so that the later stage would be ahead after five passes more
_TRIED, _TIMES_EACH, _TURNS = 16, 4, 5  # samples, each several times in a batch, and batches


def worth_keeping(maker: Maker, alone: bool) -> int:
    """Return the latest stage worth keeping; `maker` keeps another one afterwards.

    Of much memory, not what bytes become by work on each of them alone. And nothing of which a small part, as it was
    before, makes batches about as fast: that is timed, where no other process has to find the same (`alone`).
    """
    last, before = maker.num_stages - 1, maker.before_pointwise
    latest = last
    if 0 < before < last:
        much, less = _num_bytes(maker, last), _num_bytes(maker, before)
        latest = before if much > _MUCH and much >= _TIMES * less else last
    if not alone or not latest or _num_bytes(maker, latest) < _SOME_MEMORY:
        return latest
    most = _num_bytes(maker, latest) // _TIMES_LESS
    small = [stage for stage in range(latest) if _num_bytes(maker, stage) <= most and _is_timed(maker, stage)]
    states = random_states()
    try:
        limit_s = _TIMES_AS_LONG * _batch_s(maker, latest) if small else 0.0
        return next((stage for stage in reversed(small) if _batch_s(maker, stage) <= limit_s), latest)
    finally:
        restore_random_states(states)


def _num_bytes(maker: Maker, stage: int) -> int:
    maker.keep(stage)
    return maker.num_samples * sum(each.num_bytes for each in maker.rows())


def _is_timed(maker: Maker, stage: int) -> bool:
    maker.keep(stage)
    return not maker.ragged


def _batch_s(maker: Maker, stage: int) -> float:
    """Return the seconds in which a batch of a few samples is made of what is kept at `stage`."""
    maker.keep(stage)
    some = torch.tensor(some_indices(maker.num_samples, _TRIED))
    store, places = Store(maker.rows(), len(some)), torch.arange(len(some)).repeat(_TIMES_EACH)
    store.fill(slice(0, len(some)), maker.parts(some))
    where = maker.source.place if maker.reads_where_they_lie else None
    took_s = []
    for _ in range(_TURNS):
        begun = time.perf_counter()
        maker.finish(store.take(places, where))
        took_s.append(time.perf_counter() - begun)
    return min(took_s)
