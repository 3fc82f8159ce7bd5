"""kept-copies in a training: offered for what the recording saw, results the same to the last bit."""

import pytest
import torch
from tests.unit.fixes.training import same_bits, under

from flatout.fixes.kept_copies import choices
from flatout.rules.core.example import example
from flatout.schema.run import Causes, Environment, Frame, Transfer

GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)


def recorded(environment=GPU, **about):
    copy = Transfer(direction="to_device", place=Frame("model.py", 33, "f"), count=40, seconds=0.1, dtype="x", **about)
    return example(step_ms=10, forward=5, environment=environment, causes=Causes(num_steps=40, transfers=(copy,))).run


def test_it_is_offered_for_tensors_that_are_copied_unchanged_to_a_cuda_device():
    assert choices(recorded(repeats=38)) == ({},)
    assert "without having changed" in choices(recorded(repeats=0)).reason
    assert "CUDA" in choices(recorded(Environment(device_kind="cpu"), repeats=38)).reason


def train(steps=14):
    torch.manual_seed(0)
    weight, mask = torch.randn(6, 6, requires_grad=True), torch.ones(6, 6).tril()
    optimizer, losses = torch.optim.SGD([weight], lr=0.1), []
    for step in range(steps):
        if step == 8:
            mask.numpy()[0, 3] = 0.5
        there = mask.to("cpu", copy=True)
        loss = (weight * there).square().mean()
        optimizer.zero_grad()
        loss.backward()
        there.zero_()
        optimizer.step()
        losses.append(loss.item())
    return losses, weight.detach()


@pytest.mark.slow
def test_a_training_is_the_same_to_the_last_bit():
    plain = train()
    with under("kept-copies", kind="cpu") as process:
        ours = train()
        assert process.site.hits["there already"] > 4
        assert not process.site.failure
    assert same_bits(ours, plain)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_stands_back():
    with under("kept-copies") as process:
        train()
        assert process.site.hits == {}
        assert process.site.stood_back == "there is no CUDA device"
