"""Samples as bytes: what is read is what was written, strides and types included."""

import pickle
from collections import OrderedDict, namedtuple

import numpy
import pytest
import torch

from flatout.ranks.input.sample_content import by_columns, packed, unpacked

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


IN_COLUMNS = {
    "pairs": [(torch.randn(3, 4), at) for at in range(9)],
    "tensors": [torch.randn(2) for _ in range(9)],
    "lists": [[torch.tensor(float(at)), torch.tensor(at), "text"] for at in range(9)],
    "halves": [(torch.randn(3).bfloat16(), numpy.ones(2)) for _ in range(9)],
}
NOT_IN_COLUMNS = {
    "few": [(torch.ones(2),)] * 3,
    "named": [Pair(torch.ones(2), at) for at in range(9)],
    "dictionaries": [{"x": torch.ones(2)} for _ in range(9)],
    "kinds": [torch.ones(2)] * 8 + [(torch.ones(2), 1)],
    "lengths": [(torch.ones(2),)] * 8 + [(torch.ones(2), 1)],
    "none": [],
}


@pytest.mark.parametrize("name", IN_COLUMNS)
def test_samples_of_one_form_come_out_of_columns_as_they_were(name):
    samples = IN_COLUMNS[name]
    found, other = sent((by_columns(samples), "other"))
    assert other == "other"
    assert [type(one) for one in found] == [type(one) for one in samples]
    whole, parts = (torch.utils.data.default_collate(one) for one in (samples, found))
    for one, part in zip(whole, parts, strict=True):
        same = torch.equal(one, part) and one.dtype == part.dtype if isinstance(one, torch.Tensor) else one == part
        assert same


@pytest.mark.parametrize("name", NOT_IN_COLUMNS)
def test_other_samples_are_sent_one_by_one(name):
    assert by_columns(NOT_IN_COLUMNS[name]) is NOT_IN_COLUMNS[name]


def test_tensors_of_other_forms_stay_apart():
    shapes = [(torch.ones(at + 1), torch.ones(2, 3).t()) for at in range(9)]
    found, _ = sent((by_columns(shapes), None))
    assert [one.shape for one, _ in found] == [one.shape for one, _ in shapes]
    assert all(two.stride() == (1, 3) for _, two in found)
