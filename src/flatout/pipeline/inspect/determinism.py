"""Whether a data set gives the same sample each time, found out by asking it: twice, from other random states.

Asked is a copy, so that a counter or a file opened at the first access is not the script's; the global random streams
are put back to where they stood.
"""

import contextlib
import copy
import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from flatout.pipeline.inspect.concurrent_requests import ConcurrentRequests, waits
from flatout.pipeline.inspect.named_draws import names_draws
from flatout.torch_loader.worker_start import start_method, starts_anew
from flatout.watch.components import attributes_of
from flatout.watch.dataset_state import (
    drawn_on_device,
    draws_elsewhere,
    fingerprint,
    holds_generator,
    random_states,
    reseeds,
    restore_random_states,
    same,
    seed_streams,
    undrawn,
    unsafe,
)
from flatout.watch.refused_writes import in_words, refused_write
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard

__all__ = [
    "Determinism",
    "Unsteady",
    "ask",
    "check_determinism",
    "detached",
    "read_alone",
    "refusal",
    "replaced",
    "samples_of",
    "some_indices",
    "streams_kept",
    "walks_in_its_own_way",
    "weakly",
]

_SAMPLES, _FEWEST = 4, 2
_LONGEST_S = 2.0  # spent on asking, once enough samples were asked for


class Unsteady(StrEnum):
    """Why samples are not the same each time; the value is what is said of the data set."""

    DRAWS = "draws random numbers"
    DIFFERS = "differs from call to call"
    CHANGES = "changes while it is read"
    OWN_GENERATOR = "draws from a random generator of its own"
    ON_DEVICE = "draws random numbers of a CUDA device, or seeds them"
    OTHERWISE = "cannot be asked"


_ONE_SAMPLE = (Unsteady.DRAWS, Unsteady.DIFFERS)  # said of one sample, and allowed to who has a generator of its own


class Determinism(NamedTuple):
    """Whether the samples of a data set are the same each time: `why` is None where they are.

    `reason` says it in words, an empty string where they are.
    """

    why: Unsteady | None = None
    reason: str = ""

    @property
    def by_global_streams(self) -> bool:
        """Return whether samples are drawn, from the global streams alone."""
        return self.why is Unsteady.DRAWS

    @property
    def may_be_a_transform(self) -> bool:
        """Return whether it may be due to a transform alone."""
        return self.why in (Unsteady.DRAWS, Unsteady.OWN_GENERATOR, Unsteady.CHANGES)


def check_determinism(
    dataset: Any, times: list[tuple[float, float]] | None = None, samples: list[Any] | None = None
) -> Determinism:
    """Return whether the samples of `dataset` are the same each time, so that they can be kept.

    The data set is left as it was; what it raises counts as a reason. `times` gets the seconds that the quicker of two
    calls for a sample took, on the wall and of all processors, and no time at all where threads may not ask for it;
    `samples` the sample that was asked for last.
    """
    times, samples = [] if times is None else times, [] if samples is None else samples
    name = type(dataset).__name__
    reason, own = unsafe(dataset, generators=False), holds_generator(dataset)
    elsewhere = draws_elsewhere(dataset)
    if reason or elsewhere:
        return Determinism(Unsteady.OTHERWISE, reason or f"{name} {elsewhere}")
    start = time.monotonic()
    some = some_indices(len(dataset), _SAMPLES)
    alike: bool | None = None
    found = Determinism()
    for number, index in enumerate(some):
        if number == 1 and not own and _others_wait(times, len(some) - 1) and not read_alone(dataset):
            alike = _alike_at_once(dataset, some[1:], times, samples)
        if alike:
            break
        found = _asked_twice(dataset, index, some[number - 1], own, times, samples)
        if found.why or (number + 1 >= _FEWEST and time.monotonic() - start > _LONGEST_S):
            break
    if alike is False:
        times.append((0.0, 0.0))  # which is no wait: threads are not to ask for samples in the passes either
    return Determinism(Unsteady.OWN_GENERATOR, f"{name} {Unsteady.OWN_GENERATOR}") if own and not found.why else found


