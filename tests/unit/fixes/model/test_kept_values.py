"""Tensors that a model keeps for itself or returns, changed in place whatever holds them."""

from collections import namedtuple

import pytest
import torch
from torch import nn

from flatout.fixes.model.kept_values import Survey, Surveys, change_in_place

Pair = namedtuple("Pair", "a b")


def doubled(tensor):
    return tensor * 2


class Held:
    def __init__(self):
        self.x, self.name = torch.ones(1), "held"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("mean", torch.ones(1))
        self.inner = nn.BatchNorm1d(1)
        self.state, self.history, self.held = torch.ones(1), [torch.ones(1)], {"a": Held()}
        self.size = 3


def test_what_a_class_of_the_scripts_keeps_is_changed_and_its_weights_are_not():
    net = Net()
    history, held = net.history, net.held["a"]
    Survey(net).change_kept(doubled)
    assert net.state.item() == net.mean.item() == 2.0
    assert net.history is history
    assert history[0].item() == 2.0
    assert net.held["a"] is held
    assert held.x.item() == 2.0
    assert net.weight.item() == 1.0
    assert net.inner.running_var.item() == 1.0  # torch's own keep nothing of a pass


def test_modules_below_are_searched_and_each_object_is_changed_once():
    outer = nn.Sequential(Net(), Net())
    shared = [torch.ones(1)]
    outer[0].history = outer[1].history = shared
    Survey(outer).change_kept(doubled)
    assert shared[0].item() == 2.0
    assert outer[1].state.item() == 2.0


def test_a_history_that_grows_is_none_of_a_pass():
    net = Net()
    net.history = [torch.ones(1) for _ in range(257)]
    Survey(net).change_kept(doubled)
    assert net.history[0].item() == 1.0


@pytest.mark.parametrize("hook", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_of_the_scripts_are_told_and_those_of_torch_are_not(hook):
    net = nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 2)))
    assert Survey(net).hooked == ""
    getattr(net[0], hook)(lambda *_: None)
    assert Survey(net).hooked == "Linear"


def test_lists_dictionaries_and_objects_stay_and_tuples_are_made_anew():
    held, inner = Held(), [torch.ones(1)]
    value = {"list": inner, "held": held, "pair": Pair(torch.ones(1), 2)}
    changed = change_in_place(value, doubled)
    assert changed is value
    assert value["list"] is inner
    assert inner[0].item() == held.x.item() == 2.0
    assert type(value["pair"]) is Pair
    assert value["pair"].a.item() == 2.0
    assert change_in_place("text", doubled) == "text"
    assert change_in_place(torch.ones(1), doubled).item() == 2.0


def test_a_circle_ends():
    circle = [torch.ones(1)]
    circle.append(circle)
    assert change_in_place(circle, doubled)[0].item() == 2.0


def test_modules_and_parts_of_torch_are_no_plain_objects():
    value = [nn.Linear(1, 1), torch.Generator(), Held]
    before = value[0].weight
    change_in_place(value, doubled)
    assert value[0].weight is before


def test_a_distribution_is_one():
    value = torch.distributions.Normal(torch.ones(1), torch.ones(1))
    assert change_in_place(value, doubled) is value
    assert value.loc.item() == 2.0


class Site:
    def __init__(self):
        self.on = self.off = None

    def switch(self, on, off):
        self.on, self.off = on, off

    def wrap(self, dotted, make):
        return True


def test_a_survey_is_made_anew_after_a_part_or_a_hook_came():
    site = Site()
    surveys, net = Surveys(site), Net()
    site.on()
    try:
        first = surveys.of(net)
        assert surveys.of(net) is first
        net.more = nn.Linear(1, 1)
        second = surveys.of(net)
        assert second is not first
        surveys._registering(lambda *args: None)(net)
        assert surveys.of(net) is not second
    finally:
        site.off()


def test_a_survey_is_made_anew_now_and_then_in_any_case():
    surveys, net = Surveys(Site()), Net()
    found = [surveys.of(net) for _ in range(64)]
    assert all(each is found[0] for each in found[:63])
    assert found[63] is not found[0]
