"""Which calls of a step are known to have another form, where they stand, and what is left alone.

Modules: flatout.probe.forward.pairwise_differences
"""

from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from flatout.probe.forward.slow_forms import FormWatch


class Network(nn.Module):
    """What is done to a batch, after a weight."""

    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.body = body

    def forward(self, x):
        return self.body(x * self.weight)


def watched(body, shape, steps=9, possible=False):
    """Return the watch over a training of a network, and its calls."""
    log = SimpleNamespace(
        events=SimpleNamespace(fetch_listeners=[]),
        tracing=SimpleNamespace(possible=possible),
        thread=get_ident(),
        fetching=False,
    )
    network, watch = Network(body), FormWatch(log)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    watch.install(None)
    for _ in range(steps):
        loss = watch.around(network, network)(torch.rand(shape)).float().sum()
        watch.backward(loss)
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
        watch.step()
    watch.stop()
    return watch


def calls(body, shape):
    return watched(body, shape)._pass.calls()


FILTERS = torch.rand(4, 1, 600)
STENCIL = torch.rand(3, 1, 33, 33)
CENTRES = torch.rand(50, 16)
SCALES = torch.rand(16) + 0.5


def all_distances(x):
    gaps = (x[:, None, :] - x[None, :, :]) / SCALES
    return torch.exp(-0.5 * (gaps * gaps).sum(-1))


def nearest_centres(x):
    return (x.unsqueeze(1) - CENTRES).abs().sum(dim=2).argmin(1)


def neighbours(x):
    return (x.unsqueeze(2) - x.unsqueeze(1)).norm(dim=-1).topk(4, largest=False).indices


def chamfer(x):
    squares = (x.unsqueeze(2) - x.unsqueeze(1)).pow(2).sum(-1)
    return squares.min(1).values.mean() + squares.min(2).values.mean()


@pytest.mark.parametrize(
    ("body", "shape", "picked", "size"),
    [
        (all_distances, (120, 16), False, (1, 120, 120, 16)),
        (nearest_centres, (90, 16), True, (1, 90, 50, 16)),
        (neighbours, (3, 60, 8), True, (3, 60, 60, 8)),
        (chamfer, (2, 80, 8), False, (2, 80, 80, 8)),
    ],
)
def test_distances_from_all_differences_are_found(body, shape, picked, size):
    (call,) = calls(body, shape)
    batch, rows, columns, width = size
    assert call.trial.shapes == ((batch, rows, width), (batch, columns, width))
    assert call.trial.picked is picked
    assert call.place.function == body.__name__
    assert f"{rows} x {columns} differences of {width}" in call.operation


def offsets_are_wanted(x):
    gaps = x[:, None] - x[None]
    return gaps.square().sum(-1) + gaps.tanh().sum(-1)


def a_difference_of_two(x):
    return (x - x.flip(0)).square().sum(-1)


def few_rows(x):
    return (x[:, None] - x[None, :2]).square().sum(-1)


def added_over_rows(x):
    return (x[:, None] - x[None]).square().sum(0)


@pytest.mark.parametrize("body", [offsets_are_wanted, a_difference_of_two, few_rows, added_over_rows])
def test_other_differences_are_left_alone(body):
    assert calls(body, (120, 16)) == []


@pytest.mark.parametrize(
    ("body", "shape", "words"),
    [
        (lambda x: F.conv1d(x, FILTERS, groups=4), (2, 4, 4000), "conv1d with a kernel of 600"),
        (lambda x: F.conv2d(x, STENCIL, groups=3, padding=16), (1, 3, 64, 64), "conv2d with a kernel of 33x33"),
    ],
)
def test_convolutions_with_long_kernels_are_found(body, shape, words):
    (call,) = calls(body, shape)
    assert call.operation == words
    assert call.trial.learns == (True, False)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: F.conv1d(x, FILTERS[:, :, :9], groups=4),
        lambda x: F.conv1d(x, FILTERS[:, :, :300], groups=4, dilation=2),
        lambda x: F.conv_transpose1d(x, FILTERS, groups=4),
    ],
)
def test_other_convolutions_are_left_alone(body):
    assert calls(body, (2, 4, 4000)) == []


MIX = torch.rand(2, 16, 1, 1)


def enlarged(x):
    return F.interpolate(x, scale_factor=4, mode="nearest")


def test_points_that_are_mixed_after_an_enlargement_are_found():
    (call,) = calls(lambda x: F.conv2d(enlarged(x), MIX), (1, 16, 20, 20))
    assert call.trial.shapes == ((1, 16, 20, 20), (2, 16, 1, 1))
    assert call.place.function == "enlarged"
    assert "16 channels" in call.operation


def used_twice(x):
    y = enlarged(x)
    return F.conv2d(y, MIX).sum() + y.sum()


@pytest.mark.parametrize(
    "body",
    [
        used_twice,
        lambda x: F.conv2d(enlarged(x).relu(), MIX),
        lambda x: F.conv2d(enlarged(x), MIX.expand(2, 16, 1, 1), padding=1),
        lambda x: F.conv2d(enlarged(x), torch.rand(32, 16, 1, 1)),
        lambda x: enlarged(F.conv2d(x, MIX)),
    ],
)
def test_other_enlargements_are_left_alone(body):
    assert calls(body, (1, 16, 20, 20)) == []


@pytest.mark.slow
def test_the_costliest_calls_are_timed_in_both_ways():
    watch = watched(all_distances, (400, 16))
    watch.measure()
    (found,) = watch.facts()
    assert found.calls == 1
    assert found.n >= 3
    assert found.seconds > 0
    assert found.alone_s > found.forward_s > 0
    assert found.other_s > 0
    assert found.with_backward
    assert found.place.file == __file__


@pytest.mark.parametrize(("steps", "possible"), [(6, False), (9, True)])
def test_nothing_is_said_too_early_or_of_what_is_compiled(steps, possible):
    watch = watched(all_distances, (120, 16), steps=steps, possible=possible)
    watch.measure()
    assert watch.facts() == ()
