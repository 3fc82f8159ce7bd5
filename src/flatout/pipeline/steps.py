"""The operations of a transform, run one after the other on many samples, of one shape or of several."""

from collections.abc import Sequence

import torch

from flatout.pipeline.kernels import Drawn, Kernel, RandomKernel, Unsuited, collected, fuse
from flatout.pipeline.parallel import in_parallel
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
        self._shapes: dict[tuple[int, Shape], Shape] = {}  # of one sample after a step that is not random

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

    def _draw(self, value: Value, stream: torch.Generator | None) -> list[list[Drawn]]:
        """Return for each random step the parameters of each sample."""
        draws = [step.draw_one for step in self._steps if isinstance(step, RandomKernel)]
        if isinstance(value, torch.Tensor):
            met = [self._met(value[:1])] * len(value)
        else:
            met = [self._met(one) for one in value]
        drawn: list[list[Drawn]] = [[] for _ in draws]
        for shapes in met:
            for draw, shape, into in zip(draws, shapes, drawn, strict=True):
                into.append(draw(shape, stream))
        return drawn

    def _met(self, one: torch.Tensor) -> list[Shape]:
        """Return the shapes in which the random steps meet a sample."""
        shape, met = tuple(one.shape), []
        for place in range(self._random[0], self._random[-1] + 1):
            step = self._steps[place]
            if isinstance(step, RandomKernel):
                met.append(shape)
                shape = step.shape_after(shape)
                continue
            if (place, shape) not in self._shapes:
                self._learn(one)
            shape = self._shapes[place, shape]
        return met

    def _learn(self, one: torch.Tensor) -> None:
        """Note what the steps between the random ones make of this sample's shape, with a stream of its own."""
        stream = torch.Generator().manual_seed(_SEED)
        for place in range(self._random[0], self._random[-1]):
            step, shape = self._steps[place], tuple(one.shape)
            if isinstance(step, RandomKernel):
                one = step.run(one, collected([step.draw_one(shape, stream)]))
            else:
                one = step.run(one)
                self._shapes[place, shape] = tuple(one.shape)


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


def _run(step: Step, value: Value, params: Sequence[Drawn]) -> Value:
    """Return what one step makes of all samples; `params` has those of each, and none for a step that is not random."""
    if isinstance(value, torch.Tensor):
        return step.run(value, collected(params)) if isinstance(step, RandomKernel) else step.run(value)

    def one(number: int) -> torch.Tensor:
        each = value[number]
        if isinstance(step, RandomKernel):
            return step.run(each, collected(params[number : number + 1]))
        return step.run(each)

    made = list(in_parallel(one, len(value)))
    return torch.cat(made) if len({(each.shape, each.dtype) for each in made}) == 1 else made
