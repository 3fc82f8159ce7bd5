"""Parameters at rest, as a script meets them; `touched`, `adopt` and `copied` of flatout.ranks.sharded.values.

Modules: flatout.ranks.sharded.live_shards and flatout.ranks.sharded.past_python.
"""

import copy
import io
import threading

import pytest
import torch
from torch import nn

from flatout.ranks.sharded import values as values_module
from flatout.ranks.sharded.resting import RestingParameter, resting_in
from flatout.ranks.sharded.values import kinds


def resting(alone, model):
    torch.optim.SGD(model.parameters(), 0.1)
    assert isinstance(model[0].weight, RestingParameter)
    return model


def test_questions_without_values_put_nothing_together(alone, net):
    model = resting(alone, net())
    before = alone.group.exchanges
    weight = model[0].weight
    assert tuple(weight.shape) == (40, 32) and weight.numel() == 1280 and weight.requires_grad and weight.is_leaf
    assert weight.dtype is torch.float32 and weight.grad is None and len(weight) == 40 and weight in {weight}
    assert isinstance(weight, nn.Parameter) and type(weight).__name__ == "Parameter"
    assert sum(one.numel() for one in model.parameters()) == 1280 + 40 + 1280 + 32
    assert alone.group.exchanges == before and not alone.values.live.of(weight).whole


def test_operations_get_the_whole_and_write_to_it(alone, net):
    model, plain = resting(alone, net()), net()
    weight, theirs = model[0].weight, plain[0].weight
    assert torch.equal(weight, theirs) and repr(weight) == repr(theirs)
    assert (weight.detach().numpy() == theirs.detach().numpy()).all()
    with torch.no_grad():
        for one in (weight, theirs):
            torch.manual_seed(3)
            one.add_(1).mul_(0.5)
            nn.init.normal_(one[:3])
            torch._foreach_add_([one], 2.0)
    alone.values.let_go()
    assert not alone.values.live.of(weight).whole
    assert torch.equal(weight.data, theirs.data)


def test_copies_pickles_and_state_dicts(alone, net):
    model, plain = resting(alone, net()), net()
    copied = copy.deepcopy(model)
    assert not alone.values.live.of(copied[0].weight).whole
    with torch.no_grad():
        model[0].weight.zero_()
    assert torch.equal(copied[0].weight, plain[0].weight)
    file = io.BytesIO()
    torch.save(copied, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded[0].weight) is nn.Parameter and torch.equal(loaded[0].weight, plain[0].weight)
    found = copied.state_dict()
    assert [type(one) for one in found.values()] == [torch.Tensor] * 4
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model[0].weight, plain[0].weight)


def test_what_is_held_follows_and_what_is_not_goes_to_rest(alone, net, monkeypatch):
    monkeypatch.setattr(values_module, "_LEAST_ROOM", 1)
    model = resting(alone, net())
    view = model[0].weight.data
    model[2].weight.sum()
    model[0].bias.sum()
    copy.deepcopy(model)[0].weight.sum()
    first, second = (alone.values.live.of(model[at].weight) for at in (0, 2))
    assert first.whole and not second.whole
    with torch.no_grad():
        view.fill_(2.0)
    assert model[0].weight.sum().item() == 2 * 1280


def test_which_parameters_are_shared_out(alone):
    memory = torch.zeros(4096)
    alike = [nn.Parameter(memory.view(64, 64)), nn.Parameter(memory.view(64, 64))]
    part = nn.Parameter(memory[:2048])
    small, other = nn.Parameter(torch.zeros(1023)), nn.Parameter(torch.zeros(1024))
    alone.values.adopt([*alike, part, small, other, nn.Buffer(torch.zeros(2000))])
    assert [alone.values.live.of(one) is not None for one in (*alike, part, small, other)] == [False] * 4 + [True]


def test_other_threads_are_told_that_they_cannot_read(alone, net):
    model, said = resting(alone, net()), []

    def read():
        with pytest.raises(RuntimeError, match="a thread or a forked process cannot"):
            model[0].weight.sum()
        said.append(True)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert said == [True]


def test_arguments_are_looked_through(alone, net):
    model = resting(alone, net())
    first, second = model[0].weight, model[2].weight
    assert [id(one) for one in resting_in(((first, [second]), {"a": {"b": first}}, 3))] == list(
        map(id, (first, second, first))
    )
    shards = [alone.values.live.of(one) for one in (first, second)]
    assert kinds(shards) == [shards] and kinds(shards, most_bytes=6000) == [[shards[0]], [shards[1]]]


def test_own_functions_of_autograd_and_transforms_get_the_whole(alone, net):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weight):
            ctx.save_for_backward(weight)
            return 2 * weight

        @staticmethod
        def backward(ctx, grad):
            assert torch.isfinite(ctx.saved_tensors[0]).all()
            return 2 * grad

    model, plain = resting(alone, net()), net()
    found = Twice.apply(model[0].weight)
    alone.values.let_go()
    assert torch.equal(found, 2 * plain[0].weight)
    found.sum().backward()
    assert model[0].weight.grad.sum().item() == 2 * 1280
    slope = torch.func.grad(lambda one: one.pow(2).sum())(model[2].weight)
    assert torch.equal(slope, 2 * plain[2].weight)
