"""The user's functions that a backward pass calls are told apart: hooks that look, hooks that change, Functions."""

import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from flatout.probe.backward.python_entries import PythonEntries


def followed(loss, entries=None):
    entries = entries or PythonEntries()
    entries.steps += 1
    entries.begin()
    try:
        loss.backward()
    finally:
        entries.end()
    return {each.place.function.rpartition(".")[2]: each for each in entries.facts()}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return torch.tensor(grad.tolist()) * 2


def test_the_backward_of_a_function_is_told_with_how_it_leaves_torch():
    found = followed(Doubled.apply(torch.ones(3, requires_grad=True)).sum())["backward"]
    assert (found.kind, found.runs, found.observes, found.place.file) == ("function", 1.0, False, __file__)
    assert found.leaves == {"tolist": 1.0}
    assert found.seconds > 0


norms = []


def looks(grad):
    norms.append(grad.norm().item())


def scales(grad):
    return grad * 0.5


def clamps(grad):
    grad.clamp_(-0.1, 0.1)


def look_at(parameter):
    norms.append(parameter.grad.norm())


def zeroes(parameter):
    parameter.grad = None


def of_module(module, inputs, outputs):
    norms.append(outputs[0].sum())


@pytest.mark.parametrize(
    ("hook", "observes"), [(looks, True), (scales, False), (clamps, False), (look_at, True), (zeroes, False)]
)
def test_a_hook_looks_or_changes(hook, observes):
    weight = nn.Parameter(torch.ones(4))
    of_leaf = hook in (look_at, zeroes)
    (weight.register_post_accumulate_grad_hook if of_leaf else weight.register_hook)(hook)
    found = followed((weight * 3).sum())[hook.__name__]
    assert (found.kind, found.observes) == ("hook", observes)


def test_a_hook_that_steps_an_optimizer_is_needed():
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def steps(parameter):
        optimizer.step()

    weight.register_post_accumulate_grad_hook(steps)
    assert not followed((weight * 3).sum())["steps"].observes


def test_hooks_of_modules_are_seen_below_what_torch_puts_around_them():
    layer = nn.Linear(4, 4)
    layer.register_full_backward_hook(of_module)
    found = followed(layer(torch.ones(2, 4, requires_grad=True)).sum())["of_module"]
    assert (found.kind, found.observes) == ("hook", True)


def test_a_forward_pass_that_is_done_again_is_no_hook():
    layer = nn.Linear(4, 4)

    def body(x):
        return layer(x).tanh()

    for reentrant in (True, False):
        x = torch.ones(2, 4, requires_grad=True)
        assert followed(checkpoint(body, x, use_reentrant=reentrant).sum()) == {}


def test_the_profile_function_of_somebody_else_stays():
    def own(frame, event, argument):
        return None

    weight = nn.Parameter(torch.ones(4))
    weight.register_hook(looks)
    sys.setprofile(own)
    try:
        found = followed((weight * 3).sum())
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)
    assert found == {}
    assert sys.getprofile() is None
