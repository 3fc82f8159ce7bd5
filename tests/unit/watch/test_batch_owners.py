"""What of a batch is the data set's own, and what stands in it twice."""

import numpy as np
import pytest
import torch

from flatout.watch.batch_owners import owned, stands_twice
from flatout.watch.memory.object_graph import ObjectGraph


class Rows:
    def __init__(self):
        self.images = torch.arange(24.0).reshape(6, 4)
        self.labels = np.arange(6)
        self.names = ["a", "b"]

    def __getitem__(self, index):
        return self.images[index], self.labels[index], self.names


OWN = {
    "the tensor itself": (lambda rows: rows.images, "a Tensor that is the data set's own"),
    "a list": (lambda rows: [rows.names], "a list that is the data set's own"),
    "a row": (lambda rows: (rows.images[2], 1), "a Tensor that is a view of the data set's memory"),
    "the last element": (lambda rows: rows.images.flatten()[-1:], "a Tensor that is a view of the data set's memory"),
    "a part of an array": (lambda rows: {"y": rows.labels[3:]}, "a ndarray that is a view of the data set's memory"),
    "a tensor of an array": (
        lambda rows: torch.from_numpy(rows.labels)[1:2],
        "a Tensor that is a view of the data set's memory",
    ),
}
NEW = {
    "a copy": lambda rows: rows.images.clone(),
    "picked rows": lambda rows: {"x": rows.images[[0, 2]], "y": rows.labels[[0, 2]]},
    "an empty view": lambda rows: rows.images[:0],
    "plain values": lambda rows: (1, 2.0, "a", None, b"x"),
}


@pytest.mark.parametrize("batch", OWN)
def test_what_is_the_data_sets_own_is_named(batch):
    rows, (make, said) = Rows(), OWN[batch]
    assert owned(make(rows), ObjectGraph(rows)) == said


@pytest.mark.parametrize("batch", NEW)
def test_what_is_new_is_nobodys(batch):
    rows = Rows()
    assert owned(NEW[batch](rows), ObjectGraph(rows)) == ""


def test_deeper_than_six_levels_nothing_is_looked_at():
    rows = Rows()
    deep = rows.images
    for _ in range(7):
        deep = [deep]
    assert owned(deep, ObjectGraph(rows)) == ""
    assert owned(deep[0], ObjectGraph(rows)) != ""


def test_memory_that_stands_in_a_batch_twice_is_found():
    whole, array = torch.arange(8), np.arange(8)
    assert stands_twice([whole, {"again": whole}])
    assert stands_twice((whole[:2], whole[4:]))  # of one memory, though apart
    assert stands_twice([array, array[::2]])
    assert stands_twice([array[:4][:2], array[6:]])
    assert not stands_twice([whole, whole.clone(), array, array.copy()])
    assert not stands_twice([torch.empty(0), torch.empty(0), 3, 3])
