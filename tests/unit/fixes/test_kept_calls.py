"""kept-calls in a training: the same losses and weights to the last bit, and functions put back."""

import pytest
import torch
from tests.unit.fixes.training import same_bits, under
from tests.unit.kept import tables
from torch import nn

from flatout.fixes.kept_calls import FIX, choices
from flatout.kept import kept_function
from flatout.rules.core.example import example
from flatout.schema.run import Causes, Frame, UnchangingCall

AT = Frame("model.py", 3, "Net.forward")


@pytest.fixture(autouse=True)
def however_long_looking_takes(monkeypatch):
    """On a busy machine looking whether anything has changed takes another part of a call each time."""
    monkeypatch.setattr(kept_function, "_WORTH", 1e9)


def recorded(*functions):
    calls = tuple(
        UnchangingCall(place=AT, function=name, file="/home/someone/tables.py", steps=3) for name in functions
    )
    return example(step_ms=10, forward=8, causes=Causes(unchanging_calls=calls)).run


def test_it_is_offered_for_the_functions_of_the_finding():
    assert choices(recorded("edges", "Grid.table", "edges")) == (
        {"functions": "tables.py:edges, tables.py:Grid.table"},
    )
    assert FIX.bounds["functions"].holds("tables.py:edges, tables.py:Grid.table")
    assert not FIX.bounds["functions"].holds("../tables.py:edges")
    assert FIX.unfit(recorded("make.<locals>.inner")) == (
        "`make.<locals>.inner` is made anew each time, inside of another function"
    )
    assert "no function" in FIX.unfit(recorded())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.grid, self.last = tables.Grid(), nn.Linear(6, 1)

    def forward(self, x):
        return self.last(self.grid(x + tables.positions(120, 16)[:6, :6]))


def train(steps=12, change=lambda step, net: None):
    torch.manual_seed(0)
    net = Net()
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=1e-5), []
    for step in range(steps):
        change(step, net)
        loss = net(torch.randn(6, 6)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net.state_dict()


def changed(step, net):
    if step == 7:
        net.grid.offsets.data[2] = 5
    if step == 9:
        net.grid.levels["b"] = 3.0


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda step, net: None, changed])
def test_a_training_is_the_same_to_the_last_bit(change):
    before = tables.positions, tables.Grid.table
    plain = train(change=change)
    with under("kept-calls", functions="tables.py:positions, tables.py:Grid.table") as process:
        assert tables.positions is not before[0]
        ours = train(change=change)
        hits = dict(process.site.hits)
        assert not process.site.failure
    assert same_bits(ours, plain)
    assert hits["Grid.table"] > 0
    assert hits["positions"] > 0
    assert (tables.positions, tables.Grid.table) == before


@pytest.mark.slow
def test_it_says_why_a_function_is_not_kept():
    with under("kept-calls", functions="tables.py:drawn") as process:
        for _ in range(5):
            tables.drawn(3)
        assert process.site.hits == {}
        assert process.site.stood_back == "drawn: it draws random numbers"


@pytest.mark.slow
def test_switched_off_it_lets_every_call_through():
    with under("kept-calls", functions="tables.py:positions") as process:
        train(6)
        process.site.disable()
        hits = dict(process.site.hits)
        plain = train(6)
        assert process.site.hits == hits
        process.site.enable()
        assert same_bits(train(6), plain)
        assert process.site.hits != hits
