"""Reductions of a forward pass that are slow on the CPU: which, where, and what comes to the same."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flatout.probe.model import slow_reductions
from flatout.probe.model.slow_reductions import _OTHERS, ReductionWatch


class Model(nn.Module):
    """What is done to a batch, after a weight."""

    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.body = body

    def forward(self, x):
        return self.body(x * self.weight)


def watched(body, shape=(2, 200_000), steps=8, possible=False):
    """Return what was found in a training of a model."""
    model, watch = Model(body), ReductionWatch(SimpleNamespace(tracing=SimpleNamespace(possible=possible)))
    for _ in range(steps):
        watch.around(model, model)(torch.rand(shape)).float().sum()
        watch.step()
    return watch.facts()


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        (lambda x: x.norm(dim=0), "linalg_vector_norm"),
        (lambda x: nn.functional.normalize(x, dim=0), "linalg_vector_norm"),
        (lambda x: x.var(0), "var"),
        (lambda x: x.std(dim=0, keepdim=True), "std"),
        (lambda x: x.argmax(0), "argmax"),
        (lambda x: x.argmin(dim=0), "argmin"),
    ],
)
@pytest.mark.slow
def test_reductions_over_a_dimension_are_timed_in_two_ways(body, operation):
    (found,) = watched(body)
    assert found.operation == operation
    assert found.instead
    assert 0 < found.seconds <= found.whole_s
    assert found.alone_s > 0 < found.other_s
    assert found.place is not None
    assert found.place.file == __file__


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x.norm(),  # over everything
        lambda x: x.norm(p=1, dim=0),
        lambda x: x.sum(0),
        lambda x: x.reshape(8, -1).std(dim=0, correction=2),  # a divisor that the other way has no name for
        lambda x: x.to(torch.complex64).norm(dim=0),
        lambda x: x[:, :0].norm(dim=0),
    ],
)
@pytest.mark.slow
def test_other_reductions_are_not(body):
    assert not [each for each in watched(body) if each.alone_s]


def test_what_takes_next_to_nothing_is_not_timed(monkeypatch):
    monkeypatch.setattr(
        slow_reductions, "perf_counter_ns", itertools.count(step=1000).__next__
    )  # 1 us, on a busy machine too
    (found,) = watched(lambda x: x.norm(dim=0), shape=(2, 10))
    assert found.alone_s == found.other_s == 0


@pytest.mark.parametrize(("steps", "possible"), [(5, False), (8, True)])
def test_nothing_is_said_too_early_or_of_what_is_compiled(steps, possible):
    assert watched(lambda x: x.norm(dim=0), steps=steps, possible=possible) == ()


@pytest.mark.slow
def test_the_costliest_line_comes_first():
    def body(x):
        small = x[:, :60_000].norm(dim=0)
        return small.sum() + x.norm(dim=0).sum()

    first, second = watched(body)
    assert first.seconds > second.seconds
    assert first.place.line == second.place.line + 1


@pytest.mark.parametrize("dim", [0, 1, -1, (0, 2)])
def test_the_other_ways_come_to_the_same(dim):
    x = torch.rand(7, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = {name: function for name, (_, function, _) in _OTHERS.items()}
    assert torch.allclose(other["linalg_vector_norm"](x, dim), torch.linalg.vector_norm(x, dim=dim))
    number = x.numel() // x.sum(dim).numel()
    assert torch.allclose(other["var"](x, dim) / (number - 1), x.var(dim))
    if isinstance(dim, int):
        assert torch.equal(other["argmax"](x, dim), x.argmax(dim))
        assert torch.equal(other["argmin"](x, dim), x.argmin(dim))


@pytest.mark.parametrize(
    ("body", "divisor"),
    [
        (lambda x: x.var(0), "/ (n - 1)"),
        (lambda x: x.var(0, unbiased=False), "/ n"),
        (lambda x: x.std(dim=0, correction=0), "/ n"),
        (lambda x: x.std(dim=0, correction=1), "/ (n - 1)"),
    ],
)
@pytest.mark.slow
def test_the_other_way_divides_as_the_script_does(body, divisor):
    (found,) = watched(body)
    assert found.instead.endswith(divisor)
