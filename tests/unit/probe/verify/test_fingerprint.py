"""The same bits give the same fingerprint, whatever holds them; other bits another one."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from flatout.probe.verify.fingerprint import batch_print, tensor_prints


def test_layout_does_not_count():
    images = torch.randn(6, 3, 5, 5)
    assert batch_print(images) == batch_print(images.clone(memory_format=torch.channels_last))
    assert tensor_prints([images]) == tensor_prints([images.clone(memory_format=torch.channels_last)])


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.flip(1),
        lambda x: x * (1 + 2**-23),
        lambda x: x.double(),
        lambda x: torch.cat([x[1:], x[:1]]),
        lambda x: x[:, :-1],
        lambda x: [x],
        lambda x: {"x": x},
        lambda x: (x, 1),
    ],
)
def test_other_values_types_shapes_or_containers_count(other):
    x = torch.randn(8, 12)
    assert batch_print(other(x)) != batch_print(x)


def test_each_sample_has_its_own_print():
    x, y = torch.randn(10, 7), torch.arange(10)
    changed = x.clone()
    changed[4, 2] += 1
    one, other = batch_print((x, y)).rows, batch_print((changed, y)).rows
    differing = [place for place in range(10) if one[place * 16 :][:16] != other[place * 16 :][:16]]
    assert differing == [4]


def test_samples_keep_their_prints_when_batches_are_cut_elsewhere():
    x, y = torch.randn(12, 3), torch.arange(12)
    whole = batch_print([x, y])
    halves = [batch_print([x[:5], y[:5]]), batch_print([x[5:], y[5:]])]
    assert whole.rows == halves[0].rows + halves[1].rows
    assert {half.rest for half in halves} == {whole.rest}


def test_every_kind_of_tensor_has_a_print():
    kinds = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64, torch.complex128]
    tensors = [torch.ones(3, 5, dtype=kind) for kind in kinds]
    tensors += [
        torch.tensor(2.0),
        torch.zeros(0, 4),
        torch.eye(3).to_sparse(),
        torch.randn(4, dtype=torch.cfloat).conj(),
    ]
    assert len(tensor_prints(tensors)) == 16 * len(tensors)
    for tensor in tensors:
        assert batch_print({"a": tensor, "b": [None, "text", 3]}).rest


@given(st.integers(0, 2**31 - 1), st.integers(16, 40), st.integers(1, 6))
def test_a_parameter_whose_rows_have_all_moved_is_seen(seed, rows, words):
    x = torch.randn(rows, 2 * words, generator=torch.Generator().manual_seed(seed))
    assert tensor_prints([x]) != tensor_prints([x.roll(1, 0)])


@given(st.integers(0, 2**31 - 1), st.integers(1, 40), st.integers(1, 40))
def test_a_move_by_one_unit_in_the_last_place_is_seen(seed, rows, columns):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    moved = x.clone()
    at = (seed % rows, seed % columns)
    moved[at] = torch.nextafter(x[at], torch.tensor(torch.inf))
    assert tensor_prints([x]) != tensor_prints([moved])
    assert batch_print(x).rows != batch_print(moved).rows
