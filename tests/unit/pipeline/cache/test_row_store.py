"""Rows come out of a store as they went in, whatever their type and shape, and it is full when every one is there."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.pipeline.cache.batch_layout import layout_of
from flatout.pipeline.cache.filled_rows import FilledRows
from flatout.pipeline.cache.row_store import RowStore

DTYPES = (torch.uint8, torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.complex64)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3),
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_rows_come_out_as_they_went_in(dtype, shape, order, memory_format):
    rows = torch.randint(0, 2, (10, *shape)).to(dtype)
    if rows.dim() == 4:
        rows = rows.to(memory_format=memory_format)
    layout, _ = layout_of([rows[:1].clone(memory_format=torch.preserve_format)], 1)
    store = RowStore(layout.rows, 10)
    for start in range(0, len(order), 4):
        some = torch.tensor(order[start : start + 4])
        store.fill(some, [rows[some]])
        there = set(order[: start + 4])
        assert store.num_filled == len(there) and store.full == (len(there) == 10)
        every = torch.arange(10)
        assert set(store.missing(every).tolist()) == set(range(10)) - there
    kept = torch.tensor(order)
    taken = store.take(kept)[0]
    assert taken.dtype is dtype and torch.equal(taken, rows[kept])
    assert not rows.numel() or layout_of([taken], len(order))[0].rows == layout.rows


def test_rows_of_a_conjugate_are_its_values():
    rows = torch.randn(3, 2, dtype=torch.complex64)
    store = RowStore(layout_of([rows], 3)[0].rows, 3)
    store.fill(torch.arange(3), [rows.conj()])
    assert torch.equal(store.take(torch.arange(3))[0], rows.conj().resolve_conj())


def test_samples_that_are_written_twice_count_once():
    filled = FilledRows(3)
    filled.add(torch.tensor([0, 1]))
    filled.add(torch.tensor([1, 0, 1]))
    assert not filled.whole and filled.number == 2
    filled.add(torch.tensor([2]))
    assert filled.whole and filled.number == 3


@pytest.mark.parametrize("asked", [[0, 2], [2], [], [0, 0]])
def test_what_is_lacking_is_told_in_the_order_asked(asked):
    filled = FilledRows(3)
    filled.add(torch.tensor([1]))
    assert filled.lacking(torch.tensor(asked, dtype=torch.int64)).tolist() == asked
    filled.all()
    assert not len(filled.lacking(torch.tensor(asked, dtype=torch.int64)))
