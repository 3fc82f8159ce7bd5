"""Gradients clipped by their norm over shares, against torch's own."""

import pytest
import torch


def with_gradients(alone, model, around):
    loss = model(torch.ones(4, 32)).pow(2).sum()
    if around:
        with alone.sharding.around([model]):
            loss.backward()
    else:
        loss.backward()
    return list(model.parameters())


@pytest.mark.parametrize("order", [2.0, 1.0, torch.inf, 3])
def test_norm_and_gradients_are_those_of_torch(alone, net, order):
    model, plain = net(), net()
    torch.optim.SGD(model.parameters(), 0.1)
    ours, theirs = with_gradients(alone, model, True), with_gradients(alone, plain, False)
    found = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3, order)
    assert alone.values.live.of(ours[0]).grad is None  # nothing was put together
    torch.testing.assert_close(found, torch.nn.utils.clip_grad_norm_(theirs, 0.3, order))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_norm_that_is_not_finite_is_an_error_where_it_is_to_be_one(alone, net):
    model = net()
    torch.optim.SGD(model.parameters(), 0.1)
    with_gradients(alone, model, True)
    alone.values.live.of(model[0].weight).part.grad[3] = torch.nan
    assert torch.isnan(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    with pytest.raises(RuntimeError, match="non-finite"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
