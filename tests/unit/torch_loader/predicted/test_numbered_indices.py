"""Indices by the numbers of their batches."""

import pytest

from flatout.torch_loader.predicted.numbered_indices import NumberedIndices
from flatout.torch_loader.worker_pool import IndicesAhead


def test_indices_are_drawn_ahead_and_taken_in_order():
    indices = NumberedIndices(IndicesAhead(iter("abcd"), None), 0)
    assert indices.take() == "a"
    assert indices.has(1)
    assert indices.has(2)
    assert indices.at(2) == "c"
    assert not indices.has(4)  # which is not the next one
    assert [indices.take() for _ in range(3)] == ["b", "c", "d"]
    assert not indices.has(4)
    with pytest.raises(StopIteration):
        indices.take()


def test_a_pass_may_begin_after_its_first_batch():
    ahead = IndicesAhead(iter("abc"), None)
    ahead.take()
    indices = NumberedIndices(ahead, 1)
    assert indices.has(1)
    assert indices.take() == "b"
    assert indices.take() == "c"
