"""Files and copies in the default order: of tensors that lie channels-last, what is written has the usual strides."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from flatout.fixes.model.saved_strides import usual_strides, write_usual_strides
from flatout.probe.core.seams import Seams

LAST = torch.channels_last


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 3, 4, 5), (0, 3, 4, 5)])
def test_the_usual_strides_are_those_of_a_contiguous_tensor(shape):
    plain = torch.rand(shape)
    last = plain.contiguous(memory_format=LAST)
    usual = usual_strides(last)
    assert usual.stride() == torch.empty(shape).stride()
    assert torch.equal(usual, plain)


def test_where_only_a_dimension_of_one_differs_memory_is_shared():
    last = torch.rand(2, 1, 4, 5).contiguous(memory_format=LAST)
    odd = last.as_strided((2, 1, 4, 5), (20, 1, 5, 1))
    usual = usual_strides(odd)
    assert usual.stride() == (20, 20, 5, 1)
    assert usual.data_ptr() == odd.data_ptr()


@pytest.mark.parametrize("tensor", [torch.rand(2, 3), torch.rand(2, 3, 4, 5), torch.rand(2, 3, 4, 5).transpose(0, 1)])
def test_any_other_tensor_is_returned_as_it_is(tensor):
    assert usual_strides(tensor) is tensor


def test_whether_it_needs_a_gradient_is_kept():
    assert usual_strides(torch.rand(2, 3, 4, 5).to(memory_format=LAST).requires_grad_()).requires_grad


class Site:
    def __init__(self):
        self.seams = Seams()

    def wrap(self, dotted, make):
        return self.seams.wrap(dotted, lambda original, hits: make(original))


@pytest.fixture
def written():
    """Writes tensors of one shape in the usual order."""
    site = Site()
    write_usual_strides(site, {torch.Size((2, 3, 4, 5))})
    yield
    site.seams.undo()


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("through", [saved, lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy])
@pytest.mark.parametrize("kind", [torch.Tensor, nn.Parameter])
def test_what_leaves_is_in_the_usual_order_and_the_tensor_stays(written, through, kind):
    value = torch.rand(2, 3, 4, 5).contiguous(memory_format=LAST)
    value = nn.Parameter(value) if kind is nn.Parameter else value
    found = through({"x": value})["x"]
    assert found.is_contiguous()
    assert torch.equal(found, value)
    assert type(found) is kind
    assert value.is_contiguous(memory_format=LAST)


def test_other_shapes_leave_as_they_are(written):
    value = torch.rand(2, 3, 4, 4).contiguous(memory_format=LAST)
    assert saved(value).is_contiguous(memory_format=LAST)


def test_a_shallow_copy_goes_on_to_share_memory(written):
    value = torch.rand(2, 3, 4, 5).contiguous(memory_format=LAST)
    assert copy.copy(value).data_ptr() == value.data_ptr()
