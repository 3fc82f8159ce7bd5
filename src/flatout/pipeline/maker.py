"""Batches made from many samples at once: the operations of the data set's transform as kernels, proven before use.

Random operations draw for each sample what the script's own would draw, from the same stream and in the same order;
only what is done with it is done to the whole batch.
"""

from collections.abc import Sequence
from typing import Any

import torch

from flatout.pipeline.dataset_state import random_states, restore_random_states, same, undrawn
from flatout.pipeline.examination import detached, some_indices
from flatout.pipeline.kernels import Kernel, Params, RandomKernel, flatten, fuse, kernel_for
from flatout.pipeline.layout import Layout, Rows, layout_of
from flatout.pipeline.sources import Source, source_of

__all__ = ["Maker", "maker_of"]

_PROVEN_ON = 24  # samples, and each of a few by itself
_SEED = 8191

Step = Kernel | RandomKernel


class Maker:
    """Makes the parts of collated batches.

    The part that the transform makes may be kept at any stage before the first random operation; `stage` is the one
    that is kept, and what is left to do at each batch is what comes after it.
    """

    def __init__(self, source: Source, steps: Sequence[Step], num_samples: int) -> None:
        """Take where values come from, what is done to them, and how many there are."""
        self.num_samples = num_samples
        self._source = source
        self._steps = list(steps)
        self._before: list[Step] = []
        self._after: list[Step] = []
        self._shapes: list[tuple[int, ...]] = []  # of one sample, where each random step meets it
        self.in_memory = source.in_memory
        self.layout: Layout = source.layout
        self.stage = 0
        self.keep(self.num_stages - 1)

    @property
    def random(self) -> bool:
        """Return whether samples differ from pass to pass."""
        return any(isinstance(step, RandomKernel) for step in self._steps)

    @property
    def num_stages(self) -> int:
        """Return the number of stages: one more than there are operations before the first random one."""
        places = [place for place, step in enumerate(self._steps) if isinstance(step, RandomKernel)]
        return (places[0] if places else len(self._steps)) + 1

    def keep(self, stage: int) -> None:
        """Say which stage is kept: 0 for values as they are read."""
        self.stage = stage
        self._before, self._after = _joined(self._steps[:stage]), _joined(self._steps[stage:])
        self._shapes = []

    def parts(self, indices: torch.Tensor) -> list[Any]:
        """Return the parts of the samples `indices`, the transform's as it is kept."""
        value, others = self._source.read(indices)
        place = self._source.place
        return [*others[:place], _through(self._before, value, []), *others[place:]]

    def finish(self, parts: list[Any], stream: torch.Generator | None = None) -> Any:
        """Return the batch that kept `parts` make; random operations draw from `stream`, or from torch's own."""
        place = self._source.place
        parts[place] = _through(self._after, parts[place], self._draw(parts[place], stream))
        return self.layout.build(parts)

    def rows(self) -> tuple[Rows, ...]:
        """Return the layout of what is kept, of one sample."""
        found = layout_of(self.parts(torch.tensor([0])), 1)
        return () if found is None else found[0].rows

    def _draw(self, value: torch.Tensor, stream: torch.Generator | None) -> list[Params]:
        """Return the parameters of each random step, drawn sample by sample."""
        steps = [step for step in self._after if isinstance(step, RandomKernel)]
        if not steps:
            return []
        if not self._shapes:
            self._shapes = self._learned(value[:1])
        kinds = list(zip(steps, self._shapes, strict=True))
        drawn = [[step.draw(1, shape, stream) for step, shape in kinds] for _ in range(len(value))]
        return [
            {name: torch.cat([one[number][name] for one in drawn]) for name in drawn[0][number]}
            for number in range(len(steps))
        ]

    def _learned(self, value: torch.Tensor) -> list[tuple[int, ...]]:
        """Return the shapes that the random steps meet, found out with one sample and a stream of its own."""
        shapes, stream = [], torch.Generator().manual_seed(_SEED)
        for step in self._after:
            if isinstance(step, RandomKernel):
                shapes.append(tuple(value.shape))
                value = step.run(value, step.draw(1, shapes[-1], stream))
            else:
                value = step.run(value)
        return shapes


def _joined(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with those between two random ones fused."""
    made: list[Step] = []
    plain: list[Kernel] = []
    for step in steps:
        if isinstance(step, RandomKernel):
            made += [*fuse(plain), step]
            plain = []
        else:
            plain.append(step)
    return made + list(fuse(plain))


def _through(steps: Sequence[Step], value: torch.Tensor, drawn: Sequence[Params]) -> torch.Tensor:
    params = iter(drawn)
    for step in steps:
        value = step.run(value, next(params)) if isinstance(step, RandomKernel) else step.run(value)
    return value


def maker_of(loader: Any) -> Maker | None:
    """Return what makes the batches of `loader`, None where an operation has no kernel or the bits differ.

    Proven on samples spread over the data set, in one batch and alone: the same bits, and the random streams left at
    the same place.
    """
    if loader.collate_fn is not torch.utils.data.dataloader.default_collate:
        return None
    states = random_states()
    try:
        source = source_of(loader.dataset)
        steps = None if source is None else _steps(source)
        if source is None or steps is None:
            return None
        maker = Maker(source, steps, len(loader.dataset))
        return maker if _proven(maker, loader) else None
    except Exception:  # a stranger's data set, or a batch that a kernel does not suit
        return None
    finally:
        restore_random_states(states)


def _steps(source: Source) -> list[Step] | None:
    form = source.form
    steps: list[Step] = []
    for operation in flatten(source.transform):
        step = kernel_for(operation, form)
        if step is None or (isinstance(step, RandomKernel) and not step.exact):
            return None
        steps.append(step)
        form = step.after
    return steps if form.kind == "tensor" or (form.kind == "array" and steps) or not steps else None


def _proven(maker: Maker, loader: Any) -> bool:
    chosen = some_indices(len(loader.dataset), _PROVEN_ON)
    for number, some in enumerate((chosen, chosen[:1], chosen[-2:])):
        asked = detached(loader.dataset)
        torch.manual_seed(_SEED + number)
        before = random_states()
        plain = loader.collate_fn([asked[index] for index in some])
        after = random_states()
        restore_random_states(before)
        if not same(plain, maker.finish(maker.parts(torch.tensor(some)))) or not undrawn(after, random_states()):
            return False
    return True
