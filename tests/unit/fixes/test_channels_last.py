"""Convolution weights and images channels-last; files, outputs and everything switched off as they were."""

import copy
import io
import pickle
import sys

import pytest
import torch
from tests.unit.fixes.training import Images, same_bits, train, under
from torch import nn


def is_last(tensor):
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def strides(value):
    if isinstance(value, torch.Tensor):
        return value.stride()
    if isinstance(value, dict):
        return {key: strides(item) for key, item in value.items()}
    return [strides(item) for item in value] if isinstance(value, list | tuple) else value


def test_weights_and_momentum_are_channels_last_and_results_as_close_as_rounding():
    plain, _, losses = train()
    with under("channels-last") as process:
        model, optimizer, near = train()
        assert is_last(model.first.weight) and is_last(optimizer.state[model.first.weight]["momentum_buffer"])
        assert process.site.hits["weights"] == 1
    assert near == pytest.approx(losses, rel=1e-4)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_switched_off_everything_is_in_the_usual_order_again():
    with under("channels-last") as process:
        model, optimizer, _ = train()
        parameters = list(model.parameters())
        process.site.disable()
        assert [id(each) for each in parameters] == [id(each) for each in model.parameters()]
        assert not is_last(model.first.weight)
        assert not is_last(optimizer.state[model.first.weight]["momentum_buffer"])
        train(model=model, optimizer=optimizer)
        assert not is_last(model.first.weight)
        process.site.enable()
        train(steps=1, model=model, optimizer=optimizer)
        assert is_last(model.first.weight) and is_last(optimizer.state[model.first.weight]["momentum_buffer"])


@pytest.mark.parametrize("make", [torch.optim.Adam, lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)])
@pytest.mark.slow
def test_every_kind_of_file_has_the_strides_of_the_plain_script(make):
    plain, plain_optimizer, _ = train(make=make)
    with under("channels-last"):
        model, optimizer, _ = train(make=make)
        live = model.state_dict()["first.weight"]
        for ours, theirs in (
            (model.state_dict(), plain.state_dict()),
            (optimizer.state_dict(), plain_optimizer.state_dict()),
        ):
            wanted = strides(saved(theirs))
            assert strides(saved(ours)) == wanted
            assert strides(saved({"epoch": 1, "nested": [ours]}))["nested"] == [wanted]
            assert strides(pickle.loads(pickle.dumps(ours))) == wanted
        whole = saved(model)
        assert strides(whole.state_dict()) == strides(plain.state_dict())
        assert isinstance(whole.first.weight, nn.Parameter) and whole.first.weight.requires_grad
        assert same_bits(dict(whole.named_parameters())["first.weight"].contiguous(), model.first.weight.contiguous())
        assert live.data_ptr() == model.first.weight.data_ptr()  # what was saved is as it was
        assert is_last(model.first.weight)


def test_a_state_dictionary_still_shares_memory_with_the_model():
    with under("channels-last"):
        model, _, _ = train()
        average = copy.deepcopy(model)
        assert strides(average.state_dict()) == strides(Images().state_dict())
        with torch.no_grad():
            for name, value in average.state_dict().items():
                if value.is_floating_point():
                    value.mul_(0.5).add_(model.state_dict()[name], alpha=0.5)
            model.state_dict()["first.weight"].zero_()
            assert model.first.weight.abs().sum() == 0
            shallow = copy.copy(model.first.weight.data)
            shallow.fill_(2.0)
            assert (model.first.weight == 2.0).all()
        assert average(torch.ones(1, 3, 8, 8)).shape == (1, 5)


