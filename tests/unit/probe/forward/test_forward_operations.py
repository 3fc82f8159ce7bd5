"""The operations of a forward pass by line, and copies among them that nothing needs."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flatout.probe.forward.forward_operations import OperationsWatch


class Model(nn.Module):
    """What is done to a batch, after a weight."""

    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.body = body

    def forward(self, x):
        return self.body(x * self.weight)


def watched(body, shape=(32, 16), steps=10, possible=False):
    model, watch = Model(body), OperationsWatch(SimpleNamespace(tracing=SimpleNamespace(possible=possible)))
    for _ in range(steps):
        watch.around(model, model)(torch.rand(shape)).float().sum().backward()
        watch.step()
    return watch


def kinds(body, **given):
    return {each.kind: each.count for each in watched(body, **given).copies()}


def grown(x):
    out = x[:, :0]
    for number in range(16):
        out = torch.cat([out, x[:, number : number + 1]], 1)
    return out.sum(1)


def dense(x):
    for _ in range(4):
        x = torch.cat([x, x.relu()], 1)
    return x.sum(1)


def written(x):
    y = x.clone()
    y[:, 0] = 0
    return y + x


def source_written(x):
    y = x.clone()
    x.mul_(2)
    return y + x


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda x: x.clone() + 1, {"clone": 1}),
        (lambda x: x.clone().relu().clone() + 1, {"clone": 2}),
        (lambda x: x[:, None].repeat(1, 32, 1) - x[None].repeat(32, 1, 1), {"repeat": 2}),
        (lambda x: x[:, None].expand(-1, 32, -1).contiguous() * x[None], {"repeat": 1}),
        (lambda x: x.to(torch.float64).to(torch.float32) + 1, {"cast": 1}),
        (grown, {"growing": 15}),
    ],
)
def test_copies_that_nothing_needs_are_found(body, expected):
    assert kinds(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        written,
        source_written,
        dense,
        lambda x: x.t().contiguous().view(-1) + 1,
        lambda x: x.repeat(2, 1) @ x.t(),
        lambda x: (x.to(torch.float64) * 3).to(torch.float32),
        lambda x: torch.cat([x, x], 1) + 1,
        lambda x: nn.functional.dropout(x, 0.5) + 1,
    ],
)
def test_copies_that_may_be_needed_are_not(body):
    assert kinds(body) == {}


def test_a_copy_has_its_bytes_and_its_line():
    (found,) = watched(lambda x: x.clone() + 1).copies()
    assert found.num_bytes == 32 * 16 * 4
    assert (found.place.file, 0 < found.seconds <= found.whole_s) == (__file__, True)


def test_operations_are_counted_by_line():
    def body(x):
        return sum(x[:, number] * 2 for number in range(16))

    places = watched(body).lines()
    found = max(places, key=lambda each: each.count)
    assert found.place.line == body.__code__.co_firstlineno + 1
    assert found.count >= 32
    assert 0 < found.floor_s <= found.seconds
    assert "mul" in found.kinds


def test_where_code_is_compiled_nothing_is_watched():
    watch = watched(lambda x: x.clone() + 1, possible=True)
    assert watch.lines() == () == watch.copies()
