"""The operations of a transform, run one after the other on many samples, of one shape or of several."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from flatout.pipeline.kernels import Kernel, Params, RandomKernel, Unsuited, fuse
from flatout.pipeline.sources import Value

__all__ = ["Step", "Steps"]

_SEED = 8191

Step = Kernel | RandomKernel
Shape = tuple[int, ...]


class Steps:
    """Operations, each done to all samples before the next; what is random is drawn before, sample by sample.

    Samples of several shapes are done one by one, on as many threads as there are cores, until they are of one shape.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        """Join those between two random ones."""
        self._steps = _joined(steps)
        self._random = [place for place, step in enumerate(self._steps) if isinstance(step, RandomKernel)]
        self._shapes: list[Shape] = []  # of one sample, where each random step but the first meets it

    def run(self, value: Value, stream: torch.Generator | None = None) -> torch.Tensor:
        """Return what `value` becomes; random operations draw from `stream`, or from torch's own.

        Raises:
            Unsuited: an operation does not know such values, or samples do not become alike.
        """
        first = self._random[0] if self._random else len(self._steps)
        for step in self._steps[:first]:
            value = _run(step, value, [])
        if self._random and len(value):
            drawn = self._draw(value, stream)
            for place, step in enumerate(self._steps[first:], start=first):
                params = drawn[self._random.index(place)] if place in self._random else []
                value = _run(step, value, params)
        if isinstance(value, list):
            raise Unsuited("the samples of a batch are of several shapes")
        return value

    def _draw(self, value: Value, stream: torch.Generator | None) -> list[list[Params]]:
        """Return for each random step the parameters of each sample."""
        steps = [step for step in self._steps if isinstance(step, RandomKernel)]
        shapes = [(1, *each.shape[-len(each.shape) + 1 :]) for each in value] if isinstance(value, list) else []
        if not self._shapes:
            self._shapes = self._learned(value)
        drawn: list[list[Params]] = [[] for _ in steps]
        for number in range(len(value)):
            first = shapes[number] if shapes else (1, *value[number].shape)
            for step, shape, into in zip(steps, (first, *self._shapes), drawn, strict=True):
                into.append(step.draw(1, shape, stream))
        return drawn

    def _learned(self, value: Value) -> list[Shape]:
        """Return the shapes that the random steps after the first meet, found with one sample and its own stream."""
        one: Value = value[0] if isinstance(value, list) else value[:1]
        shapes, stream = [], torch.Generator().manual_seed(_SEED)
        for step in self._steps[self._random[0] :]:
            if isinstance(step, RandomKernel):
                shapes.append(tuple(one.shape))  # type: ignore[union-attr]
                one = _run(step, one, [step.draw(1, shapes[-1], stream)])
            else:
                one = _run(step, one, [])
        return shapes[1:]


def _joined(steps: Sequence[Step]) -> list[Step]:
    made: list[Step] = []
    plain: list[Kernel] = []
    for step in steps:
        if isinstance(step, RandomKernel):
            made += [*fuse(plain), step]
            plain = []
        else:
            plain.append(step)
    return made + list(fuse(plain))


def _run(step: Step, value: Value, params: Sequence[Params]) -> Value:
    """Return what one step makes of all samples; `params` has those of each, and none for a step that is not random."""
    if isinstance(value, torch.Tensor):
        return step.run(value, _collected(params)) if isinstance(step, RandomKernel) else step.run(value)

    def one(number: int) -> torch.Tensor:
        each = value[number]
        return step.run(each, params[number]) if isinstance(step, RandomKernel) else step.run(each)

    made = list(_in_parallel(one, len(value)))
    return torch.cat(made) if len({(each.shape, each.dtype) for each in made}) == 1 else made


def _collected(params: Sequence[Params]) -> Params:
    return {name: torch.cat([each[name] for each in params]) for name in params[0]}


def _in_parallel(one: Callable[[int], Any], number: int) -> Iterator[Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or number < 2:
        return map(one, range(number))
    with ThreadPoolExecutor(cores, thread_name_prefix="flatout-steps") as pool:  # 0.1 ms; one that stays would be left
        return pool.map(one, range(number))
