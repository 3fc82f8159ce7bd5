"""Whether a data set gives the same sample each time, found out by asking it: twice, from other random states.

Asked is a copy, so that a counter or a file opened at the first access is not the script's; the global random streams
are put back to where they stood.
"""

import contextlib
import copy
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from flatout.pipeline.dataset_state import (
    fingerprint,
    holds_generator,
    random_states,
    restore_random_states,
    same,
    undrawn,
    unsafe,
)

__all__ = ["ask", "detached", "draws", "examine", "refusal", "samples_of", "some_indices", "weakly"]

_DRAWS = "draws random numbers"
_SAMPLES, _FEWEST = 4, 2
_LONGEST_S = 2.0  # spent on asking, once enough samples were asked for


def examine(dataset: Any) -> str:
    """Return why the samples of `dataset` cannot be kept, an empty string when they can.

    The data set is left as it was; what it raises counts as a reason.
    """
    reason = unsafe(dataset)
    if reason:
        return reason
    if holds_generator(dataset):
        return f"{type(dataset).__name__} holds a random generator"
    start = time.monotonic()
    for number, index in enumerate(some_indices(len(dataset), _SAMPLES)):
        reason = _asked_twice(dataset, index)
        if reason or (number + 1 >= _FEWEST and time.monotonic() - start > _LONGEST_S):
            return reason
    return ""


def some_indices(length: int, number: int) -> list[int]:
    """Return the first, the last and some between, spread evenly."""
    return sorted({round(place * (length - 1) / max(1, number - 1)) for place in range(min(number, length))})


def _asked_twice(dataset: Any, index: int) -> str:
    name = type(dataset).__name__
    before, mark = random_states(), fingerprint(dataset)
    try:
        asked = detached(dataset)
        own = fingerprint(asked)
        first = asked[index]
        drew, changed = not undrawn(before, random_states()), fingerprint(asked) != own
        _disturb()
        second = asked[index]
        changed = changed or fingerprint(asked) != own
    except Exception as error:  # whatever a stranger's data set may raise
        return f"{name}[{index}] raised {type(error).__name__}: {error}".splitlines()[0][:200]
    finally:
        restore_random_states(before)
    if fingerprint(dataset) != mark:
        return f"{name} changes while it is read"
    if changed:
        return f"{name} changes while it is read"
    if not drew:
        return "" if same(first, second) else f"{name}[{index}] differs from call to call"
    return f"{name}[{index}] {_DRAWS}"


def draws(reason: str) -> bool:
    """Return whether `reason`, as `examine` gave it, is that samples are drawn at random and nothing else."""
    return reason.endswith(_DRAWS)


def _disturb() -> None:
    """Set every global stream elsewhere: what was drawn from one of them comes out otherwise."""
    import random
    import sys

    random.seed(20_231)
    torch.manual_seed(20_231)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(20_231)


def ask(dataset: Any, indices: Sequence[int], *, put_back: bool = True) -> list[Any]:
    """Return samples of `dataset`, asked of a copy; the random streams are put back where `put_back`."""
    states = random_states()
    with _restored(states) if put_back else contextlib.nullcontext():
        return samples_of(detached(dataset), list(indices))


def samples_of(dataset: Any, indices: list[int]) -> list[Any]:
    """Return samples as a loader without workers asks for them."""
    many = getattr(dataset, "__getitems__", None)
    return list(many(indices)) if callable(many) else [dataset[index] for index in indices]


@contextlib.contextmanager
def _restored(states: Any) -> Iterator[None]:
    try:
        yield
    finally:
        restore_random_states(states)


def detached(dataset: Any, depth: int = 3) -> Any:
    """Return a copy of `dataset` whose own attributes, small containers and wrapped data sets are copies, too."""
    made = copy.copy(dataset)
    inner = getattr(made, "__dict__", None)
    if inner is None or not depth:
        return made
    for name, value in list(inner.items()):
        if isinstance(value, torch.utils.data.Dataset):
            inner[name] = detached(value, depth - 1)
        elif type(value) in (dict, list, set) and len(value) <= 1000:
            inner[name] = type(value)(
                [detached(item, depth - 1) if isinstance(item, torch.utils.data.Dataset) else item for item in value]
                if isinstance(value, list)
                else value
            )
    return made


def refusal(loader: Any) -> str:
    """Return why nothing of `loader` can be kept by what it is, an empty string when nothing speaks against it."""
    from torch.utils.data import IterableDataset, MapDataPipe
    from torch.utils.data.dataloader import DataLoader

    name = type(loader.dataset).__name__
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} walks in a way of its own"
    if isinstance(loader.dataset, IterableDataset | MapDataPipe):
        return f"{name} has no samples that are asked for by index"
    if loader.batch_sampler is None:
        return "batch_size is None: there are no batches"
    if loader.num_workers and not getattr(loader, "in_order", True):
        return "its workers deliver out of order"
    try:
        return "" if len(loader.dataset) > 0 else f"{name} is empty"
    except (TypeError, NotImplementedError):
        return f"{name} has no length"


def weakly(loader: Any) -> Callable[[], Any]:
    """Return a function that gives the data set of `loader` while it lives, and does not keep it alive."""
    try:
        return weakref.ref(loader.dataset)
    except TypeError:  # a list
        held: Callable[[], Any] = weakref.ref(loader)
        return lambda: held().dataset
