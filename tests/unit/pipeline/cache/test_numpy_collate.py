"""What is collated quickly is what torch's own function gives: values, types, strides, containers, errors."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.examples import examples
from torch.utils.data import default_collate

from flatout.pipeline.cache import numpy_collate
from flatout.pipeline.cache.numpy_collate import quicker
from flatout.watch.dataset_state import same

QUICK = quicker(default_collate)
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64")
Pair = namedtuple("Pair", "left right")


@st.composite
def batches(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    number = draw(st.integers(1, 5))
    made = [draw(arrays.arrays(dtype, tuple(shape))) for _ in range(number)]
    if draw(st.booleans()):
        made = [one.T for one in made]
    if draw(st.booleans()) and made[0].ndim:
        made = [one[::2] for one in made]
    put = draw(st.sampled_from([lambda x: x, lambda x: (x, 3), lambda x: {"a": x, "b": "c"}, lambda x: Pair(x, [x])]))
    return [put(one) for one in made]


@settings(max_examples=examples(300), deadline=None)
@given(batches())
def test_batches_are_torchs_own(batch):
    assert same(QUICK(batch), default_collate(batch))


def outcome(function, batch):
    try:
        return function(batch)
    except Exception as error:
        return type(error), str(error)


ODD = {
    "two shapes": [np.zeros(3), np.zeros(4)],
    "two types": [np.zeros(3), np.zeros(3, dtype=np.float32)],
    "an array and a number": [np.zeros(()), 3.0],
    "strings": [np.array(["a", "b"])] * 2,
    "objects": [np.array([None, 1])] * 2,
    "dates": [np.array(["2026-01-01"], dtype="datetime64[D]")] * 2,
    "another machine's byte order": [np.zeros(3, dtype=">f4")] * 2,
    "a masked array": [np.ma.masked_array([1.0, 2.0], [True, False])] * 2,
    "long floats": [np.zeros(3, dtype=np.longdouble)] * 2,
    "large": [np.full(5000, 1.5)] * 2,
    "broadcast": [np.broadcast_to(np.float32(3), (4,))] * 2,
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_odd_batches_end_as_with_torch(name):
    wanted, got = outcome(default_collate, ODD[name]), outcome(QUICK, ODD[name])
    assert (got == wanted) if isinstance(wanted, tuple) else same(got, wanted)


def test_rows_of_a_mapped_file_are_collated_quickly(tmp_path, monkeypatch):
    table = np.memmap(tmp_path / "table", dtype=np.float32, mode="w+", shape=(8, 3))
    table[:] = np.arange(24).reshape(8, 3)
    rows = [table[place] for place in (5, 1, 1)]
    wanted = default_collate(rows)
    monkeypatch.setattr(numpy_collate.torchs, "collate_tensor_fn", pytest.fail)
    monkeypatch.setitem(numpy_collate.torchs.default_collate_fn_map, torch.Tensor, pytest.fail)
    assert same(QUICK(rows), wanted)


def test_a_function_that_a_script_has_put_in_is_called(monkeypatch):
    monkeypatch.setitem(
        numpy_collate.torchs.default_collate_fn_map, np.ndarray, lambda batch, *, collate_fn_map=None: "theirs"
    )
    assert QUICK([np.zeros(3)]) == "theirs"


def test_a_collate_function_of_the_scripts_own_is_left():
    assert quicker(list) is list


def test_the_batch_is_memory_of_its_own():
    row = np.zeros(3)
    batch = QUICK([row, row])
    batch[0, 0] = 7.0
    assert row[0] == 0 and batch[1, 0] == 0
