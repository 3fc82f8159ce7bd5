"""An optimizer's state and gradients in the memory order of their weight."""

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from flatout.fixes.model.optimizer_layout import OptimizerLayout

LAST = torch.channels_last


@pytest.fixture
def layout():
    weights, failures = WeakIdKeyDictionary(), []
    made = OptimizerLayout(weights, failures.append)
    made.weights, made.failures = weights, failures
    made.follow()
    yield made
    made.leave()


def weight(*, last=True):
    value = torch.arange(24.0).reshape(2, 3, 2, 2)
    return nn.Parameter(value.contiguous(memory_format=LAST) if last else value)


def step(one, gradient, **named):
    optimizer = torch.optim.SGD([one], lr=0.1, momentum=0.9, **named)
    one.grad = gradient
    optimizer.step()
    return optimizer


def test_a_step_is_given_a_gradient_laid_out_as_the_weight_and_the_script_keeps_its_own(layout):
    one, gradient = weight(), torch.ones(2, 3, 2, 2)
    layout.weights[one] = True
    seen = []
    handle = register_optimizer_step_pre_hook(lambda *_: seen.append(one.grad))
    step(one, gradient)
    handle.remove()
    assert seen[0].is_contiguous(memory_format=LAST)
    assert one.grad is gradient


def test_moments_are_laid_out_anew_after_they_were_loaded(layout):
    one = weight()
    layout.weights[one] = True
    optimizer = step(one, torch.ones(2, 3, 2, 2))
    moment = optimizer.state[one]["momentum_buffer"]
    moment.data = moment.data.contiguous()
    before = moment.clone()
    one.grad = torch.zeros(2, 3, 2, 2)
    optimizer.step()
    assert moment.is_contiguous(memory_format=LAST)
    assert torch.allclose(moment, before * 0.9)


def test_weights_that_are_none_of_ours_are_left(layout):
    one, gradient = weight(last=False), torch.ones(2, 3, 2, 2).contiguous(memory_format=LAST)
    step(one, gradient)
    assert one.grad is gradient
    assert gradient.is_contiguous(memory_format=LAST)


def test_when_it_is_left_what_optimizers_keep_is_in_the_usual_order_again(layout):
    one = weight()
    layout.weights[one] = True
    optimizer = step(one, torch.ones(2, 3, 2, 2).contiguous(memory_format=LAST))
    moment = optimizer.state[one]["momentum_buffer"]
    assert moment.is_contiguous(memory_format=LAST)
    del layout.weights[one]
    one.data = one.data.contiguous()
    layout.leave()
    assert moment.is_contiguous()
    assert one.grad.is_contiguous()
    gradient = torch.ones(2, 3, 2, 2)
    one.grad = gradient
    optimizer.step()  # nobody follows any more
    assert one.grad is gradient


def test_a_failure_is_told_and_the_step_is_made(layout):
    one = weight()
    layout.weights[one] = True
    layout._lend = lambda *_: 1 // 0
    before = one.detach().clone()
    step(one, torch.ones(2, 3, 2, 2))
    assert [type(error) for error in layout.failures] == [ZeroDivisionError]
    assert not torch.equal(one, before)
