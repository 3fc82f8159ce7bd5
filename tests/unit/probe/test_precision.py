"""What the deep run times of a model that computes in float64: copies of it, nothing of the model itself."""

import copy
import threading

import pytest
import torch

from flatout.probe.precision import PrecisionWatch
from flatout.probe.tape import Tape


def plain_tape():
    """Return the tape of a process in which nothing is traced."""
    tape = Tape(lambda step: None, lambda stretch: None)
    tape.tracing.possible = False
    return tape


def model(dtype=torch.float64):
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2)).to(dtype)


def calls(watch, module, count, *given, **named):
    return [watch.around(module, module.forward)(*given, **named) for _ in range(count)]


def test_both_types_are_timed_on_copies():
    net, x = model(), torch.randn(4, 8, dtype=torch.float64)
    untouched = copy.deepcopy(net)
    watch = PrecisionWatch(plain_tape())
    state = torch.random.get_rng_state()
    results = calls(watch, net, 5, x)
    for _ in range(5):
        untouched(x)
    found = watch.facts()
    assert found.model == "Sequential"
    assert found.n >= 1
    assert min(found.wide_s, found.narrow_s) > 0
    assert all(result.dtype is torch.float64 for result in results)
    assert all(one.grad is None for one in net.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    for one, other in zip(net.state_dict().values(), untouched.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("module", [model(torch.float32), torch.nn.Flatten()])
def test_a_model_without_float64_is_left_alone(module):
    watch = PrecisionWatch(plain_tape())
    calls(watch, module, 6, torch.randn(4, 8))
    assert watch.facts() is None


def test_nothing_is_copied_where_something_may_be_traced():
    tape = plain_tape()
    tape.tracing.possible = True
    watch = PrecisionWatch(tape)
    calls(watch, model(), 6, torch.randn(4, 8, dtype=torch.float64))
    assert watch.facts() is None


class Stubborn(torch.nn.Module):
    """A model that cannot do with float32, cannot be copied, or gives nothing to differentiate."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.weight = torch.nn.Parameter(torch.randn(8, dtype=torch.float64))
        if kind == "lock":
            self.lock = threading.Lock()

    def forward(self, x):
        if self.kind == "type" and self.weight.dtype is not torch.float64:
            raise TypeError("float64 only")
        y = x * self.weight
        return {"y": y.detach()} if self.kind == "detached" else {"y": y}


@pytest.mark.parametrize(("kind", "measured"), [("type", False), ("lock", False), ("detached", True), ("plain", True)])
def test_a_model_that_cannot_be_copied_trains_on(kind, measured):
    watch, module = PrecisionWatch(plain_tape()), Stubborn(kind)
    results = calls(watch, module, 6, torch.randn(4, 8, dtype=torch.float64))
    assert len(results) == 6
    assert all(set(result) == {"y"} for result in results)
    assert (watch.facts() is not None) is measured
