"""Where the time of a batch goes: a copy of the loader without workers, whose parts are timed one by one."""

import copy
import linecache
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flatout.machine import core_wait_ns
from flatout.probe.core.user_places import user_stack
from flatout.probe.system.line_sampler import Doing, LineSampler
from flatout.schema.facts import Frame
from flatout.schema.loader_figures import Figure, LoaderLine, LoaderStage
from flatout.schema.phase import Phase
from flatout.schema.run import LineCost

__all__ = ["StageTimes", "time_stages", "without_workers"]

_BLOCKS = 8
_MOST_LINES, _LEAST_SHARE = 5, 0.02
_FEWEST_LOOKS = 3  # stack samples of a line, below which it is chance
_DEEPEST = 1000  # frames


@dataclass
class StageTimes:
    """What batches took, in one process, part by part; one entry a batch."""

    made_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    queued_s: float = 0.0  # in which this thread was ready to run, and other programs had the cores
    parts_s: dict[str, list[float]] = field(default_factory=dict)
    samples: int = 0
    costs: tuple[LineCost, ...] = ()
    outside: frozenset[tuple[str, int, str]] = frozenset()  # the user's lines that led to this measurement

    @property
    def count(self) -> int:
        """Batches made."""
        return len(self.made_s)

    def made_ms(self) -> Figure | None:
        """Return milliseconds of a batch."""
        return Figure.of([1e3 * each for each in _blocks(self.made_s)])

    def waiting(self) -> float:
        """Return the share of the time in which no processor was used or waited for."""
        whole = sum(self.made_s)
        return max(0.0, 1 - (sum(self.cpu_s) + self.queued_s) / whole) if whole else 0.0

    def stages(self) -> tuple[LoaderStage, ...]:
        """Return the parts of a batch, in their order."""
        whole = sum(self.made_s)
        found = []
        for name, values in self.parts_s.items():
            ms = Figure.of([1e3 * each for each in _blocks(values)])
            if ms is not None and whole and sum(values):
                found.append(LoaderStage(name=name, ms=ms, share=sum(values) / whole))
        return tuple(found)

    def cores_samples_s(self, cores: int) -> Figure | None:
        """Return how many samples a second `cores` could make, if they did nothing else."""
        if not self.count or not self.samples:
            return None
        each = self.samples / self.count
        return Figure.of([cores * each / used for used in _blocks(self.cpu_s) if used > 0])

    def lines(self) -> tuple[LoaderLine, ...]:
        """Return the user's own lines below which the most time goes, each counted where it is innermost."""
        sums: dict[tuple[str, int], tuple[Frame, list[float]]] = {}
        whole = sum(cost.seconds for cost in self.costs)
        for cost in self.costs:
            at = cost.stack[0] if cost.stack else None
            if at is not None and (at.file, at.line, at.function) not in self.outside:
                _, known = sums.setdefault((at.file, at.line), (at, [0.0, 0]))
                known[0] += cost.seconds
                known[1] += cost.samples
        found = [
            LoaderLine(place=at, code=linecache.getline(at.file, at.line).strip()[:80], share=seconds / whole)
            for at, (seconds, looks) in sums.values()
            if looks >= _FEWEST_LOOKS and seconds >= _LEAST_SHARE * whole
        ]
        return tuple(sorted(found, key=lambda line: -line.share)[:_MOST_LINES])


def without_workers(loader: Any) -> Any:
    """Return a copy of `loader` that makes its batches in this process."""
    alone = copy.copy(loader)
    changes = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "timeout": 0, "_iterator": None}
    vars(alone).update(changes, pin_memory=False)
    return alone


def time_stages(loader: Any, batches: int, until_s: float, size: Callable[[Any], int]) -> StageTimes:
    """Make up to `batches` batches in this process until the clock says `until_s`; `size`: samples of a batch.

    What the loader raises comes through.
    """
    times, alone = StageTimes(), without_workers(loader)
    clock = _PartClock()
    _dress(alone, clock)
    pin = _pinning(loader)
    times.parts_s = {name: [] for name in ("sampler", "fetch", "collate", *(["pin"] if pin else []))}
    times.outside = frozenset(user_stack(sys._getframe(), _DEEPEST))
    sampler = LineSampler("main", Doing(where=(Phase.INPUT, "")))
    sampler.start()
    try:
        for batch in _passes(alone, times, clock, batches, until_s):
            times.samples += size(batch)
            if pin is not None:
                began = time.perf_counter()
                pin(batch)
                times.parts_s["pin"].append(time.perf_counter() - began)
                times.made_s[-1] += times.parts_s["pin"][-1]
    finally:
        sampler.stop()
    times.costs = sampler.costs()
    return times


def _passes(alone: Any, times: StageTimes, clock: "_PartClock", batches: int, until_s: float) -> Iterator[Any]:
    """Yield batches with their times noted; the first of all is left out, which sets the data set up."""
    warm, made = False, 0
    while True:
        iterator, any_made = iter(alone), False
        while True:
            clock.seconds = {"sampler": 0.0, "collate": 0.0}
            queued, cpu, began = core_wait_ns(), time.process_time(), time.perf_counter()
            batch = next(iterator, clock)
            spent, used = time.perf_counter() - began, time.process_time() - cpu
            if batch is clock:
                break
            any_made = True
            if warm or began >= until_s:
                times.made_s.append(spent)
                times.cpu_s.append(used)
                times.queued_s += (core_wait_ns() - queued) / 1e9
                for name, seconds in clock.seconds.items():
                    times.parts_s[name].append(seconds)
                times.parts_s["fetch"].append(max(0.0, spent - sum(clock.seconds.values())))
                made += 1
                yield batch
            warm = True
            if made >= batches or (made and time.perf_counter() >= until_s):
                return
        if not any_made:
            return


class _PartClock:
    """Seconds that parts of one batch took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, timed as the part `name`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return timed


class _TimedIndices:
    """A sampler whose iterator is timed."""

    def __init__(self, sampler: Any, clock: _PartClock) -> None:
        self._sampler, self._clock = sampler, clock

    def __iter__(self) -> Iterator[Any]:
        follow = self._clock.timing("sampler", iter(self._sampler).__next__)
        while True:
            try:
                index = follow()
            except StopIteration:
                return
            yield index

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _dress(alone: Any, clock: _PartClock) -> None:
    """Let the copy's own sampler and collate function be timed."""
    held = vars(alone)
    if callable(held.get("collate_fn")):
        held["collate_fn"] = clock.timing("collate", held["collate_fn"])
    for name in ("batch_sampler", "sampler"):
        if held.get(name) is not None:
            held[name] = _TimedIndices(held[name], clock)
            return


def _pinning(loader: Any) -> Callable[[Any], object] | None:
    """Return what pins a batch as `loader` does; None where it does not, or there is no device for it."""
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory

    if getattr(loader, "pin_memory", False) and torch.cuda.is_available():
        return pin_memory
    return None


def _blocks(values: list[float]) -> list[float]:
    """Return the means of up to 8 blocks of consecutive values."""
    size = max(1, len(values) // _BLOCKS)
    return [sum(values[at : at + size]) / size for at in range(0, len(values) - size + 1, size)]
