"""What a function returned comes back to the last bit, in memory of its own, or is not kept."""

import numpy as np
import pytest
import torch

from flatout.kept.kept_result import KeptResult, Unkeepable

NESTED = {"mask": torch.ones(3, 3).triu(), "sizes": (1, [2.5, -0.0]), "kind": torch.float32, "grid": np.eye(3)}


def test_a_nest_comes_back_in_memory_of_its_own():
    kept = KeptResult(NESTED)
    one, other = kept.make(), kept.make()
    assert kept.is_same(one)
    assert kept.is_same(NESTED)
    one["mask"].add_(1)
    one["sizes"][1].append(3)
    one["grid"][0, 0] = 9
    assert kept.is_same(other)
    assert not kept.is_same(one)
    assert kept.num_bytes >= 9 * 4 + 9 * 8


def test_the_last_bit_and_the_type_count():
    assert not KeptResult([0.0]).is_same([-0.0])
    assert not KeptResult([1]).is_same([1.0])
    assert not KeptResult([1]).is_same((1,))
    assert not KeptResult([1]).is_same([True])
    assert not KeptResult(torch.zeros(2)).is_same(-torch.zeros(2))
    assert not KeptResult(torch.ones(2)).is_same(torch.ones(2, dtype=torch.float64))
    assert KeptResult(torch.full((2,), float("nan"))).is_same(torch.full((2,), float("nan")))
    assert not KeptResult(np.zeros(2)).is_same(np.zeros((1, 2)))
    assert not KeptResult({"a": 1, "b": 2}).is_same({"b": 2, "a": 1})


def shared():
    row = [1, 2]
    return [[row], [row]]


def inputs_and_targets():
    tokens = np.arange(9)
    return {"inputs": torch.from_numpy(tokens[:-1]), "targets": torch.from_numpy(tokens[1:])}


def views():
    base = torch.arange(6.0)
    return [base.view(2, 3), base.view(3, 2)]


@pytest.mark.parametrize(
    "value",
    [
        shared(),
        views(),
        inputs_and_targets(),
        [torch.ones(3)] * 2,
        torch.frombuffer(bytearray(16), dtype=torch.float32)[1:],
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(2).to_sparse(),
        np.arange(8)[::2],
        np.array([object()]),
        {1, 2},
        object(),
        {"a": iter([1])},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_parts_elsewhere_is_not_kept(value):
    with pytest.raises(Unkeepable):
        KeptResult(value)


def test_strides_stay():
    for tensor in (torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.ones(3, 4).t()):
        assert KeptResult(tensor).make().stride() == tensor.stride()
    assert KeptResult(np.ones((3, 4)).T).make().flags.f_contiguous


@pytest.mark.parametrize(
    "part", [torch.arange(16.0).view(4, 4)[1:3], torch.arange(8)[::2], torch.ones(1).expand(4), torch.eye(3).t()]
)
def test_a_part_of_a_tensor_comes_with_a_storage_of_its_own_each_time(part):
    kept = KeptResult(part)
    one, other = kept.make(), kept.make()
    assert torch.equal(one, part)
    assert (one.stride(), one.storage_offset(), one._is_view()) == (part.stride(), part.storage_offset(), True)
    assert kept.num_bytes == part.untyped_storage().nbytes()
    assert len({each.untyped_storage().data_ptr() for each in (one, other, part)}) == 3
    assert kept.is_same(part)
    assert not kept.is_same(part.clone())


def test_a_text_is_the_very_one_that_was_returned():
    modes = ["from left to right", b"from right to left"]
    for mode in modes:
        assert KeptResult(mode).make() is mode
        assert KeptResult((np.ones(2), mode)).make()[1] is mode
        assert KeptResult(mode).is_same(type(mode)(mode)) and not KeptResult(mode).is_same(mode[1:])
    assert KeptResult(modes[0]).num_bytes == len(modes[0])
