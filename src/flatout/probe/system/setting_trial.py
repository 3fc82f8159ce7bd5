"""What a setting of the script costs: blocks of steps with it and with another one in turn, in the deep run.

One setting is priced, the first there is reason to doubt: the ranks of the machine run more threads than it has cores,
numbers too small for full precision were found, or torch computes with another number of threads than there are cores.
Another one may be offered, and has its turn after that.
Results of a deep run are nobody's: rounding may change.
"""

import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import get_num_threads, set_num_threads  # before any probe has wrapped them

from flatout.machine import usable_cores
from flatout.pipeline.cache.ranks import local_ranks
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.spans import BACKWARD, FORWARD, OPTIMIZER
from flatout.probe.core.user_places import caller
from flatout.probe.loader.loading import WatchedLoader
from flatout.schema.run import Denormals, Frame, SettingTrial, Step

__all__ = ["SettingTrialWatch", "count_denormals"]

_BLOCK = 5  # steps with the script's setting, then as many with the other one
_FROM = 6  # the step at which there is a first look
_PAIRS = 12  # blocks of each kind: the rest of the deep run is left as it is
_LEAST = 6  # steps of each kind
_ELEMENTS = 1 << 22  # of one kind of tensors that are looked at
_GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class SettingTrialWatch:
    """Chooses the setting to doubt, switches it every few steps and compares them."""

    def __init__(self, training: Callable[[], Iterable[Any]], loaders: Callable[[], Iterable[WatchedLoader]]) -> None:
        """Take what gives the optimizers and what gives the loaders of the script."""
        self._training, self._loaders = training, loaders
        self.denormals: tuple[Denormals, ...] = ()
        self._arms: tuple[list[int], list[int]] = ([], [])
        self._before: list[tuple[SettingTrial, tuple[list[int], list[int]]]] = []  # what was priced earlier
        self._offered: list[tuple[SettingTrial, Callable[[bool], None]]] = []
        self._set: Callable[[bool], None] | None = None  # True: the other setting
        self._price: SettingTrial | None = None
        self._threads_at: Frame | None = None
        self._steps = 0
        self.other = False  # the step that runs has the other setting

    def install(self, seams: Seams) -> None:
        """Note where the script sets the number of threads."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def call(number: int) -> None:
                original(number)
                hits.count += 1
                self._threads_at = caller(2)

            return call

        seams.wrap("torch:set_num_threads", make)

    def step(self, step: Step, number: int) -> None:
        """Take one finished step, which had the setting that is in force now."""
        if number == _FROM:
            self._choose()
        if self._set is None:
            self._turn()
            return
        if self._steps % _BLOCK >= 2:  # a step without a loader is told while the next one runs
            self._arms[self.other].append(sum(step.phases_ns[phase] for phase in (FORWARD, BACKWARD, OPTIMIZER)))
        self._steps += 1
        other = self._steps // _BLOCK % 2 == 1 and self._steps < 2 * _PAIRS * _BLOCK
        if other is not self.other:
            self.other = other
            self._set(other)
        if self._steps >= 2 * _PAIRS * _BLOCK:
            self._set = None

    @property
    def switching(self) -> bool:
        """Return whether another setting than the script's may be in force."""
        return self._set is not None

    def end(self) -> None:
        """Put the script's setting back."""
        if self._set is not None and self.other:
            self._set(False)
        self._set = None

    def _choose(self) -> None:
        if torch.cuda.is_initialized():
            return
        self.denormals = count_denormals(self._training())
        own, cores = get_num_threads(), usable_cores()
        ranks = local_ranks()
        if own > 1 and ranks > 1 and own * ranks > cores:  # all ranks are at this step, and change with it
            self._try_threads(own, max(1, cores // ranks))
            return
        if any(found.share > 0 for found in self.denormals):
            if torch.set_flush_denormal(True):
                torch.set_flush_denormal(False)
                self._price, self._set = SettingTrial(switch="denormals", tried=1.0), _flush
            return
        if own != cores and self._threads_may_change(own, cores):
            self._try_threads(own, cores)

    def offer(self, switch: str, tries: Callable[[bool], None]) -> None:
        """Take another setting to price, `tries(True)` and `tries(False)`, when no other one is."""
        if not torch.cuda.is_initialized():
            self._offered.append((SettingTrial(switch=switch, own=1.0), tries))

    def _turn(self) -> None:
        """Begin to price what was offered."""
        if not self._offered:
            return
        if self._price is not None:
            self._before.append((self._price, self._arms))
        self._price, self._set = self._offered.pop(0)
        self._arms, self._steps = ([], []), 0

    def _try_threads(self, own: int, other: int) -> None:
        self._price = SettingTrial(switch="threads", own=own, tried=other, place=self._threads_at)
        self._set = lambda on: set_num_threads(other if on else own)

    def _threads_may_change(self, own: int, cores: int) -> bool:
        """Return whether to try as many threads as cores: never more beside workers, ranks, or somebody's own number.

        More threads in a process that forks workers later could leave them waiting for threads they do not have.
        """
        workers = any(map(_num_workers, self._loaders()))
        given = any(name in os.environ for name in _GIVEN) and self._threads_at is None
        ranks = int(os.environ.get("WORLD_SIZE", "1") or 1) > 1
        return not ranks and (own > cores or not (workers or given))

    def prices(self) -> tuple[SettingTrial, ...]:
        """Return what was measured."""
        priced = [*self._before, *([(self._price, self._arms)] if self._price else [])]
        return tuple(_priced(price, *arms) for price, arms in priced if min(map(len, arms)) >= _LEAST)


def _priced(price: SettingTrial, own: list[int], other: list[int]) -> SettingTrial:
    pairs = [(a > b) + 0.5 * (a == b) for a in own for b in other]
    share = 1 - statistics.median(other) / max(1, statistics.median(own))
    return replace(price, share=share, steps=min(len(own), len(other)), ordered=sum(pairs) / len(pairs))


def _num_workers(watched: WatchedLoader) -> int:
    """Return the workers of a loader, also of one that has not been walked yet."""
    return int(getattr(watched.ref(), "num_workers", 0) or watched.facts.num_workers)


def _flush(on: bool) -> None:
    torch.set_flush_denormal(on)


def count_denormals(optimizers: Iterable[Any]) -> tuple[Denormals, ...]:
    """Return the share of numbers below full precision in weights, gradients and optimizer state on the CPU."""
    kinds: dict[str, list[torch.Tensor]] = {"weights": [], "gradients": [], "optimizer state": []}
    for optimizer in optimizers:
        for parameter in (one for group in optimizer.param_groups for one in group["params"]):
            kinds["weights"].append(parameter.detach())
            if parameter.grad is not None:
                kinds["gradients"].append(parameter.grad.detach())
            state = optimizer.state.get(parameter, {}) if hasattr(optimizer, "state") else {}
            kinds["optimizer state"].extend(value for value in state.values() if isinstance(value, torch.Tensor))
    return tuple(found for where, tensors in kinds.items() if (found := _count(where, tensors)).elements)


def _count(where: str, tensors: Iterable[torch.Tensor]) -> Denormals:
    elements = small = 0
    for flat in _floats(tensors):
        taken = flat[: _ELEMENTS - elements]
        elements += taken.numel()
        small += int(((taken != 0) & (taken.abs() < torch.finfo(taken.dtype).tiny)).sum())
        if elements >= _ELEMENTS:
            break
    return Denormals(where=where, elements=elements, share=small / elements if elements else 0.0)


def _floats(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    for tensor in tensors:
        if (
            tensor.layout is torch.strided
            and tensor.device.type == "cpu"
            and tensor.dtype in (torch.float32, torch.float64)
        ):
            yield tensor.reshape(-1)
