"""A script that makes an optimizer for each batch: what is held of them has an end, and what is told of them, too."""

import weakref

import pytest
import torch
from tests.unit.probe.watched import Watch

from flatout.probe import training


@pytest.fixture
def w():
    with Watch() as watch:
        yield watch


def test_of_optimizers_that_are_made_one_after_the_other_the_latest_are_held(w, monkeypatch):
    monkeypatch.setattr(training, "_MOST_HELD", 8)
    made = []
    for _ in range(40):
        parameter = torch.nn.Parameter(torch.zeros(3))
        parameter.grad = torch.ones(3)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        optimizer.step()
        made.append(weakref.ref(optimizer))
        del optimizer, parameter
    assert sum(each() is not None for each in made) <= 9  # and the one that stepped last
    assert len(w.training.optimizers()) == 8
    assert 8 <= len(w.training.describe()) <= 16
    assert {facts.name for facts in w.training.describe()} == {"SGD"}


def test_optimizers_that_are_let_go_and_step_again_are_known_again(w, monkeypatch):
    monkeypatch.setattr(training, "_MOST_HELD", 2)
    model = w.model()
    three = [w.sgd(model) for _ in range(3)]
    for _ in range(3):
        for optimizer in three:
            w.train_on(model, optimizer, torch.ones(2, 2))
    assert w.training.optimizers() == (three[1], three[2])