class Maps(nn.Module):
    """Gives feature maps back."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)

    def forward(self, x, extra=None):
        self.taken = x
        return {"maps": self.conv(x), "rest": [extra]}


@pytest.mark.parametrize("training", [True, False])
def test_outputs_can_be_viewed_by_the_script_in_training_and_in_evaluation(training):
    with under("channels-last"):
        model = Maps()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(2, 3, 5, 5))["maps"].view(2, -1).sum().backward()
            optimizer.step()
        assert is_last(model.taken)
        model.train(training)
        for one in (model, copy.deepcopy(model)):
            with torch.set_grad_enabled(training):
                assert one(torch.ones(2, 3, 5, 5))["maps"].view(2, -1).shape == (2, 54)


def test_gradients_flow_through_converted_inputs():
    with under("channels-last"):
        model = Maps()
        torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.rand(2, 3, 5, 5, requires_grad=True)
        model(x)["maps"].sum().backward()
        assert x.grad.is_contiguous() and x.grad.abs().sum() > 0


@pytest.mark.parametrize("convolution", [nn.Conv2d(1, 8, 3), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 8, 3, groups=8)])
@pytest.mark.slow
def test_weights_of_one_channel_or_one_pixel_are_laid_out_as_torch_does(convolution):
    model = nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    usual, batch = convolution.weight.stride(), torch.randn(2, convolution.in_channels, 8, 8)
    torchs = copy.deepcopy(convolution).to(memory_format=torch.channels_last)
    assert torchs.weight.stride() != usual
    seen = []
    convolution.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.stride()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with under("channels-last") as process:
        for _ in range(2):
            model(batch).sum().backward()
            optimizer.step()
        assert convolution.weight.stride() == torchs.weight.stride()
        assert seen[-1] == torchs(batch).stride()
        process.site.disable()
        assert convolution.weight.stride() == usual
        model(batch)
        assert len(set(seen)) == 2


def test_models_without_convolutions_and_those_channels_last_already_are_left_alone():
    with under("channels-last") as process:
        linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
        train(model=linear)
        own, _, _ = train(model=Images().to(memory_format=torch.channels_last))
        assert process.site.hits == {}
        assert strides(saved(own.state_dict()))["first.weight"] == own.first.weight.stride()


def test_safetensors_gets_contiguous_tensors(tmp_path, monkeypatch):
    package = tmp_path / "safetensors"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "torch.py").write_text(
        "def save_file(tensors, filename, metadata=None):\n"
        "    assert all(each.is_contiguous() for each in tensors.values())\n"
        "    global written\n"
        "    written = {name: each.stride() for name, each in tensors.items()}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("safetensors", "safetensors.torch"):  # the real one, where other tests have loaded it
        monkeypatch.delitem(sys.modules, name, raising=False)
    with under("channels-last"):
        model, _, _ = train()
        import safetensors.torch

        safetensors.torch.save_file(model.state_dict(), "unused")
        assert safetensors.torch.written == strides(Images().state_dict())
        assert is_last(model.first.weight)
    for name in ("safetensors.torch", "safetensors"):
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.filterwarnings("ignore:grad and param do not obey:UserWarning")  # torch's own, of the script's gradients
@pytest.mark.parametrize(
    "make", [lambda ps: torch.optim.Adam(ps, fused=True), lambda ps: torch.optim.SGD(ps, 0.1, 0.9, fused=True)]
)
@pytest.mark.slow
def test_fused_optimizers_get_gradients_and_moments_in_the_order_of_the_weight(make):
    def run():
        model, optimizer, losses = train(steps=2, make=make)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # moments in the usual order
        for parameter in model.parameters():
            parameter.grad = torch.zeros(parameter.shape)  # and gradients too
        own = [parameter.grad for parameter in model.parameters()]
        optimizer.zero_grad = lambda: [each.zero_() for each in own]
        losses += train(steps=4, model=model, optimizer=optimizer)[2]
        assert all(parameter.grad is each for parameter, each in zip(model.parameters(), own, strict=True))
        return losses

    plain = run()
    with under("channels-last"):
        assert run() == pytest.approx(plain, rel=1e-4)


@pytest.mark.filterwarnings("ignore:grad and param do not obey:UserWarning")
def test_switching_in_the_middle_of_accumulating_gradients_leaves_a_fused_optimizer_right():
    def run(process):
        model, optimizer, losses = train(steps=2, make=lambda ps: torch.optim.Adam(ps, fused=True))
        optimizer.zero_grad = lambda: torch.optim.Optimizer.zero_grad(optimizer, set_to_none=False)
        for turn in range(4):
            if process is not None:
                (process.site.enable if turn % 2 == 0 else process.site.disable)()
            losses += train(steps=2, model=model, optimizer=optimizer)[2]
        return losses

    plain = run(None)
    with under("channels-last", on=False) as process:
        assert run(process) == pytest.approx(plain, rel=1e-4)


class Noisy(nn.Module):
    """Drops elements of feature maps and adds noise to them, in each way that draws in the order of memory."""

    def __init__(self, again=False):
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8 * 16, 5)
        self.again, self.masks = again, []

    def noise(self, x):
        x = nn.functional.dropout(self.first(x), 0.5, self.training)
        self.masks.append((x == 0).detach().clone())
        x = nn.functional.dropout(x.relu() + 1, 0.2, True, inplace=True)
        x = nn.functional.alpha_dropout(x, 0.1, True) + torch.randn_like(x) + torch.rand_like(x)
        return x * torch.bernoulli(torch.full_like(x, 0.7))

    def forward(self, x):
        x = torch.utils.checkpoint.checkpoint(self.noise, x, use_reentrant=False) if self.again else self.noise(x)
        return self.last(self.second(x).flatten(1))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.slow
def test_the_same_elements_are_dropped_and_get_the_same_noise(again):
    torch.manual_seed(3)
    plain = Noisy(again)
    model = copy.deepcopy(plain)
    train(model=plain)
    with under("channels-last") as process:
        train(model=model)
        assert process.site.hits
    assert all(map(torch.equal, model.masks, plain.masks))
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_noise_for_images_that_lie_channels_last_by_themselves_is_what_it_was():
    images = torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    torch.manual_seed(0)
    wanted = torch.randn_like(images), nn.functional.dropout(images)
    with under("channels-last"):
        train()
        torch.manual_seed(0)
        found = torch.randn_like(images), nn.functional.dropout(images)
    assert all(map(same_bits, found, wanted))


def flat(model):
    return torch.cat([each.view(-1) for each in model.parameters()])


VIEWS = {
    "vector": lambda model: torch.nn.utils.parameters_to_vector(model.parameters()).norm(),
    "weight": lambda model: flat(model).sum(),
    "data": lambda model: model.first.weight.data.view(-1).mul_(0.5).sum(),
    "detached": lambda model: model.first.weight.detach().view(8, -1).clamp_(-0.1, 0.1).sum(),
    "gradient": lambda model: model.first.weight.grad.view(-1).mul_(0.5).sum(),
    "map": lambda model: model.first(torch.ones(2, 3, 8, 8)).view(2, -1).sum(),
    "part": lambda model: model.first(torch.ones(2, 3, 8, 8))[:, :4].view(2, -1).sum(),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.slow
def test_a_late_view_of_what_lies_channels_last_ends_the_fix_and_not_the_training(name):
    def run():
        seen = []
        model, optimizer, _ = train()
        for step in range(3):
            if step == 1:
                seen.append(VIEWS[name](model).detach())
            train(steps=1, model=model, optimizer=optimizer, seed=step)
        return [*model.state_dict().values(), *seen]

    wanted = run()
    with under("channels-last") as process:
        found = run()
        assert "channels-last" in process.site.failure
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_view_that_the_script_may_not_make_fails_as_ever():
    with under("channels-last") as process:
        model, _, _ = train()
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            model.last.weight.view(7)
        with pytest.raises(RuntimeError, match="not compatible"):
            torch.ones(3, 4).t().view(-1)
        assert not process.site.failure


@pytest.mark.slow
def test_compiled_beside_it_the_graph_is_one():
    from torch._dynamo.utils import counters

    class Viewing(Images):
        def forward(self, x):
            x = nn.functional.dropout(torch.relu(self.norm(self.first(x))), 0.2, self.training)
            return self.last(self.second(x).flatten(1).view(x.shape[0], -1))

    torch._dynamo.reset()
    counters.clear()
    with under("channels-last") as process:
        model = Viewing()
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            compiled(torch.ones(2, 3, 8, 8)).sum().backward()
            optimizer.step()
        assert not process.site.failure
    assert not counters["graph_break"]
    torch._dynamo.reset()
