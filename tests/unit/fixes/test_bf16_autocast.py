"""Forward and backward in bfloat16; weights, gradients, outputs and checkpoints in float32."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from tests.unit.fixes.training import Images, same_bits, train, under
from torch import nn

from flatout.fixes.model.nested_tensors import map_tensors

Pair = namedtuple("Pair", "first second")


@dataclass
class Outputs:
    logits: torch.Tensor
    name: str


class Dtypes(nn.Module):
    """Notes what its layer computes in, and gives tensors in every kind of container."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 4), []

    def forward(self, x):
        y = self.layer(x)
        self.seen.append(y.dtype)
        kinds = {"list": [y, y + 1], "tuple": (y, 3), "pair": Pair(y, None), "object": Outputs(y, "y")}
        return {**kinds, "count": torch.tensor(1), "input": x}


@pytest.fixture
def model():
    return Dtypes()


def step(model, x, **settings):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **settings)
    for _ in range(2):
        outputs = model(x)
        optimizer.zero_grad()
        outputs["list"][0].sum().backward()
        optimizer.step()
    return outputs


def test_layers_compute_in_bfloat16_and_outputs_are_float32_however_nested(model):
    x = torch.ones(2, 4)
    with under("bf16-autocast") as process:
        outputs = step(model, x)
        assert process.site.hits == {"forward pass": 2}
    assert model.seen == [torch.bfloat16] * 2
    found = []
    map_tensors(outputs, lambda tensor: found.append(tensor.dtype) or tensor)
    assert found == [torch.float32] * 5 + [torch.int64, torch.float32]
    assert isinstance(outputs["pair"], Pair) and outputs["object"].name == "y"
    assert outputs["input"] is x
    assert {each.dtype for each in (*model.parameters(), model.layer.weight.grad)} == {torch.float32}


def test_losses_stay_near_and_switched_off_bits_are_equal():
    model, _, losses = train()
    with under("bf16-autocast"):
        under_it, _, near = train()
    assert losses != near
    assert losses == pytest.approx(near, rel=0.05)
    assert {each.dtype for each in under_it.state_dict().values()} == {torch.float32, torch.int64}
    with under("bf16-autocast", on=False):
        plain, _, same = train()
    assert losses == same
    assert same_bits(plain.state_dict(), model.state_dict())


def test_evaluation_and_passes_without_gradients_are_left_alone(model):
    with under("bf16-autocast") as process:
        step(model, torch.ones(2, 4))
        with torch.no_grad():
            model(torch.ones(2, 4))
        model.eval()
        model(torch.ones(2, 4))
        assert process.site.hits == {"forward pass": 2}
    assert model.seen[2:] == [torch.float32] * 2


def test_a_script_under_autocast_is_left_alone(model):
    with under("bf16-autocast") as process:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = model(torch.ones(2, 4))
            assert outputs["list"][0].dtype is torch.bfloat16
            outputs["list"][0].float().sum().backward()
            optimizer.step()
        assert process.site.hits == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_in_other_types_are_left_alone(dtype):
    model = Dtypes().to(dtype)
    with under("bf16-autocast") as process:
        step(model, torch.ones(2, 4, dtype=dtype))
        assert process.site.hits == {}
    assert model.seen == [dtype] * 2


def test_a_model_that_is_cast_later_is_left_alone_from_then_on():
    model = Dtypes()
    with under("bf16-autocast") as process:
        step(model, torch.ones(2, 4))
        model.double()
        step(model, torch.ones(2, 4, dtype=torch.float64))
        assert process.site.hits == {"forward pass": 2}


def test_a_weight_used_without_gradients_first_still_gets_its_gradient():
    class Twice(Images):
        def forward(self, x):
            with torch.no_grad():
                super().forward(x)
            return super().forward(x)

    with under("bf16-autocast"):
        model, _, _ = train(steps=1, model=Twice())
        model, _, _ = train(steps=1, model=model)
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_nothing_is_copied_where_nothing_changes():
    value = {"a": [torch.ones(2), (1, "x")], "b": Pair(torch.ones(1), None), "c": Outputs(torch.ones(1), "n")}
    assert map_tensors(value, lambda tensor: tensor) is value


class Keeping(nn.Module):
    """Keeps what it computes in every kind of place, and gives it back step by step."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.last, self.all, self.named, self.done = None, [], {}, 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.all.clear()
        for layer in self.layers:
            x = layer(x)
            self.all.append(x)
        self.last, self.named["x"], self.mean = x, (x, 1), x.mean(0).detach()
        self.spread = torch.distributions.Normal(x, x.sigmoid() + 0.1)
        return self.steps(x)

    def steps(self, x):
        got = 0
        try:
            for layer in self.layers:
                got = (yield layer(x)) or got
        except KeyError:
            yield layer(x) * 2
        self.done += 1
        return x


def test_what_a_model_keeps_is_float32_and_what_it_gives_step_by_step():
    model = Keeping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    kept = model.all
    with under("bf16-autocast") as process:
        for _ in range(3):
            steps = model(torch.ones(2, 4))
            given = [next(steps), steps.send(3), steps.throw(KeyError("x"))]
            with pytest.raises(StopIteration) as end:
                next(steps)
            model(torch.ones(2, 4)).close()
            found = [*given, end.value.value, model.last, *model.all, model.named["x"][0], model.mean]
            found += [model.spread.loc, model.spread.log_prob(torch.ones(2, 4))]
            assert {each.dtype for each in found} == {torch.float32}
            sum(each.float().sum() for each in found).backward()
            optimizer.step()
        assert model.done == 3
        assert model.all is kept
        assert process.site.hits == {"forward pass": 4}


def test_an_iterator_that_computes_when_it_is_asked_does_so_in_one_type():
    class Lazy(nn.Linear):
        def forward(self, x):
            x = super().forward(x)
            return map(super().forward, [x, x])

    model = Lazy(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with under("bf16-autocast"):
        for _ in range(3):
            sum(each.sum() for each in model(torch.ones(2, 4))).backward()
            optimizer.step()


def test_hooks_of_the_script_inside_see_float32(model):
    seen = []
    with under("bf16-autocast") as process:
        step(model, torch.ones(2, 4))
        model.layer.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
        step(model, torch.ones(2, 4))
        assert process.site.failure == "the script's own hook on Linear would see bfloat16"
    assert seen == [torch.float32] * 2


def test_weight_norm_of_the_old_kind_is_no_hook_of_the_script():
    with pytest.warns(FutureWarning):
        inner = nn.utils.weight_norm(nn.Linear(4, 4))
    model = nn.Sequential(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with under("bf16-autocast") as process:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert process.site.hits == {"forward pass": 2}


def test_transforms_of_the_script_are_in_its_own_type(model):
    with under("bf16-autocast"):
        step(model, torch.ones(2, 4))
        held = {name: value.detach() for name, value in model.named_parameters()}
        call = torch.func.functional_call
        torch.func.grad(lambda held: call(model, held, (torch.ones(2, 4),))["list"][0].sum())(held)
    assert model.seen[-1] is torch.float32


def test_a_part_that_is_put_in_later_keeps_float32():
    class Kept(nn.Linear):
        def forward(self, x):
            self.last = super().forward(x)
            return self.last

    model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with under("bf16-autocast"):
        for number in range(6):
            if number == 3:
                model[1] = Kept(4, 4)
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert model[1].last.dtype is torch.float32
