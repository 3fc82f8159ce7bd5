"""Steps of shares against those of torch, and state dicts; `MemoryAccount` of flatout.ranks.sharded.memory."""

import copy

import pytest
import torch


def trained(alone, model, optimizer, steps, around=True):
    for step in range(steps):
        torch.manual_seed(step)
        loss = model(torch.randn(6, 32)).pow(2).mean()
        optimizer.zero_grad()
        if around:
            with alone.sharding.around([model]):
                loss.backward()
        else:
            loss.backward()
        optimizer.step()


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad", "RMSprop", "Rprop"])
def test_shares_step_as_torch_steps_the_whole(alone, net, name):
    model, plain = net(), net()
    ours = getattr(torch.optim, name)(model.parameters(), 1e-2)
    alone.fits = False
    theirs = getattr(torch.optim, name)(plain.parameters(), 1e-2)
    assert [alone.values.live.of(one[0].weight) is not None for one in (model, plain)] == [True, False]
    for one, optimizer in ((model, ours), (plain, theirs)):
        trained(alone, one, optimizer, 4, around=one is model)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        trained(alone, one, optimizer, 3, around=one is model)
    assert ours.param_groups[0]["params"][0] is model[0].weight
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.detach(), other.detach())
    found, wanted = ours.state_dict(), theirs.state_dict()
    assert found["param_groups"] == wanted["param_groups"]
    for number, state in wanted["state"].items():
        for key, value in state.items():
            torch.testing.assert_close(found["state"][number][key], value)


def test_state_is_not_read_but_by_the_optimizer(alone, net):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    trained(alone, model, optimizer, 1)
    for ask in (
        lambda: optimizer.state[model[0].weight],
        lambda: model[0].weight in optimizer.state,
        lambda: optimizer.state.get(model[0].weight),
        lambda: optimizer.state.pop(model[0].weight, None),
        lambda: optimizer.state.setdefault(model[0].weight, {}),
        lambda: list(optimizer.state),
        lambda: optimizer.state.items(),
        lambda: optimizer.state.values(),
        lambda: copy.deepcopy(optimizer),
    ):
        with pytest.raises(alone.Stopped, match="ask for its state_dict"):
            ask()
    assert optimizer.state[model[0].bias]["step"] == 1
    assert optimizer.state.get(model[0].bias)["step"] == 1
    assert model[0].bias in optimizer.state


def test_a_gradient_that_the_script_changes_is_the_one_that_is_stepped(alone, net):
    model, plain = net(), net()
    ours = torch.optim.SGD(model.parameters(), 0.1)
    alone.fits = False
    theirs = torch.optim.SGD(plain.parameters(), 0.1)
    held = []
    for one, optimizer in ((model, ours), (plain, theirs)):
        for _ in range(2):
            loss = one(torch.ones(6, 32)).pow(2).mean()
            if one is model:
                with alone.sharding.around([model]):
                    loss.backward()
            else:
                loss.backward()
            held.append(one[0].weight.grad)
            one[0].weight.grad.clamp_(-1e-3, 1e-3)
            one[2].weight.grad = torch.ones(32, 40)
            optimizer.step()
    assert held[0] is held[1] and held[2] is held[3]
    torch.testing.assert_close(held[0], held[2])
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.detach(), other.detach())


def test_gradients_are_set_to_zero_or_none_without_being_put_together(alone, net):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    trained(alone, model, optimizer, 1)
    shard = alone.values.live.of(model[0].weight)
    assert shard.grad is None and shard.part.grad is not None
    before = alone.group.exchanges
    optimizer.zero_grad(set_to_none=False)
    assert shard.part.grad is not None and not shard.part.grad.any() and model[0].bias.grad is not None
    model.zero_grad()
    assert shard.part.grad is None and alone.group.exchanges == before and model[0].weight.grad is None


def test_views_see_each_step(alone, net):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    view = model[0].weight.data[0]
    before = view.clone()
    trained(alone, model, optimizer, 2)
    assert not torch.equal(before, view) and torch.equal(view, model[0].weight.data[0])


def test_optimizers_that_do_not_step_by_values_leave_parameters_alone(alone, net):
    model = net()
    torch.optim.LBFGS(model.parameters())
    assert alone.values.live.of(model[0].weight) is None
    assert alone.account.facts["unsharded"] == ["LBFGS does not step each value by itself"]


def test_bytes_are_counted_after_a_step(alone, net):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    trained(alone, model, optimizer, 2)
    found = alone.account.facts["sharded"]
    numbers = 4 * 4 * (1280 + 40 + 1280 + 32) + 4 * 4  # with gradients, two averages, and a count of steps
    assert found["own"] == found["whole"] == numbers
    assert 4 * 1280 <= found["together"] <= 4 * 2560
