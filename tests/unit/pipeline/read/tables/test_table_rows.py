"""A batch of rows is a list: whatever is done to it, it is what the same list of the same rows would be."""

import copy
import heapq
import operator
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from torch.utils.data import DataLoader, default_collate

import flatout
from flatout.pipeline.read.tables.table_rows import TableRows, row_places

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 20


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "x.parquet"
    pq.write_table(pa.table({"row": range(ROWS), "text": [f"t{at}" for at in range(ROWS)]}), path)
    return flatout.table(path)


def plain(rows):
    return [dict(row) if isinstance(row, dict) else row for row in rows]


def by_row(row):
    return -int(row["row"])


OPERATIONS = {
    "append": lambda rows: rows.append({"row": 99}),
    "extend": lambda rows: rows.extend([{"row": 99}]),
    "insert": lambda rows: rows.insert(1, {"row": 99}),
    "pop": lambda rows: rows.pop(),
    "pop the first": lambda rows: rows.pop(0),
    "remove": lambda rows: rows.remove(rows[-1]),
    "clear": lambda rows: rows.clear(),
    "reverse": lambda rows: rows.reverse(),
    "sort": lambda rows: rows.sort(key=by_row),
    "copy": lambda rows: rows.copy(),
    "count": lambda rows: rows.count(None),
    "index": lambda rows: rows.index(rows[-1]),
    "add": lambda rows: rows + [None],  # noqa: RUF005
    "added to": lambda rows: [None] + rows,  # noqa: RUF005
    "added to itself": lambda rows: rows + rows,
    "in place": lambda rows: operator.iadd(rows, [None]),
    "times": lambda rows: rows * 2,
    "times in place": lambda rows: operator.imul(rows, 2),
    "item": lambda rows: rows[1],
    "first": lambda rows: (rows[0], rows[0] is rows[0]),
    "slice": lambda rows: rows[::-2],
    "False is an index": lambda rows: rows[False],
    "set": lambda rows: operator.setitem(rows, 0, None),
    "set a slice": lambda rows: operator.setitem(rows, slice(0, 2), []),
    "delete": lambda rows: operator.delitem(rows, 0),
    "in": lambda rows: None in rows,
    "reversed": lambda rows: list(reversed(rows)),
    "repr": repr,
    "length": len,
    "list": list,
    "tuple": tuple,
    "sorted": lambda rows: sorted(rows, key=by_row),
    "star": lambda rows: [*rows],
    "unpacked": lambda rows: (lambda first, *others: (first, others))(*rows),
    "extends another": lambda rows: [None].extend(rows),
    "put into another": lambda rows: [1, 2, 3].__setitem__(slice(0, 1), rows),
    "zip": lambda rows: list(zip(rows, range(9), strict=False)),
    "array": lambda rows: np.array(rows, dtype=object).tolist(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda rows: pickle.loads(pickle.dumps(rows)),
    "collate": default_collate,
}


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from([*OPERATIONS]), min_size=1, max_size=4), st.integers(2, 6), st.booleans())
def test_a_batch_is_a_list_whatever_is_done_to_it(table, names, number, first):
    places = list(range(3, 3 + number))
    rows, wanted = table.__getitems__(places), [table[at] for at in places]
    assert isinstance(rows, list) and type(rows) is TableRows
    if first:
        rows[0]["row"], wanted[0]["row"] = torch.tensor(7), torch.tensor(7)
    for name in names:
        made = [_done(OPERATIONS[name], each) for each in (rows, wanted)]
        assert _shown(made[0]) == _shown(made[1]), name
        assert len(rows) == len(wanted)
    assert _shown(rows) == _shown(wanted) and rows == wanted and wanted == rows


def _done(operation, rows):
    try:
        return operation(rows)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        return type(error)


def _shown(value):
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.dtype
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list | tuple) else value


def test_a_batch_is_gathered_whole_until_somebody_looks(table):
    assert table.__getitems__([1, 2]).batch() is not None
    rows = table.__getitems__([1, 2])
    list(rows)
    assert rows.batch() is None
    rows = table.__getitems__([1, 2])
    rows.append(table[5])
    assert default_collate(rows)["row"].tolist() == [1, 2, 5]


def test_compiled_code_that_reads_the_memory_of_lists_does_not_take_rows_for_none(table):
    with pytest.raises(pa.ArrowInvalid, match="make a plain list of the batch"):
        pa.array(table.__getitems__([1, 2]))
    with pytest.raises(TypeError):
        heapq.heapify(table.__getitems__([2, 1]))


def sorted_batch(rows):
    rows.sort(key=by_row)
    return default_collate(rows + rows[:1])


def test_a_collate_function_may_treat_a_batch_as_a_list(table):
    batch = next(iter(DataLoader(table, batch_size=3, collate_fn=sorted_batch)))
    assert batch["row"].tolist() == [2, 1, 0, 2] and batch["text"] == ["t2", "t1", "t0", "t2"]


# -- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "indices",
    [
        [0.0],
        [1, 2.0],
        torch.tensor([0.0, 1.0]),
        np.array([1.5]),
        ["1"],
        [None],
        [[1, 2]],
        torch.tensor([[1, 2]]),
        [torch.tensor(1.0)],
    ],
    ids=str,
)
def test_what_is_no_whole_number_is_refused_as_one_index_is(table, indices, tmp_path):
    pq.write_table(pa.table({"row": range(ROWS)}), tmp_path / "x.parquet")
    for each in (table, flatout.table(tmp_path / "x.parquet", shuffle="window")):
        with pytest.raises(TypeError):
            each.__getitems__(indices)


@pytest.mark.parametrize(
    "indices",
    [
        [],
        [0, 19, -1, -20],
        [True, False],
        range(5, 2, -1),
        np.array([3, -2], dtype=np.int16),
        [np.int64(4), torch.tensor(5)],
        torch.tensor([3, -1], dtype=torch.int32),
        torch.tensor([3, 200 - 190], dtype=torch.uint8),
        torch.tensor([True, False]),
    ],
    ids=str,
)
def test_indices_are_whole_numbers_of_any_kind(indices):
    made = row_places(indices, ROWS)
    assert made.dtype is torch.int64 and made.tolist() == [operator.index(one) % ROWS for one in indices]


@pytest.mark.parametrize(
    ("indices", "said"), [([3, 20], 20), ([-21, 3], -21), ([2**70], 2**70), ([-(2**64)], -(2**64))]
)
def test_a_row_that_is_not_there_is_named(table, indices, said):
    with pytest.raises(IndexError, match=f"row {said} of a table of 20 rows"):
        table.__getitems__(indices)