def some_indices(length: int, number: int) -> list[int]:
    """Return the first, the last and some between, spread evenly."""
    number = min(number, length)
    return sorted({round(place * (length - 1) / max(1, number - 1)) for place in range(number)})


def _others_wait(times: Sequence[tuple[float, float]], number: int) -> bool:
    """Return whether so many samples wait, asked for at once, if each takes what the last one did."""
    took_s, computed_s = times[-1]
    return waits(took_s, number * computed_s)


def read_alone(dataset: Any) -> bool:
    """Return whether samples are to be read one after the other: elsewhere a stream would be set or drawn from."""
    return reseeds(dataset) or names_draws(dataset)


def _alike_at_once(
    dataset: Any, indices: Sequence[int], times: list[tuple[float, float]], samples: list[Any]
) -> bool | None:
    """Return whether samples that wait, each asked of a copy by a thread of its own, are the same the second time.

    False where in threads they differ, draw or raise; None where that cannot be told: where copies open something at
    first, where something changes, and where samples compute, since nobody knows whose time on the processors it was.
    They are then asked for again, one after the other, and nothing is noted here.
    """
    try:
        with (
            StateGuard(dataset) as untouched,
            ConcurrentRequests([detached(dataset) for _ in indices], indices) as asking,
        ):
            before, marks = random_states(), list(map(fingerprint, asking.copies))
            first = asking.once()
            if not first or not undrawn(before, random_states()):
                return False
            if marks != list(map(fingerprint, asking.copies)):
                return None
            _disturb()
            computed_s = _computed_s()
            second = asking.once()
            computed_s = _computed_s() - computed_s
            if not second or not all(same(one[0], other[0]) for one, other in zip(first, second, strict=True)):
                return False
            changed = marks != list(map(fingerprint, asking.copies)) or any(map(holds_generator, asking.copies))
    except any_but_signals():  # whatever a stranger's data set may raise where several threads ask
        return False
    if changed or untouched.changed or not all(waits(took_s, computed_s) for _, took_s in second):
        return None
    times += [(took_s, computed_s / len(second)) for _, took_s in second]
    samples[:] = [second[-1][0]]
    return True


def _asked_twice(
    dataset: Any, index: int, other: int, own: bool, times: list[tuple[float, float]], samples: list[Any]
) -> Determinism:
    name = type(dataset).__name__
    try:
        with StateGuard(dataset) as untouched:
            why = _of_two(dataset, index, other, times, samples)
    except any_but_signals() as error:  # whatever a stranger's data set may raise
        writes = refused_write(error)
        reason = f"{name} {writes}" if writes else f"{name}[{index}] {in_words(error)}"
        return Determinism(Unsteady.OTHERWISE, reason)
    why = Unsteady.CHANGES if untouched.changed else why
    if why is None or (own and why in _ONE_SAMPLE):  # as it may
        return Determinism()
    return Determinism(why, f"{name}{f'[{index}]' if why in _ONE_SAMPLE else ''} {why}")


def _of_two(
    dataset: Any, index: int, other: int, times: list[tuple[float, float]], samples: list[Any]
) -> Unsteady | None:
    """Return what speaks against a sample by the first two calls for it; what the first opens may stay."""
    before, asked = random_states(), detached(dataset)
    new, own = fingerprint(asked), holds_generator(asked)
    first, took = _timed(asked, index)
    after = random_states()
    if drawn_on_device(before, after):
        return Unsteady.ON_DEVICE
    drew, opened = not undrawn(before, after), fingerprint(asked)
    _disturb()
    second, took_then = _timed(asked, index)
    samples[:] = [second]
    times.append(min(took, took_then))  # one alone may have waited for a core, not for a disk
    if opened != new:
        asked[other]
    if fingerprint(asked) != opened or (drew and opened != new) or holds_generator(asked) != own:
        return Unsteady.CHANGES
    if drew:
        return Unsteady.DRAWS
    return None if same(first, second) else Unsteady.DIFFERS


def _timed(dataset: Any, index: int) -> tuple[Any, tuple[float, float]]:
    """Return a sample, and the seconds that it took, on the wall and of all processors."""
    start, cpu = time.perf_counter(), _computed_s()
    sample = dataset[index]
    return sample, (time.perf_counter() - start, _computed_s() - cpu)


