"""What the backward pass computes again."""

from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils import checkpoint

from flatout.probe.backward.recomputations import Recomputations
from flatout.probe.core.seams import Seams


@pytest.fixture
def watch():
    log = SimpleNamespace(tracing=SimpleNamespace(possible=False), thread=get_ident())
    watch, seams = Recomputations(log), Seams()
    watch.install(seams)
    yield watch
    seams.undo()


def train(watch, run, steps=4):
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8)) for _ in range(3)])
    for number in range(steps):
        x = torch.randn(4, 8, requires_grad=True)
        for block in blocks:
            x = run(block, x)
        x.sum().backward()
        watch.step(None, number)
    return watch.facts()


@pytest.mark.parametrize("reentrant", [False, True])
def test_each_block_is_computed_again_once_a_step(watch, reentrant):
    (found,) = train(watch, lambda block, x: checkpoint.checkpoint(block, x, use_reentrant=reentrant))
    assert (found.calls, found.steps, found.reentrant, found.kept_rng) == (12, 4, reentrant, True)
    assert found.seconds > 0
    assert found.place.file == __file__
    assert 0 < found.free_bytes < found.total_bytes


def test_a_block_within_a_block_is_counted_with_it(watch):
    def inner(block, x):
        return checkpoint.checkpoint(block, x, use_reentrant=False)

    found = train(watch, lambda block, x: checkpoint.checkpoint(inner, block, x, use_reentrant=False))
    assert sum(each.calls for each in found) >= 12
    assert sum(each.seconds for each in found) > 0


def test_without_it_nothing_is_told(watch):
    assert train(watch, lambda block, x: block(x)) == ()
