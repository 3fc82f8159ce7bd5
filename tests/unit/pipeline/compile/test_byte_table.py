"""What is done last to bytes as one look at a table, where that is proven to give the same."""

import pytest
import torch

from flatout.native import native
from flatout.pipeline.compile.byte_table import looked_up
from flatout.pipeline.compile.kernels.core.kernel import Kernel
from flatout.pipeline.compile.sample_form import SampleForm

SIZES = torch.tensor([[4, 5]])


def kernel(run):
    return Kernel("ToTensor", SampleForm("tensor"), run)


def scaled(batch):
    return batch.permute(0, 3, 1, 2).contiguous().to(torch.float32).div(255)


def by_neighbours(batch):
    return batch.permute(0, 3, 1, 2).contiguous().to(torch.float32).cumsum(-1)


@pytest.mark.skipif(not native.available(), reason="flatout was installed without a C compiler")
def test_operations_of_each_byte_alone_have_a_table_of_what_they_give():
    made = looked_up([kernel(scaled)], kernel(scaled))
    operation = made.compiled(SIZES, True, {})
    batch = torch.randint(0, 256, (2, 4, 5, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(native.operated(operation, batch), scaled(batch))


def test_operations_that_look_at_others_have_none():
    made = looked_up([kernel(by_neighbours)], kernel(by_neighbours))
    assert made.compiled(SIZES, True, {}) is None


def test_a_table_is_made_once_for_each_default_type(monkeypatch):
    tables = []
    monkeypatch.setattr("flatout.pipeline.compile.byte_table.table_of", lambda steps, row: tables.append(row.shape))
    made = looked_up([kernel(scaled)], kernel(scaled))
    for _ in range(2):
        made.compiled(SIZES, True, {})
    made.compiled(SIZES, False, {})
    torch.set_default_dtype(torch.float64)
    try:
        made.compiled(SIZES, False, {})
    finally:
        torch.set_default_dtype(torch.float32)
    assert tables == [(1, 4, 5, 3), (1, 4, 5), (1, 4, 5)]


def test_everything_else_is_that_of_the_whole():
    otherwise = Kernel("all", SampleForm("tensor"), scaled, view=scaled)
    made = looked_up([kernel(scaled)], otherwise)
    assert (made.name, made.run, made.view, made.run_into) == ("all", scaled, scaled, None)
