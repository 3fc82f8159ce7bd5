"""Strides as `default_collate` gives them."""

import pytest
import torch
from torch.utils.data import default_collate

from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.core.strides import collated, usual_strides

SHAPES = [(2,), (2, 3), (2, 1, 4), (2, 3, 4, 5), (2, 3, 1, 1), (2, 0, 4), (1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_those_of_a_new_tensor_and_of_a_collated_batch(shape):
    assert usual_strides(shape) == torch.empty(shape).stride()
    rows = list(torch.rand(shape))
    assert collated(torch.stack(rows)).stride() == default_collate(rows).stride()


def test_bytes_that_lie_so_already_are_not_copied():
    batch = torch.rand(2, 3, 4)
    assert collated(batch) is batch
    odd = torch.rand(2, 1, 4).as_strided((2, 1, 4), (4, 77, 1))
    made = collated(odd)
    assert made.stride() == (4, 4, 1)
    assert made.data_ptr() == odd.data_ptr()


def test_others_are_copied():
    batch = torch.rand(2, 4, 3).transpose(1, 2)
    made = collated(batch)
    assert made.stride() == (12, 4, 1)
    assert torch.equal(made, batch)


def test_of_more_axes_only_those_are_known_that_lie_so_already():
    assert collated(torch.rand(2, 2, 2, 2, 2)).dim() == 5
    with pytest.raises(Unsuited, match="rows of 4 axes"):
        collated(torch.rand(2, 2, 2, 2, 3).transpose(3, 4))
