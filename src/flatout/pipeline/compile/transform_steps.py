"""The operations of a transform, run one after the other on many samples, of one shape or of several."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import torch

from flatout.pipeline.cache.row_view import RowView
from flatout.pipeline.compile.batched_draws import Draws, are_as_torchs
from flatout.pipeline.compile.fuse import fuse
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Kernel, RandomKernel, Unsuited, collected
from flatout.pipeline.compile.native_steps import NativeSteps, Step
from flatout.pipeline.compile.parallel import in_parallel
from flatout.pipeline.compile.rng import Generator
from flatout.pipeline.compile.row_operations import MakeOne, RowOperation
from flatout.pipeline.read.sources import Value

__all__ = ["Step", "Steps"]

_SEED = 8191
_FEW = 4  # samples: fewer are drawn for by torch one number at a time

Shape = tuple[int, ...]
_Group = tuple[list[int], NativeSteps | None]


class Steps:
    """Operations, each done to all samples before the next; what is random is drawn before, sample by sample.

    Samples of several shapes are done one by one, on as many threads as there are cores, until they are of one shape.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        """Join those between two random ones."""
        self._steps = _joined(steps)
        self._random = [place for place, step in enumerate(self._steps) if isinstance(step, RandomKernel)]
        self._num_drawn = 8.0  # random numbers a sample, as the last batch had it
        self._shapes: dict[tuple[int, Shape], Shape] = {}  # of one sample after a step that is not random
        first = self._random[0] if self._random else len(self._steps)
        self._before = self._grouped(range(first))
        self._after = self._grouped(range(first, len(self._steps)))

    def run(self, value: Value, stream: torch.Generator | None = None) -> torch.Tensor:
        """Return what `value` becomes; random operations draw from `stream`, or from torch's own.

        Raises:
            Unsuited: an operation does not know such values, or samples do not become alike.
        """
        value = self._through(self._before, value, {})
        if self._random and len(value):
            drawn = dict(zip(self._random, self._draw(value, stream), strict=True))
            value = self._through(self._after, value, drawn)
        if isinstance(value, list):
            raise Unsuited("the samples of a batch are of several shapes")
        return value.gathered() if isinstance(value, RowView) else value

    def write(self, value: Value, into: RowView) -> bool:
        """Write what `value` becomes to its places; False where that takes more than one run of compiled code."""
        group, compiled = self._before[0] if len(self._before) == 1 and not self._random else ([], None)
        return compiled is not None and compiled.write(value, [[] for _ in group], into)

    def made_of_rows(self, rows: torch.Tensor) -> tuple[MakeOne, RowOperation] | None:
        """Return what makes of places among `rows` what becomes of them, by one run of compiled code; else None."""
        compiled = self._before[0][1] if len(self._before) == 1 and not self._random else None
        return None if compiled is None else compiled.made_of_rows(rows)

    @property
    def empty(self) -> bool:
        """Return whether there is no operation."""
        return not self._steps

    @property
    def begins_compiled(self) -> bool:
        """Return whether what comes first has a compiled form."""
        return bool(self._steps) and self._steps[0].compiled is not None

    def _grouped(self, places: range) -> list[_Group]:
        """Return the places of steps that follow one another and all have a compiled form, or all have none."""
        groups = [list(group) for _, group in groupby(places, lambda place: self._steps[place].compiled is not None)]
        steps = [[self._steps[place] for place in group] for group in groups]
        compiled = [NativeSteps(some) if some[0].compiled else None for some in steps]
        return list(zip(groups, compiled, strict=True))

    def _through(self, groups: Sequence[_Group], value: Value, drawn: Mapping[int, list[Drawn]]) -> Value:
        """Return what groups of steps make of all samples; `drawn` has the parameters of those that are random."""
        for group, compiled in groups:
            made = None if compiled is None else compiled.run(value, [drawn.get(place, []) for place in group])
            if made is not None:
                value = made
                continue
            for place in group:
                value = _run(self._steps[place], value, drawn.get(place, []))
        return value

    def _draw(self, value: Value, stream: torch.Generator | None) -> list[list[Drawn]]:
        """Return for each random step the parameters of each sample."""
        draws = [step.draw_one for step in self._steps if isinstance(step, RandomKernel)]
        met = [self._met(one) for one in value] if isinstance(value, list) else [self._met(value[:1])] * len(value)
        drawn: list[list[Drawn]] = [[] for _ in draws]
        with self._numbers(stream, len(value)) as numbers:
            for shapes in met:
                for draw, shape, into in zip(draws, shapes, drawn, strict=True):
                    into.append(draw(shape, numbers))
        return drawn

    @contextlib.contextmanager
    def _numbers(self, stream: torch.Generator | None, num_samples: int) -> Iterator[Generator]:
        """Give the random numbers for so many samples, as many at once as the last ones took."""
        if num_samples < _FEW or not are_as_torchs():
            yield stream
            return
        draws = Draws(stream, round(num_samples * self._num_drawn))
        try:
            yield draws
        finally:
            draws.finished()
            self._num_drawn = draws.num_taken / num_samples

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
    value = value.gathered() if isinstance(value, RowView) else value
    if isinstance(value, torch.Tensor):
        return step.run(value, collected(params)) if isinstance(step, RandomKernel) else step.run(value)

    def one(number: int) -> torch.Tensor:
        each = value[number]
        if isinstance(step, RandomKernel):
            return step.run(each, collected(params[number : number + 1]))
        return step.run(each)

    made = list(in_parallel(one, len(value)))
    return torch.cat(made) if len({(each.shape, each.dtype) for each in made}) == 1 else made
