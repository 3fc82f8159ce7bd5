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


def test_optimizers_that_step_side_by_side_take_turns_and_those_for_one_task_do_not(w):
    model = w.model()
    lasting = [w.sgd(model) for _ in range(2)]
    for _ in range(3):
        for optimizer in lasting:
            w.train_on(model, optimizer, torch.ones(2, 2))
    for_one_task = w.sgd(model)
    for _ in range(3):
        w.train_on(model, for_one_task, torch.ones(2, 2))
    assert [facts.turns for facts in w.training.describe()] == [3, 3, 1]


def stepped(w, kind, parameter, **options):
    optimizer = kind([parameter], lr=0.1, **options)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return w.training.describe()[-1].fused_available


def test_no_fused_step_is_offered_where_torch_has_none(w):
    table = torch.nn.Embedding(4, 3, sparse=True)
    assert stepped(w, torch.optim.SGD, torch.nn.Parameter(torch.zeros(3)))
    assert not stepped(w, torch.optim.SGD, table.weight)  # its gradients are sparse
    assert not stepped(w, torch.optim.SGD, torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64)))
    assert stepped(w, torch.optim.Adagrad, torch.nn.Parameter(torch.zeros(3)))
