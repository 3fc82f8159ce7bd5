"""Columns of Arrow arrays, whole or slices of others, in memory or in files from some batch on, are what Arrow lists.

Modules: flatout.pipeline.read.tables.arrow_memory, flatout.pipeline.read.tables.growing_array.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.pipeline.read.tables.collected_columns import CollectedColumns
from flatout.pipeline.read.tables.column_kinds import kind_of
from flatout.pipeline.read.tables.table_columns import TableColumns

pa = pytest.importorskip("pyarrow")

from tests.unit.pipeline.read.tables.random_tables import columns, plain, rows_of, same


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("collected")


@settings(max_examples=examples(300))
@given(st.integers(2, 16).flatmap(lambda number: st.lists(columns(number), min_size=1, max_size=3)), st.data())
def test_slices_of_arrays_are_collected_as_they_are(place, arrays, data):
    number = len(arrays[0])
    cuts = sorted(data.draw(st.lists(st.integers(0, number), max_size=4)))
    to_files = data.draw(st.none() | st.integers(0, len(cuts)))
    names = [f"c{at}" for at in range(len(arrays))]
    collected = CollectedColumns(
        names, [kind_of(array.type) for array in arrays], data.draw(st.sampled_from([0, number]))
    )
    first = data.draw(st.integers(0, 1))
    bounds = [first, *(max(first, cut) for cut in cuts), number]
    for at, (start, end) in enumerate(itertools.pairwise(bounds)):
        if at == to_files:
            collected.to_files(place)
        collected.add([array.slice(start, end - start) for array in arrays])
    assert collected.num_rows == number - first
    made = TableColumns(collected.num_rows, *collected.finish())
    wanted = rows_of(pa.table(dict(zip(names, arrays, strict=True))).slice(first))
    values = made.values(torch.arange(number - first))
    assert same(
        [[plain(value) for value in row] for row in zip(*values, strict=True)], [[*row.values()] for row in wanted]
    )


def test_memory_that_was_taken_beforehand_is_used_and_may_be_too_little():
    for expected in (0, 3, 6, 9):
        collected = CollectedColumns(["a"], [kind_of(pa.int64())], expected)
        collected.add([pa.array([1, 2, 3])])
        collected.add([pa.array([4, 5, 6])])
        made = TableColumns(6, *collected.finish())
        assert made.batch(torch.tensor([5, 0, 3]))["a"].tolist() == [6, 1, 4]


def test_no_rows_are_no_error(place):
    for in_files in (False, True):
        collected = CollectedColumns(["a", "t"], [kind_of(pa.int64()), kind_of(pa.string())])
        if in_files:
            collected.to_files(place)
        collected.add([pa.array([], pa.int64()), pa.array([], pa.string())])
        assert TableColumns(0, *collected.finish()).values(torch.empty(0, dtype=torch.int64)) == [[], []]
