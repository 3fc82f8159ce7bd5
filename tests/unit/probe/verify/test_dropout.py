"""What is dropped while results are compared: the same for every type and every order of memory."""

import pytest
import torch
from torch.nn import functional

from flatout.probe.core.seams import Seams
from flatout.probe.verify import dropout


@pytest.fixture
def alike():
    seams = Seams()
    dropout.install(seams, kind="cpu")
    yield
    seams.undo()


def dropped(values, **options):
    torch.manual_seed(3)
    return functional.dropout(values, 0.4, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_mask_is_that_of_float32(alike, dtype):
    values = torch.randn(8, 3, 4, 4)
    wanted = dropped(values)
    found = dropped(values.to(dtype))
    assert found.dtype is dtype
    assert torch.equal(found != 0, wanted != 0)
    once = (values.to(dtype).float() * (wanted != 0) * (1 / 0.6)).to(dtype)  # rounded once, as torch does it
    torch.testing.assert_close(found, once, rtol=1e-6, atol=0)


def test_the_mask_does_not_follow_the_memory(alike):
    values = torch.randn(8, 3, 4, 4)
    other = values.to(memory_format=torch.channels_last)
    found = dropped(other)
    assert torch.equal(found, dropped(values))
    assert found.stride() == other.stride()


def test_float32_that_is_contiguous_is_torch_s_own_affair(alike):
    values = torch.randn(8, 5)
    found = dropped(values)
    torch.manual_seed(3)
    assert torch.equal(found, torch.dropout(values, 0.4, True))


def test_gradients_and_memory_in_place_are_as_ever(alike):
    values = torch.ones(8, 5, dtype=torch.float64, requires_grad=True)
    dropped(values).sum().backward()
    assert values.grad.unique().tolist() == [0.0, pytest.approx(1 / 0.6)]
    here = torch.ones(8, 5, dtype=torch.float64)
    assert dropped(here, inplace=True) is here
    assert (here == 0).any()


def test_what_is_not_training_is_left_alone(alike):
    values = torch.ones(4, dtype=torch.float64)
    assert functional.dropout(values, 0.5, training=False) is values
    assert torch.equal(functional.dropout(values, 1.0), torch.zeros(4, dtype=torch.float64))


def test_attention_drops_nothing(alike):
    values = torch.randn(1, 2, 4, 8)
    attend = functional.scaled_dot_product_attention
    assert torch.equal(attend(values, values, values, dropout_p=0.9), attend(values, values, values))
    assert torch.equal(attend(values, values, values, None, 0.9, True), attend(values, values, values, is_causal=True))


def test_on_another_device_nothing_changes():
    values = torch.ones(64, 64, dtype=torch.bfloat16)
    wanted = dropped(values)
    seams = Seams()
    dropout.install(seams)
    found = dropped(values)
    seams.undo()
    assert torch.equal(found, wanted)
