"""Batches made from many samples at once: the operations of the data set's transform as kernels, proven before use."""

from collections.abc import Sequence
from typing import Any

import torch

from flatout.pipeline.dataset_state import random_states, restore_random_states, same
from flatout.pipeline.examination import ask, some_indices
from flatout.pipeline.kernels import Kernel, flatten, fuse, kernel_for
from flatout.pipeline.layout import Layout, Rows, layout_of
from flatout.pipeline.sources import Source, source_of

__all__ = ["Maker", "maker_of"]

_PROVEN_ON = 24  # samples, and each of a few by itself


class Maker:
    """Makes the parts of collated batches.

    The part that the transform makes may be kept at any stage, the last one final; `stage` is the one that is kept, and
    what is left to do at each batch is what comes after it.
    """

    def __init__(self, source: Source, kernels: Sequence[Kernel], num_samples: int) -> None:
        """Take where values come from, what is done to them, and how many there are."""
        self.num_samples = num_samples
        self._source = source
        self._kernels = list(kernels)
        self._before: list[Kernel] = []
        self._after: list[Kernel] = []
        self.in_memory = source.in_memory
        self.layout: Layout = source.layout
        self.stage = 0
        self.keep(len(self._kernels))

    @property
    def num_stages(self) -> int:
        """Return the number of stages: one more than there are operations."""
        return len(self._kernels) + 1

    def keep(self, stage: int) -> None:
        """Say which stage is kept: 0 for values as they are read."""
        self.stage = stage
        self._before, self._after = fuse(self._kernels[:stage]), fuse(self._kernels[stage:])

    def parts(self, indices: torch.Tensor) -> list[Any]:
        """Return the parts of the samples `indices`, the transform's as it is kept."""
        value, others = self._source.read(indices)
        place = self._source.place
        return [*others[:place], _through(self._before, value), *others[place:]]

    def finish(self, parts: list[Any]) -> Any:
        """Return the batch that kept `parts` make."""
        place = self._source.place
        parts[place] = _through(self._after, parts[place])
        return self.layout.build(parts)

    def rows(self) -> tuple[Rows, ...]:
        """Return the layout of what is kept, of one sample."""
        found = layout_of(self.parts(torch.tensor([0])), 1)
        return () if found is None else found[0].rows


def _through(kernels: Sequence[Kernel], value: torch.Tensor) -> torch.Tensor:
    for kernel in kernels:
        value = kernel.run(value)
    return value


def maker_of(loader: Any) -> Maker | None:
    """Return what makes the batches of `loader`, None where an operation has no kernel or the bits differ.

    Proven on samples spread over the data set, in one batch and alone.
    """
    if loader.collate_fn is not torch.utils.data.dataloader.default_collate:
        return None
    states = random_states()
    try:
        source = source_of(loader.dataset)
        kernels = None if source is None else _kernels(source)
        if source is None or kernels is None:
            return None
        maker = Maker(source, kernels, len(loader.dataset))
        return maker if _proven(maker, loader) else None
    except Exception:  # a stranger's data set, or a batch that a kernel does not suit
        return None
    finally:
        restore_random_states(states)


def _kernels(source: Source) -> list[Kernel] | None:
    form, kernels = source.form, []
    for operation in flatten(source.transform):
        kernel = kernel_for(operation, form)
        if not isinstance(kernel, Kernel):
            return None
        kernels.append(kernel)
        form = kernel.after
    return kernels if form.kind == "tensor" or (form.kind == "array" and kernels) or not kernels else None


def _proven(maker: Maker, loader: Any) -> bool:
    chosen = some_indices(len(loader.dataset), _PROVEN_ON)
    for some in (chosen, chosen[:1], chosen[-2:]):
        plain = loader.collate_fn(ask(loader.dataset, some))
        if not same(plain, maker.finish(maker.parts(torch.tensor(some)))):
            return False
    return True
