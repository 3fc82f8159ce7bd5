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

__all__ = ["BatchCompiler", "EndElsewhere", "compiler_of"]

_PROVEN_ON = 24  # samples, and each of a few by itself
_SIZED = 8  # samples that are looked at for their size
_SEED = 8191


class Stages:
    """What operations make of values, one after the other: each of it may be what is kept."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Take the operations; all of them are done, none by a table."""
        self.random = any(isinstance(step, RandomKernel) for step in steps)
        self.before_pointwise = len(steps) - num_pointwise(steps)  # then numbers are treated alone, or by channel
        self.end_in_table = False  # those after it are done by a table
        self._steps = list(steps)

    @property
    def number(self) -> int:
        """Return the number of stages: one more than there are operations before the first random one, or a table."""
        places = [place for place, step in enumerate(self._steps) if isinstance(step, RandomKernel)]
        return min([*places[:1], self._until]) + 1

    def around(self, stage: int) -> tuple[Steps, Steps]:
        """Return the operations before a stage, and those after it that no table does."""
        return Steps(self._steps[:stage]), Steps(self._steps[stage : self._until])

    def table_for(self, value: Value) -> Table | None:
        """Return what does the last operations to values like `value`, as it is read; None where there is no table."""
        last = [step for step in self._steps[self.before_pointwise :] if isinstance(step, Kernel)]
        return table_of(last, Steps(self._steps[: self.before_pointwise]).run(value))

    @property
    def _until(self) -> int:
        return self.before_pointwise if self.end_in_table else len(self._steps)


class EndElsewhere:
    """How parts become those of a batch where it is wanted: moved there, then what is done last to bytes, by a table.

    That has the same bits on every device.
    """

    def __init__(self, arrive: Callable[[list[Any]], list[Any]], table: Table | None, place: int) -> None:
        """Let `arrive` move parts; `table` is for part `place`."""
        self.table = table
        self.is_looked_up = False  # what is kept is what the table makes: nothing is left to do at a batch
        self._arrive = arrive
        self._place = place

    def reach(self, parts: list[Any]) -> list[Any]:
        """Return parts to which all is done but that."""
        parts = self._arrive(parts)
        return parts if self.table is None else self.looked_up(parts)

    def looked_up(self, parts: list[Any]) -> list[Any]:
        """Return parts of the last stage as the table makes them."""
        assert self.table is not None
        parts[self._place] = self.table.run(parts[self._place])
        return parts


class BatchCompiler:
    """Makes the parts of collated batches.

    The part that the transform makes may be kept at any stage before the first random operation; `stage` is the one
    that is kept, and what is left to do at each batch is what comes after it.
    """

    def __init__(self, source: SampleSource, steps: Sequence[Step], num_samples: int) -> None:
        """Take where values come from, what is done to them, and how many there are."""
        self.num_samples = num_samples
        self.source = source
        self.in_memory = source.in_memory
        self.layout: Layout = source.layout
        self.stages = Stages(steps)
        self.random = self.stages.random  # samples differ from pass to pass
        self.elsewhere: EndElsewhere | None = None
        self.keep(self.num_stages - 1)

    @property
    def num_stages(self) -> int:
        """Return the number of stages."""
        return self.stages.number

    def keep(self, stage: int) -> None:
        """Say which stage is kept: 0 for values as they are read."""
        self.stage = stage
        self.ragged = self.source.ragged and not stage  # values are kept that are of several shapes
        self._before, self.after = self.stages.around(stage)

    def ends_elsewhere(self, arrive: Callable[[list[Any]], list[Any]]) -> None:
        """Let `arrive` move the parts of a batch to where it is wanted.

        What is done last to bytes, each by itself, is done after that, by a table of what becomes of each.
        """
        states = random_states()
        try:
            table = self._table()
        except any_but_signals():  # a stranger's data set, or a sample that a kernel does not suit
            table = None
        finally:
            restore_random_states(states)
        self.elsewhere = EndElsewhere(arrive, table, self.source.place)
        self.stages.end_in_table = table is not None
        self.keep(self.num_stages - 1)

    def _table(self) -> Table | None:
        if self.source.ragged and not self.stages.before_pointwise:
            return None
        value, _ = self.source.read(torch.tensor([0]))
        return self.stages.table_for(value)

    def reader(self) -> Callable[[int], Any]:
        """Return a function that reads one sample for `parts`, for a thread of its own."""
        assert self.source.reader is not None
        return self.source.reader()

    def parts(self, indices: torch.Tensor, given: Given | None = None, into: RowView | None = None) -> list[Any]:
        """Return the parts of the samples `indices`, the transform's as it is kept; `given`: what was read of each.

        `into`: where the transform's may be written at once; then `WrittenRows` stands for it.
        """
        value: Value | WrittenRows
        if isinstance(given, ReadValues):
            value, others = given.value, given.others
        elif given is None or self.source.assemble is None:
            value, others = self.source.read(indices)
        else:
            value, others = self.source.assemble(given, None)
        place = self.source.place
        if self.stage and not isinstance(value, WrittenRows):
            in_place = into is not None and self._before.write(value, into)
            value = WrittenRows() if in_place else self._before.run(value)
        elif self.source.ragged and isinstance(value, torch.Tensor):
            value = list(value.split(1))
        return [*others[:place], value, *others[place:]]

    def finish(self, parts: list[Any], stream: torch.Generator | None = None) -> Any:
        """Return the batch that kept `parts` make; random operations draw from `stream`, or from torch's own."""
        place, elsewhere = self.source.place, self.elsewhere
        if elsewhere is not None and elsewhere.is_looked_up and elsewhere.table is not None:
            elsewhere.table.check()
            return self.layout.build(parts)
        parts[place] = self.after.run(parts[place], stream)
        return self.layout.build(parts if elsewhere is None else elsewhere.reach(parts))

    @property
    def reads_where_they_lie(self) -> bool:
        """Return whether what is done to kept values may read them where they lie."""
        looked_up = self.elsewhere is not None and self.elsewhere.is_looked_up
        return not looked_up and self.after.begins_compiled

    def rows(self) -> tuple[Rows, ...]:
        """Return the layout of what is kept, of one sample; values of several shapes are as large as some are."""
        if self.stage or not self.source.ragged:
            found = layout_of(self.parts(torch.tensor([0])), 1)
            return () if found is None else found[0].rows
        some = torch.tensor(some_indices(self.num_samples, _SIZED))
        sizes = [value.nbytes for value in self.parts(some)[self.source.place]]
        rows = list(self.layout.rows)
        rows[self.source.place] = Rows((), None, (), each_bytes=sum(sizes) // len(sizes))
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
