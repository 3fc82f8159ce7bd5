"""Batches made from many samples at once: the operations of the data set's transform as kernels, proven before use.

Random operations draw for each sample what the script's own would draw, from the same stream and in the same order;
only what is done with it is done to the whole batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import Layout, Rows, layout_of
from flatout.pipeline.cache.row_view import RowView, WrittenRows
from flatout.pipeline.compile.chain import flatten
from flatout.pipeline.compile.kernels.core.kernel import Kernel, RandomKernel
from flatout.pipeline.compile.pointwise_table import Table, num_pointwise, table_of
from flatout.pipeline.compile.registry import kernel_for
from flatout.pipeline.compile.transform_steps import Step, Steps
from flatout.pipeline.inspect.determinism import detached, some_indices
from flatout.pipeline.read.sources import SampleSource, Value, source_of
from flatout.pipeline.read.worker_reader import Given, ReadValues
from flatout.watch.dataset_state import random_states, restore_random_states, same, seed_streams, undrawn
from flatout.watch.script_signals import any_but_signals

__all__ = ["BatchCompiler", "compiler_of"]

_PROVEN_ON = 24  # samples, and each of a few by itself
_SIZED = 8  # samples that are looked at for their size
_SEED = 8191


class BatchCompiler:
    """Makes the parts of collated batches.

    The part that the transform makes may be kept at any stage before the first random operation; `stage` is the one
    that is kept, and what is left to do at each batch is what comes after it.
    """

    def __init__(self, source: SampleSource, steps: Sequence[Step], num_samples: int) -> None:
        """Take where values come from, what is done to them, and how many there are."""
        self.num_samples = num_samples
        self._source = source
        self._steps = list(steps)
        self.in_memory = source.in_memory
        self.layout: Layout = source.layout
        self.stage = 0
        self._arrive: Callable[[list[Any]], list[Any]] | None = None
        self._table: Table | None = None
        self._pointwise = 0  # of the last operations, as a table
        self._looked_up = False  # in what is kept
        self.keep(self.num_stages - 1)

    @property
    def random(self) -> bool:
        """Return whether samples differ from pass to pass."""
        return any(isinstance(step, RandomKernel) for step in self._steps)

    @property
    def ragged(self) -> bool:
        """Return whether values are kept that are of several shapes."""
        return self._source.ragged and not self.stage

    @property
    def num_stages(self) -> int:
        """Return the number of stages: one more than there are operations before the first random one, or a table."""
        places = [place for place, step in enumerate(self._steps) if isinstance(step, RandomKernel)]
        return min([*places[:1], len(self._steps) - self._pointwise]) + 1

    @property
    def before_pointwise(self) -> int:
        """Return the stage after which operations treat each number by itself, or by its channel."""
        return len(self._steps) - num_pointwise(self._steps)

    def keep(self, stage: int) -> None:
        """Say which stage is kept: 0 for values as they are read."""
        self.stage = stage
        until = len(self._steps) - self._pointwise
        self._before, self._after = Steps(self._steps[:stage]), Steps(self._steps[stage:until])

    def ends_elsewhere(self, arrive: Callable[[list[Any]], list[Any]]) -> None:
        """Let `arrive` move the parts of a batch to where it is wanted.

        What is done last to bytes, each by itself, is done after that, by a table of what becomes of each: the same
        bits on every device.
        """
        self._arrive = arrive
        number = num_pointwise(self._steps)
        states = random_states()
        try:
            self._table = self._table_of(len(self._steps) - number)
        except any_but_signals():  # a stranger's data set, or a sample that a kernel does not suit
            self._table = None
        finally:
            restore_random_states(states)
        self._pointwise = number if self._table is not None else 0
        self.keep(self.num_stages - 1)

    def _table_of(self, since: int) -> Table | None:
        if self._source.ragged and not since:
            return None
        value, _ = self._source.read(torch.tensor([0]))
        last = [step for step in self._steps[since:] if isinstance(step, Kernel)]
        return table_of(last, Steps(self._steps[:since]).run(value))

    def reader(self) -> Callable[[int], Any]:
        """Return a function that reads one sample for `parts`, for a thread of its own."""
        assert self._source.reader is not None
        return self._source.reader()

    @property
    def source(self) -> SampleSource:
        """Return where values come from."""
        return self._source

    def parts(self, indices: torch.Tensor, given: Given | None = None, into: RowView | None = None) -> list[Any]:
        """Return the parts of the samples `indices`, the transform's as it is kept; `given`: what was read of each.

        `into`: where the transform's may be written at once; then `WrittenRows` stands for it.
        """
        value: Value | WrittenRows
        if isinstance(given, ReadValues):
            value, others = given.value, given.others
        elif given is None or self._source.assemble is None:
            value, others = self._source.read(indices)
        else:
            value, others = self._source.assemble(given, None)
        place = self._source.place
        if self.stage and not isinstance(value, WrittenRows):
            in_place = into is not None and self._before.write(value, into)
            value = WrittenRows() if in_place else self._before.run(value)
        elif self._source.ragged and isinstance(value, torch.Tensor):
            value = list(value.split(1))
        return [*others[:place], value, *others[place:]]

    def finish(self, parts: list[Any], stream: torch.Generator | None = None) -> Any:
        """Return the batch that kept `parts` make; random operations draw from `stream`, or from torch's own."""
        place = self._source.place
        if self._looked_up and self._table is not None:
            self._table.check()
            return self.layout.build(parts)
        parts[place] = self._after.run(parts[place], stream)
        if self._arrive is not None:
            parts = self._arrive(parts)
        return self.layout.build(self.looked_up(parts) if self._table is not None else parts)

    @property
    def reads_where_they_lie(self) -> bool:
        """Return whether what is done to kept values may read them where they lie."""
        return not self._looked_up and self._after.begins_compiled

    @property
    def left(self) -> Steps | None:
        """Return what is left to do to kept values before they are put together, None where that is no operation."""
        return None if self._table is not None or self._arrive is not None else self._after

    @property
    def looks_up(self) -> bool:
        """Return whether the last stage is made into batches by a table alone."""
        return self._table is not None and self.stage == self.num_stages - 1 and not self.random

    def looked_up(self, parts: list[Any]) -> list[Any]:
        """Return parts of the last stage as the table makes them."""
        assert self._table is not None
        parts[self._source.place] = self._table.run(parts[self._source.place])
        return parts

    def keep_looked_up(self) -> None:
        """Say that what is kept is what the table makes; nothing is left to do at a batch."""
        self._looked_up = True

    @property
    def is_looked_up(self) -> bool:
        """Return whether what is kept is what the table makes."""
        return self._looked_up

    def rows(self) -> tuple[Rows, ...]:
        """Return the layout of what is kept, of one sample; values of several shapes are as large as some are."""
        if self.stage or not self._source.ragged:
            found = layout_of(self.parts(torch.tensor([0])), 1)
            return () if found is None else found[0].rows
        some = torch.tensor(some_indices(self.num_samples, _SIZED))
        sizes = [value.nbytes for value in self.parts(some)[self._source.place]]
        rows = list(self.layout.rows)
        rows[self._source.place] = Rows((), None, (), each_bytes=sum(sizes) // len(sizes))
        return tuple(rows)


def compiler_of(loader: Any, proven_before: bool = False) -> BatchCompiler | None:
    """Return what makes the batches of `loader`, None where an operation has no kernel or the bits differ.

    Proven on samples spread over the data set, in one batch and alone: the same bits, and the random streams left at
    the same place. `proven_before`: a copy of this process did so, on one thread; one sample is held against here.
    """
    if loader.collate_fn is not torch.utils.data.dataloader.default_collate:
        return None
    states = random_states()
    try:
        source = source_of(loader.dataset)
        steps = None if source is None else _steps(source)
        if source is None or steps is None or not undrawn(states, random_states()):
            return None
        compiler = BatchCompiler(source, steps, len(loader.dataset))
        return compiler if _proven(compiler, loader, few=proven_before) else None
    except any_but_signals():  # a stranger's data set, or a batch that a kernel does not suit
        return None
    finally:
        restore_random_states(states)


def _steps(source: SampleSource) -> list[Step] | None:
    form = source.form
    steps: list[Step] = []
    for operation in flatten(source.transform):
        step = kernel_for(operation, form)
        if step is None or (isinstance(step, RandomKernel) and not step.exact):
            return None
        steps.append(step)
        form = step.after
    return steps if form.kind == "tensor" or (form.kind == "array" and steps) or not steps else None


def _proven(compiler: BatchCompiler, loader: Any, *, few: bool) -> bool:
    chosen = some_indices(len(loader.dataset), _PROVEN_ON)
    for number, some in enumerate((chosen[-1:],) if few else (chosen, chosen[:1], chosen[-2:])):
        asked = detached(loader.dataset)
        seed_streams(_SEED + number)
        before = random_states()
        plain = loader.collate_fn([asked[index] for index in some])
        after = random_states()
        restore_random_states(before)
        if not same(plain, compiler.finish(compiler.parts(torch.tensor(some)))) or not undrawn(after, random_states()):
            return False
    return True
