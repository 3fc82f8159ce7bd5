"""kept-activations in trainings with activation checkpointing: the same losses, weights and streams to the last bit."""

import functools

import pytest
import torch
from tests.unit.fixes.training import same_bits, under
from torch import nn
from torch.utils import checkpoint as torch_checkpoint

from flatout.fixes.kept_activations import FIX, choices, modules_of
from flatout.rules.core.example import example
from flatout.schema.backward import Recomputed
from flatout.schema.run import Causes, ModelFacts


def recorded(*found, **named):
    return example(step_ms=10, forward=3, backward=6, causes=Causes(recomputed=found), **named).run


def test_it_is_offered_where_something_is_computed_again():
    assert choices(recorded(Recomputed(calls=4))) == ({},)
    assert FIX.on_request
    assert "no activations" in FIX.unfit(recorded())
    assert "use_reentrant" in FIX.unfit(recorded(Recomputed(calls=4, reentrant=True)))
    assert "compiled" in FIX.unfit(recorded(Recomputed(calls=4), models=(ModelFacts(compiled=True),)))


class Block(nn.Module):
    """A residual block that is computed twice; what it is like decides whether once is the same."""

    def __init__(self, kind, options):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 16)
        self.kind, self.options, self.seen = kind, {"use_reentrant": False, **options}, 0
        self.norm = nn.BatchNorm1d(32) if kind == "batch norm" else nn.LayerNorm(32)
        if kind == "hook":
            self.norm.register_forward_hook(lambda *_: [torch.rand(1)].clear())

    def body(self, x, scale=1.0):
        if self.kind == "counter":
            self.seen += 1
        return self.last(nn.functional.dropout(self.norm(self.first(x)).relu(), 0.2)) * scale + x

    def forward(self, x):
        ways = {
            "closure": lambda x: self.body(x),
            "partial": functools.partial(self.body, scale=0.5),
            "free": torch.tanh,
        }
        return torch_checkpoint.checkpoint(ways.get(self.kind, self.body), x, **self.options)


def train(kind, options):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 16), Block(kind, options), Block(kind, options), nn.Linear(16, 4))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for step in range(12):
        if step == 6:
            model.eval()
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    counts = [block.seen for block in model if isinstance(block, Block)]
    return losses, {**model.state_dict()}, torch.rand(3), counts


@pytest.mark.parametrize("kind", ["method", "closure", "partial"])
def test_a_training_is_the_same_to_the_last_bit(kind):
    plain = train(kind, {})
    with under("kept-activations") as process:
        ours = train(kind, {})
        hits, failure = dict(process.site.hits), process.site.failure
    assert not failure
    assert hits == {"checkpoint": 2 * 12 - 2 * 2}, hits  # in each mode the first call of each block is as it was
    assert same_bits(ours, plain)


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("method", {"use_reentrant": True}, "another order"),
        ("method", {"preserve_rng_state": False}, "other numbers"),
        ("free", {}, "no module"),
        ("hook", {}, "forward hooks"),
    ],
)
def test_others_are_computed_again(kind, options, why):
    plain = train(kind, options)
    with under("kept-activations") as process:
        ours = train(kind, options)
        hits, told = dict(process.site.hits), process.site.stood_back
    assert not hits
    assert why in told
    assert same_bits(ours, plain)


@pytest.mark.parametrize("kind", ["batch norm", "counter"])
def test_blocks_that_change_when_they_are_called_are_called_as_often(kind):
    plain = train(kind, {})
    with under("kept-activations") as process:
        ours = train(kind, {})
        told = process.site.stood_back
    assert "changes its state" in told
    assert same_bits(ours, plain)


class TwoParts(nn.Module):
    """A module of which one part counts, and the other does not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("spread", torch.ones(8))

    def plain(self, x):
        return self.layer(x).tanh()

    def moving(self, x):
        return nn.functional.batch_norm(self.layer(x), self.mean, self.spread, training=True)

    def forward(self, x):
        x = torch_checkpoint.checkpoint(self.plain, x, use_reentrant=False)
        return torch_checkpoint.checkpoint(self.moving, x, use_reentrant=False)


def test_each_function_of_a_module_is_judged_by_itself():
    def trained():
        torch.manual_seed(2)
        model = TwoParts()
        for _ in range(5):
            model(torch.randn(6, 8)).square().mean().backward()
        return model.state_dict(), [one.grad for one in model.parameters()]

    plain = trained()
    with under("kept-activations") as process:
        ours = trained()
        hits, told = dict(process.site.hits), process.site.stood_back
    assert hits == {"checkpoint": 4}
    assert "changes its state" in told
    assert same_bits(ours, plain)


def test_nothing_is_kept_where_memory_is_short(monkeypatch):
    monkeypatch.setattr("flatout.fixes.kept_activations._free", lambda args: 0.1)
    with under("kept-activations") as process:
        train("method", {})
        assert not process.site.hits
        assert "too little memory" in process.site.stood_back


def test_modules_of_a_function():
    block = Block("method", {})
    assert list(modules_of(block.body)) == [block]
    assert list(modules_of(functools.partial(block.body, 1))) == [block]
    assert list(modules_of([block, torch.tanh])) == [block]
    assert list(modules_of(lambda x: block(x))) == [block]
    assert not list(modules_of(torch.tanh))
