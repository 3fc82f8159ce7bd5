"""What the deep run times of a model that computes in float64: copies of it, nothing of the model itself."""

import copy
import threading

import pytest
import torch

from flatout.probe.core.event_log import EventLog
from flatout.probe.model.precision import PrecisionWatch


def plain_tape():
    """Return the tape of a process in which nothing is traced."""
    event_log = EventLog(lambda step: None, lambda stretch: None)
    event_log.tracing.possible = False
    return event_log


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
    assert watch.facts() is None  # nothing before the script has ended
    watch.measure()
    found = watch.facts()
    assert found.model == "Sequential"
    assert found.n >= 1
    assert min(found.float64_s, found.float32_s) > 0
    assert all(result.dtype is torch.float64 for result in results)
    assert all(one.grad is None for one in net.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    for one, other in zip(net.state_dict().values(), untouched.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("module", [model(torch.float32), torch.nn.Flatten()])
def test_a_model_without_float64_is_left_alone(module):
    watch = PrecisionWatch(plain_tape())
    calls(watch, module, 6, torch.randn(4, 8))
    watch.measure()
    assert watch.facts() is None


def test_nothing_is_copied_where_something_may_be_traced():
    event_log = plain_tape()
    event_log.tracing.possible = True
    watch = PrecisionWatch(event_log)
    calls(watch, model(), 6, torch.randn(4, 8, dtype=torch.float64))
    watch.measure()
    assert watch.facts() is None


class Stubborn(torch.nn.Module):
    """A model that a copy in float32 says nothing of, or that cannot be copied, or that writes to what it is given."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.weight = torch.nn.Parameter(torch.randn(8, dtype=torch.float64))
        if kind == "lock":
            self.lock = threading.Lock()
        elif kind == "mixed":
            self.embedding = torch.nn.Parameter(torch.randn(64))
        elif kind == "hook":
            self.register_forward_hook(lambda module, given, result: None)

    def forward(self, x):
        if self.kind == "type" and self.weight.dtype is not torch.float64:
            raise TypeError("float64 only")
        if self.kind == "writes":
            x.add_(1.0)
        y = x * self.weight
        if self.kind == "constant":
            y = y + torch.ones(8, dtype=torch.float64)
        elif self.kind == "default":
            y = y + torch.ones(8)
        return {"y": y.detach()} if self.kind == "detached" else {"y": y}


KINDS = {
    **dict.fromkeys(["type", "lock", "mixed", "hook", "constant"], False),
    **dict.fromkeys(["detached", "writes", "default", "plain"], True),
}


@pytest.mark.parametrize(("kind", "measured"), KINDS.items())
def test_a_model_is_measured_only_where_its_copy_says_something_of_it(kind, measured):
    watch, module = PrecisionWatch(plain_tape()), Stubborn(kind)
    x = torch.zeros(4, 8, dtype=torch.float64)
    results = calls(watch, module, 6, x)
    watch.measure()
    assert all(set(result) == {"y"} for result in results)
    assert x.unique().tolist() == ([6.0] if kind == "writes" else [0.0])  # once for each call of the script's
    assert (watch.facts() is not None) is measured
    assert torch.get_default_dtype() is torch.float32


def test_what_a_call_is_given_besides_tensors_keeps_its_model_from_being_measured():
    class Cached(Stubborn):
        def forward(self, x, cache):
            cache.setdefault("calls", []).append(len(x))
            return x * self.weight

    class Cache(dict):
        pass

    watch, cache = PrecisionWatch(plain_tape()), Cache()
    calls(watch, Cached("plain"), 6, torch.zeros(4, 8, dtype=torch.float64), cache=cache)
    watch.measure()
    assert watch.facts() is None
    assert cache["calls"] == [4] * 6


def test_ranks_that_train_together_are_left_alone(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    watch = PrecisionWatch(plain_tape())
    calls(watch, model(), 6, torch.randn(4, 8, dtype=torch.float64))
    watch.measure()
    assert watch.facts() is None