def _computed_s() -> float:
    """Return what the processors have done for this process: all its threads, and programs that it has waited for."""
    computed_s = time.process_time()
    if sys.platform != "win32":  # finer than os.times()
        import resource

        programs = resource.getrusage(resource.RUSAGE_CHILDREN)
        computed_s += programs.ru_utime + programs.ru_stime
    return computed_s


def _disturb() -> None:
    """Set every global stream elsewhere: what was drawn from one of them comes out otherwise."""
    import random

    random.seed(20_231)
    seed_streams(20_231)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(20_231)


def ask(dataset: Any, indices: Sequence[int], *, put_back: bool = True) -> Any:
    """Return samples of `dataset`, asked of a copy; the random streams are put back where `put_back`."""
    with streams_kept() if put_back else contextlib.nullcontext():
        return samples_of(detached(dataset), list(indices))


def samples_of(dataset: Any, indices: list[int]) -> Any:
    """Return samples as a loader without workers asks for them."""
    many = getattr(dataset, "__getitems__", None)
    return many(indices) if callable(many) else [dataset[index] for index in indices]


@contextlib.contextmanager
def streams_kept() -> Iterator[None]:
    """Put the global random streams back to where they stood."""
    states = random_states()
    try:
        yield
    finally:
        restore_random_states(states)


@functools.lru_cache(maxsize=256)
def _without_end(kind: Any) -> Any:
    """Return the class of copies, which leave it to the data set itself to close or to remove what both hold."""
    return type(kind.__name__, (kind,), {"__del__": lambda _self: None, "__module__": kind.__module__})


def detached(dataset: Any, depth: int = 3) -> Any:
    """Return a copy of `dataset` whose own attributes, small containers and wrapped data sets are copies, too."""
    made = copy.copy(dataset)
    kind: Any = type(made)
    if hasattr(kind, "__del__"):
        made.__class__ = _without_end(kind)
    inner = attributes_of(made)
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

    name = type(loader.dataset).__name__
    if walks_in_its_own_way(type(loader)):
        return f"{type(loader).__name__} iterates in its own way"
    if isinstance(loader.dataset, IterableDataset | MapDataPipe):
        return f"{name} has no samples that can be read by index"
    if loader.batch_sampler is None:
        return "batch_size is None: there are no batches"
    if loader.num_workers and not getattr(loader, "in_order", True):
        return "its workers deliver out of order"
    if loader.num_workers and starts_anew(loader):
        return f"its workers start as new processes ({start_method(loader)}), and may see other globals"
    try:
        return "" if len(loader.dataset) > 0 else f"{name} is empty"
    except (TypeError, NotImplementedError):
        return f"{name} has no length"


def walks_in_its_own_way(kind: type) -> bool:
    """Tell whether a class of loaders replaces anything that `DataLoader` does, but for how one is made."""
    return bool(replaced(kind))


def replaced(kind: type) -> list[str]:
    """Return the names of what a class of loaders replaces of `DataLoader`, but for how one is made."""
    from torch.utils.data.dataloader import DataLoader

    ours = "flatout."
    own = [base for base in kind.__mro__ if not issubclass(DataLoader, base) and not base.__module__.startswith(ours)]
    known = {name for base in DataLoader.__mro__ for name in vars(base)} | {"__getattribute__", "__getattr__"}
    return sorted({name for base in own for name in vars(base)} & (known - _OF_ANY_CLASS))


_OF_ANY_CLASS = {
    *("__init__", "__module__", "__doc__", "__annotations__", "__dict__", "__weakref__", "__parameters__"),
    *("__orig_bases__", "__qualname__", "__static_attributes__", "__firstlineno__", "__repr__", "__str__"),
    *("__slotnames__", "__abstractmethods__", "_abc_impl"),  # the first is noted by `copy` once an instance was copied
}


def weakly(loader: Any) -> Callable[[], Any]:
    """Return a function that gives the data set of `loader` while it lives, and does not keep it alive."""
    try:
        return weakref.ref(loader.dataset)
    except TypeError:  # a list
        held: Callable[[], Any] = weakref.ref(loader)
        return lambda: held().dataset
