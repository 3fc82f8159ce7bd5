"""Random numbers and views as in the default order, while tensors lie channels-last by a fix."""

import pytest
import torch
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from flatout.fixes.model.default_order import DefaultOrder
from flatout.probe.core.seams import Seams

LAST = torch.channels_last


class Site:
    """Wraps as a fix's site does, and keeps why it failed."""

    def __init__(self):
        self.seams, self.failure, self.on_fail = Seams(), "", lambda: None

    def wrap(self, dotted, make):
        return self.seams.wrap(dotted, lambda original, hits: make(original))

    def fail(self, reason):
        self.failure = reason
        self.on_fail()


@pytest.fixture
def site():
    made = Site()
    yield made
    made.seams.undo()


@pytest.fixture
def order(site):
    made = DefaultOrder(site, WeakIdKeyDictionary())
    made.acts, made.inside = True, 1
    return made


def image():
    torch.manual_seed(0)
    return torch.rand(2, 3, 4, 5)


def drawn(draw, value):
    torch.manual_seed(1)
    return draw(value)


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "rand_like", "randn_like", "bernoulli"])
def test_the_same_numbers_are_drawn_as_for_the_default_order(order, name):
    place = functional if "dropout" in name else torch
    wanted = drawn(getattr(place, name), image())
    found = drawn(getattr(place, name), image().contiguous(memory_format=LAST))
    assert torch.equal(found, wanted)
    if name != "bernoulli":
        assert found.is_contiguous(memory_format=LAST)
        order.acts = False
        assert not torch.equal(drawn(getattr(place, name), image().contiguous(memory_format=LAST)), wanted)


def test_a_dropout_in_place_writes_to_its_input(order):
    value = image().contiguous(memory_format=LAST)
    torch.manual_seed(1)
    found = functional.dropout(value, inplace=True)
    assert found is value
    assert torch.equal(value, drawn(functional.dropout, image()))


def test_outside_of_calls_the_order_is_the_scripts(order):
    order.inside = 0
    value = image().contiguous(memory_format=LAST)
    assert not torch.equal(drawn(torch.rand_like, value), drawn(torch.rand_like, image()))


def test_what_asks_for_an_order_itself_gets_it(order):
    value = image().contiguous(memory_format=LAST)
    found = torch.rand_like(value, memory_format=torch.preserve_format)
    assert found.stride() == value.stride()


def test_a_view_that_fails_ends_the_fix_and_is_made(order, site):
    weight = torch.nn.Parameter(image().contiguous(memory_format=LAST))
    order._weights[weight] = True
    value = image().contiguous(memory_format=LAST)
    flat = value.view(2, -1)
    assert torch.equal(flat, image().view(2, -1))
    assert site.failure == "a line flattens a channels-last tensor with view"
    flat[0, 0] = 9.0  # the script writes to the view
    assert value[0, 0, 0, 0] == 9.0


def test_where_the_fix_holds_no_weight_a_view_fails_as_ever(order, site):
    with pytest.raises(RuntimeError, match="view"):
        image().contiguous(memory_format=LAST).view(2, -1)
    assert site.failure == ""


def test_the_data_of_a_weight_that_has_left_it_is_that_of_the_weight(order, site):
    weight = torch.nn.Parameter(image().contiguous(memory_format=LAST))
    order._weights[weight] = True
    data = weight.data

    def put_back():
        weight.data = weight.data.contiguous()

    site.on_fail = put_back
    data.view(2, -1)[0, 0] = 9.0
    assert weight[0, 0, 0, 0] == 9.0
