"""Digests of batches: equal for equal ones, other numbers for others."""

import numpy
import pytest
import torch

from flatout.torch_loader.streamed.batch_digest import digest_of

BATCHES = [
    None,
    1,
    1.0,
    True,
    "1",
    b"1",
    float("nan"),
    0.0,
    -0.0,
    [],
    (),
    {},
    [1, [2]],
    [[1], 2],
    {"x": 1},
    {"y": 1},
    torch.zeros(2, 3),
    torch.zeros(3, 2),
    torch.zeros(2, 3, dtype=torch.float64),
    torch.zeros(2, 3).t().contiguous().t(),
    torch.tensor([0.0, -0.0]),
    torch.zeros(0),
    torch.zeros(2, dtype=torch.complex64).conj(),
    numpy.zeros(4),
    numpy.zeros(4, "i8"),
    numpy.zeros((2, 2)),
    {3, 4},
]


def copied(batch):
    if isinstance(batch, list | tuple):
        return type(batch)(map(copied, batch))
    return batch.clone() if isinstance(batch, torch.Tensor) else batch


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_a_copy_has_the_same_digest(number):
    assert digest_of(copied(BATCHES[number])) == digest_of(BATCHES[number])


def test_others_have_other_digests():
    assert len({digest_of(each) for each in BATCHES}) == len(BATCHES)


def test_one_bit_tells():
    one = torch.rand(1000)
    other = one.clone()
    other.view(torch.int32)[777] ^= 1
    assert digest_of([one]) != digest_of([other])


def test_a_sparse_tensor_has_none():
    with pytest.raises(TypeError):
        digest_of([torch.eye(2).to_sparse()])
