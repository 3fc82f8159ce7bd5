"""Samples as bytes: what is read is what was written, strides and types included."""

import pickle
from collections import OrderedDict, namedtuple

import numpy
import pytest
import torch

from flatout.ranks.input.sample_content import packed, unpacked

Pair = namedtuple("Pair", "one two")


def sent(thing, alone=False):
    return unpacked(memoryview(bytearray(b"".join(packed(thing)))), alone=alone)


SAMPLES = {
    "tensor": torch.randn(3, 4),
    "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
    "a part": torch.randn(6, 8)[1:4, 2:7],
    "every second": torch.arange(12.0)[::2],
    "expanded": torch.ones(1, 3).expand(4, 3),
    "half": torch.randn(5).bfloat16(),
    "bool": torch.randn(5) > 0,
    "complex": torch.randn(2, dtype=torch.complex64),
    "conjugate": torch.randn(2, dtype=torch.complex64).conj(),
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(3.5),
    "sparse": torch.ones(2, 2).to_sparse(),
}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_tensors(name, alone):
    value = SAMPLES[name]
    found = sent([value, {"again": value}], alone)[1]["again"]
    assert (found.dtype, found.shape, found.layout) == (value.dtype, value.shape, value.layout)
    assert torch.equal(found.to_dense(), value.to_dense())
    if value.layout is torch.strided:
        assert found.stride() == value.stride()


def test_everything_else():
    thing = {
        "array": numpy.arange(6.0).reshape(2, 3).T,
        "objects": numpy.array([None, "a"], dtype=object),
        "number": numpy.float32(0.1),
        "pair": Pair(1, [2.5, None, True]),
        "ordered": OrderedDict(b=1, a="text"),
        "nan": float("nan"),
    }
    found = sent(thing)
    assert found["array"].tolist() == thing["array"].tolist()
    assert found["array"].strides == thing["array"].strides
    assert found["objects"].tolist() == [None, "a"]
    assert repr(found["number"]) == repr(thing["number"])
    assert found["pair"] == thing["pair"]
    assert type(found["pair"]) is Pair
    assert list(found["ordered"]) == ["b", "a"]
    assert repr(found["nan"]) == "nan"


def test_alone_has_each_tensor_in_memory_of_its_own():
    some, others = sent([torch.ones(3), numpy.ones(3), torch.ones(5)], alone=True)[::2]
    assert (some.untyped_storage().nbytes(), others.untyped_storage().nbytes()) == (12, 20)
    some += 1
    assert others.tolist() == [1.0] * 5


def test_a_small_part_of_large_memory_is_not_sent():
    with pytest.raises(pickle.PicklingError, match="a part of larger memory"):
        packed(torch.zeros(1000, 1000)[:, :2])
    assert sum(piece.nbytes for piece in packed(torch.zeros(1000, 1000)[3])) < 6000
