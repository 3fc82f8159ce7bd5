"""Graphs that hold no parameter: what takes its place, and what is found again."""

import pytest
import torch
from torch.nn import functional

from flatout.ranks.local_rows import HERE


def called(alone, model, x):
    """Return what a call that is left whole gives."""
    HERE.whole = True
    try:
        return model(x)
    finally:
        HERE.whole = False


def test_no_graph_holds_the_memory_and_the_gradients_are_right(alone, net):
    model, plain = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(5, 32)
    out = called(alone, model, x) + functional.linear(x, model[2].weight[:, :32] * 2)
    alone.values.let_go()
    assert not any(alone.values.live.of(model[at].weight).whole for at in (0, 2))
    with alone.sharding.around([model]):
        out.pow(2).sum().backward()
    (plain(x) + functional.linear(x, plain[2].weight[:, :32] * 2)).pow(2).sum().backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    assert not any(alone.values.live.of(model[at].weight).whole for at in (0, 2))


def test_a_parameter_written_to_between_forward_and_backward_is_an_error_as_ever(alone, net):
    model = net()
    torch.optim.SGD(model.parameters(), 0.1)
    out = called(alone, model, torch.randn(5, 32)).sum()
    with torch.no_grad():
        model[2].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"), alone.sharding.around([model]):
        out.backward()


def test_transforms_in_a_call_do_not_see_the_notes(alone):
    class Slope(torch.nn.Linear):
        def forward(self, x):
            return torch.func.vmap(torch.func.grad(lambda row: (row @ self.weight.t()).pow(2).sum()))(x)

    torch.manual_seed(0)
    model, x = Slope(40, 40, bias=False), torch.randn(3, 40)
    expected = model(x).detach()
    torch.optim.SGD(model.parameters(), 0.1)
    torch.testing.assert_close(called(alone, model, x).detach(), expected)


def test_hooks_of_the_script_go_first(alone, net):
    model, plain, x = net(), net(), torch.randn(5, 32)
    torch.optim.SGD(model.parameters(), 0.1)
    with torch.autograd.graph.save_on_cpu():
        out = called(alone, model, x)
    alone.values.let_go()
    with alone.sharding.around([model]):
        out.sum().backward()
    plain(x).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad)
