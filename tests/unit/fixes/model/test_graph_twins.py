"""Backward passes that compiled code cannot serve: gone through with the code it was made from, to the same result."""

import copy

import pytest
import torch
from tests.unit.fixes.training import under
from torch import nn
from torch.nn.functional import cross_entropy

from flatout.fixes.model.graph_twins import TwinBackend

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:Using backward"),
]


@pytest.fixture
def quickly(monkeypatch):
    """Have graphs cut in two as for inductor, and run without generated code."""
    from functorch.compile import min_cut_rematerialization_partition, nop
    from torch._dynamo.backends.common import aot_autograd

    cut = aot_autograd(fw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
    monkeypatch.setattr("flatout.fixes.compiled_module._inductor", lambda graph, inputs, *, options: cut(graph, inputs))
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Two heads on a body with everything that a call must be made again from: buffers, noise, a view."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 8))
        self.one, self.two = nn.Linear(8, 4), nn.Linear(8, 1)
        self.register_buffer("offset", torch.zeros(8))

    def forward(self, x):
        h = torch.relu(self.body(x) + self.offset)
        return self.one(h), self.two(h).squeeze(1)


def retained(model, x, first, second, optimizer):
    torch.autograd.grad(first, model.body[0].weight, retain_graph=True)
    return first + second


def penalty(model, x, first, second, optimizer):
    (slope,) = torch.autograd.grad(first, x, create_graph=True)
    return first + second + slope.square().sum()


def product(model, x, first, second, optimizer):
    held = list(model.parameters())
    slopes = torch.autograd.grad(first, held, create_graph=True, allow_unused=True)
    norm = sum(slope.square().sum() for slope in slopes if slope is not None)
    curved = torch.autograd.grad(norm, held, retain_graph=True, allow_unused=True)
    return first + second + norm + sum(each.sum().detach() for each in curved if each is not None)


def third(model, x, first, second, optimizer):
    value = first
    for _ in range(2):
        (slope,) = torch.autograd.grad(value, model.one.weight, create_graph=True)  # not x: batch_norm has no third
        value = slope.square().sum()
    return first + second + value


def kept_on(model, x, first, second, optimizer):
    first.backward(create_graph=True)
    norm = sum(parameter.grad.square().sum() for parameter in model.body.parameters())
    optimizer.zero_grad()
    return second + norm


def step_between(model, x, first, second, optimizer):
    first.backward(retain_graph=True)
    torch.optim.SGD(model.one.parameters(), lr=0.1).step()
    optimizer.zero_grad()
    return second


def buffer_written(model, x, first, second, optimizer):
    model.offset.add_(0.25)
    return first + second


def batched(model, x, first, second, optimizer):
    rows = torch.stack([first, second])
    (slopes,) = torch.autograd.grad(rows, model.one.weight, torch.eye(2), is_grads_batched=True, retain_graph=True)
    return first + second + slopes.square().sum().detach()


LATE = (retained, penalty, product, third, kept_on, step_between, buffer_written, batched)


def train(model, late, steps=12):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x, y = torch.randn(16, 8, requires_grad=True), torch.randint(0, 4, (16,))
        one, two = model(x)
        loss = first = cross_entropy(one, y)
        second = two.square().mean()
        loss = late(model, x, first, second, optimizer) if step in (8, 9) else first + second
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [*model.state_dict().values(), loss.detach(), torch.rand(3)]


def compared(late):
    torch.manual_seed(0)
    plain = Net()
    model = copy.deepcopy(plain)
    wanted = train(plain, late)
    with under("compiled-module") as process:
        found = train(model, late)
        assert process.site.hits == {"forward pass": 11}
        assert not process.site.failure
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.few(3)
def test_a_late_step_that_compiled_code_cannot_serve_comes_out_as_plain(quickly, late):
    compared(late)


def test_generated_code_is_served_too():
    compared(product)
    compared(step_between)
    torch._dynamo.reset()


def test_what_the_script_itself_may_not_do_is_refused_as_ever(quickly):
    def twice(model, x, first, second, optimizer):
        first.backward()
        return first + second

    def overwritten(model, x, first, second, optimizer):
        with torch.no_grad():
            model.two.weight.add_(1)
        return first + second

    for late, words in ((twice, "a second time"), (overwritten, "modified by an inplace operation")):
        for fix in (False, True):
            with pytest.raises(RuntimeError, match=words):
                compared(late) if fix else train(Net(), late)


def test_inputs_are_let_go_with_the_graph(quickly):
    import weakref

    with under("compiled-module"):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            x = torch.randn(16, 8)
            gone = weakref.ref(x)
            loss = sum(each.square().mean() for each in model(x))
            loss.backward()
            optimizer.step()
        del x
        assert loss.grad_fn is not None
        assert gone() is None


class Views(nn.Module):
    """Several views of one tensor, and the input itself."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        h = self.linear(x)
        return h[:, :4], h[:, 4:], x


class ViewsOfInput(Views):
    """Views of the input beside."""

    def forward(self, x):
        h = self.linear(x)
        return h[:, :4], h.relu(), x[:, 1:]


@pytest.mark.parametrize("kind", [Views, ViewsOfInput])
def test_outputs_that_are_views_of_one_tensor_are_served(quickly, kind):
    def run():
        torch.manual_seed(0)
        model = kind()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            x = torch.randn(16, 8, requires_grad=True)
            one, two, three = model(x)
            (slope,) = torch.autograd.grad(one.square().mean() * two.mean(), x, create_graph=True)
            optimizer.zero_grad()
            (slope.square().mean() + three.mean()).backward()
            optimizer.step()
        return model.state_dict()

    wanted = run()
    with under("compiled-module"):
        found = run()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value)


def test_transforms_checkpoints_and_modes_of_the_script_see_each_operation(quickly):
    from torch.utils.checkpoint import checkpoint
    from torch.utils.flop_counter import FlopCounterMode

    with under("compiled-module") as process:
        model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(16, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(x).sum().backward()
            optimizer.step()
        before = dict(process.site.hits)
        params = {name: value.detach() for name, value in model.named_parameters()}
        slopes = torch.func.grad(lambda held: torch.func.functional_call(model, held, (x,)).sum())(params)
        assert slopes["0.weight"].shape == (8, 8)
        _, tangent = torch.func.jvp(lambda one: model(one), (x,), (torch.ones_like(x),))
        assert tangent.shape == x.shape
        checkpoint(model, x, use_reentrant=False).sum().backward()
        with FlopCounterMode(display=False) as counter:
            model(x)
        assert counter.get_total_flops() == 2 * 16 * 8 * 8
        assert process.site.hits == before


def test_a_graph_that_fails_to_compile_runs_as_it_is():
    told = []

    def broken(graph, inputs):
        raise RuntimeError("no")

    function = torch.compile(lambda x: x.sin() + 1, backend=TwinBackend(broken, told.append, copies=True))
    assert torch.equal(function(torch.ones(3)), torch.ones(3).sin() + 1)
    assert [str(error) for error in told] == ["no"]
    torch._dynamo.reset()
