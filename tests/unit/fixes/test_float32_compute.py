"""Forward and backward in float32; weights, gradients, outputs, buffers and checkpoints in float64.

Modules: flatout.fixes.model.narrow_weights.
"""

import math
import warnings

import pytest
import torch
from tests.loops import LOOPS
from tests.unit.fixes.training import Images, same_bits, train, under
from torch import nn

from flatout.fixes import float32_compute
from flatout.schema.run import Header, ModelFacts, Run


class Dtypes(nn.Module):
    """Notes what its layer computes in, and keeps what it made."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.state = nn.Linear(4, 4), [], None
        self.mask = torch.ones(4)  # float32 in any case
        self.double()

    def forward(self, x):
        self.state = self.layer(x)
        self.seen.append((x.dtype, self.layer.weight.dtype, self.state.dtype))
        return {"out": self.state, "mask": self.mask, "count": torch.tensor(1)}


def step(model, *given, number=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(number):
        outputs = model(*given)
        optimizer.zero_grad()
        (outputs["out"] if isinstance(outputs, dict) else outputs).sum().backward()
        optimizer.step()
    return outputs


def test_layers_compute_in_float32_and_all_that_is_seen_outside_is_float64():
    model, x = Dtypes(), torch.ones(2, 4, dtype=torch.float64)
    with under("float32-compute") as process:
        outputs = step(model, x)
        assert process.site.hits == {"forward pass": 2}
    assert set(model.seen) == {(torch.float32,) * 3}
    assert outputs["out"].dtype is model.state.dtype is torch.float64
    assert model.mask.dtype is torch.float32
    assert {each.dtype for each in (*model.parameters(), model.layer.weight.grad)} == {torch.float64}
    assert isinstance(model.layer.weight, nn.Parameter)


def of_images():
    torch.manual_seed(0)
    return Images().double()


def trained(steps=6):
    model = of_images()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        x = torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def test_losses_weights_and_statistics_stay_near_and_switched_off_bits_are_equal():
    model, losses = trained()
    with under("float32-compute") as process:
        under_it, near = trained()
        assert process.site.hits == {"forward pass": 6}
    assert losses != near
    assert losses == pytest.approx(near, rel=1e-4)
    for one, other in zip(model.state_dict().values(), under_it.state_dict().values(), strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)
    assert under_it.norm.running_mean.abs().sum() > 0
    with under("float32-compute", on=False):
        plain, same = trained()
    assert losses == same
    assert same_bits(plain.state_dict(), model.state_dict())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_follow(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = kind(4, 8)
            self.double()

        def forward(self, x):
            return self.cells(x)[0]

    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 2, 4, dtype=torch.float64)
    before = model(x)
    with under("float32-compute") as process:
        outputs = step(model, x, number=1)
        assert process.site.hits == {"forward pass": 1}
    torch.testing.assert_close(before, outputs, rtol=1e-5, atol=1e-5)
    assert model.cells.weight_ih_l0.grad.dtype is torch.float64
    assert model(x).dtype is torch.float64


def test_tied_weights_stay_one_and_get_one_gradient():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).double()
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, dtype=torch.float64)
    model(x).sum().backward()
    wanted, model[0].weight.grad = model[0].weight.grad, None
    with under("float32-compute") as process:
        optimizer.step()
        model(x).sum().backward()
        assert process.site.hits == {"forward pass": 1}
    assert model[1].weight is model[0].weight
    torch.testing.assert_close(model[0].weight.grad, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_inputs_come_through():
    model, x = nn.Linear(4, 1).double(), torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with under("float32-compute") as process:
        optimizer.step()
        (found,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        assert process.site.hits == {"forward pass": 1}
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, model.weight.detach().expand(2, 4), rtol=1e-6, atol=1e-6)


class Writes(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.layer, self.how = nn.Linear(4, 4), how
        self.register_buffer("seen", torch.zeros(4))
        self.double()

    def forward(self, x):
        if self.how == "input":
            x.add_(1)
        elif self.how == "data":
            self.layer.weight.data.mul_(0.5)
        elif self.how == "weight":
            with torch.no_grad():
                self.layer.weight.mul_(0.5)
        elif self.how == "buffer":
            self.seen += x.detach().mean(0)
        elif self.how == "another":
            self.seen = self.seen + 1
        return self.layer(x)


@pytest.mark.parametrize("how", ["input", "data", "weight", "buffer", "another"])
def test_what_a_forward_pass_writes_to_is_written_to(how):
    found = []
    for on in (False, True):
        torch.manual_seed(0)
        model, x = Writes(how), torch.ones(2, 4, dtype=torch.float64)
        with under("float32-compute", on=on):
            step(model, x, number=3)
        assert model.seen.dtype is torch.float64
        found.append((x, model.layer.weight.detach(), model.seen))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4).double(), 0

    def forward(self, x):
        x = x * torch.rand(4).double()
        if x.dtype is not torch.float64 or self.layer.weight.dtype is not torch.float64:
            raise TypeError("float64 is wanted")
        return self.layer(x)


def test_a_call_that_fails_in_float32_is_made_as_it_was_from_the_same_random_numbers():
    results = []
    for on in (False, True):
        torch.manual_seed(3)
        model = Fails()
        with under("float32-compute", on=on) as process:
            results.append(step(model, torch.ones(2, 4, dtype=torch.float64)).detach())
    assert torch.equal(*results)
    assert "a call fails in float32" in process.site.failure


def test_an_error_of_the_script_s_own_is_raised_once_and_nothing_is_lost():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.calls = nn.BatchNorm1d(4).double(), 0

        def forward(self, x):
            self.calls += 1
            x = self.norm(x)
            if self.calls == 2:
                raise ValueError("a bad batch")
            return x

    found = []
    for on in (False, True):
        model, x = Odd(), torch.arange(8, dtype=torch.float64).reshape(2, 4)
        with under("float32-compute", on=on) as process:
            step(model, x, number=1)
            with pytest.raises(ValueError, match="a bad batch"):
                step(model, x, number=1)
            step(model, x, number=1)
        found.append((model.calls, model.norm.running_mean))
    assert process.site.hits == {"forward pass": 2} and not process.site.failure
    assert found[0][0] == found[1][0] == 3
    torch.testing.assert_close(found[0][1], found[1][1])


def test_outputs_that_come_one_by_one_are_left_as_they_were():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4).double()

        def forward(self, x):
            for _ in range(2):
                yield self.layer(x)

    model, x = Steps(), torch.ones(2, 4, dtype=torch.float64)
    with under("float32-compute") as process:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            given = list(model(x))
            assert [each.dtype for each in given] == [torch.float64] * 2
            sum(given).sum().backward()
            optimizer.step()
        assert "one by one" in process.site.failure


def test_hooks_of_the_script_s_own_are_never_shown_float32():
    model, seen = nn.Sequential(nn.Linear(4, 4)).double(), []
    model[0].register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    with under("float32-compute") as process:
        step(model, torch.ones(2, 4, dtype=torch.float64))
        assert "hook" in process.site.failure
    assert set(seen) == {torch.float64}


def test_it_is_offered_to_models_of_float64_alone():
    def run(*dtypes):
        return Run(header=Header(script="a"), models=(ModelFacts(dtypes=dtypes),))

    assert float32_compute.choices(run("float64")) == ({},)
    assert float32_compute.choices(run("float32")).reason == "no model has parameters in float64 only"
    assert float32_compute.choices(run("float64", "float32")) == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(LOOPS))
def test_loops_of_many_kinds_stay_near_in_float64(name):
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings():
            try:
                wanted = LOOPS[name]()
            except Exception as error:
                pytest.skip(f"it does not run in float64: {error}")
            with under("float32-compute"):
                found = LOOPS[name]()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(numbers(wanted), numbers(found), strict=True):
        assert math.isclose(one, other, rel_tol=1e-2, abs_tol=1e-2) or (math.isnan(one) and math.isnan(other))


def numbers(value):
    if isinstance(value, torch.Tensor):
        yield from value.detach().double().flatten().tolist()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item)
    else:
        yield float(value)


def test_a_model_in_float32_trains_as_it_does():
    _, _, losses = train()
    with under("float32-compute") as process:
        assert train()[2] == losses
        assert process.site.hits == {}


class TooSmall(nn.Module):
    """A likelihood whose floor is nothing in float32."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x):
        return self.layer(x).clamp(-1e-300, 1e-300).abs().log().mean()


def test_a_result_that_is_not_finite_is_computed_again_as_it_was():
    model, x = TooSmall(), torch.full((2, 4), 1e3, dtype=torch.float64)
    wanted = model(x)
    with under("float32-compute") as process:
        assert step(model, x, number=1).item() == pytest.approx(wanted.item())
        assert "not finite" in process.site.failure


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x):
        return {"out": self.layer(x), "waves": torch.fft.fft(self.layer(x))}


def test_complex_results_have_the_type_that_they_had():
    model, x = Spectrum(), torch.ones(2, 4, dtype=torch.float64)
    with under("float32-compute") as process:
        assert step(model, x)["waves"].dtype is torch.complex128
        assert process.site.hits == {"forward pass": 2}
