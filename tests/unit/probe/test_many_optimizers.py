"""A script that makes an optimizer for each batch: what is held of them has an end, and what is told of them, too."""

import weakref

import pytest
import torch
from tests.unit.probe.watched import Watch

from flatout.probe.model import training_loop


@pytest.fixture
def w():
    with Watch() as watch:
        yield watch


def in_turn(w, model, optimizers, rounds=3):
    for _ in range(rounds):
        for optimizer in optimizers:
            w.train_on(model, optimizer, torch.ones(2, 2))


@pytest.mark.slow
def test_of_optimizers_that_are_made_one_after_the_other_the_latest_are_held(w, monkeypatch):
    monkeypatch.setattr(training_loop, "_MOST_HELD", 8)
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
    monkeypatch.setattr(training_loop, "_MOST_HELD", 2)
    model = w.model()
    three = [w.sgd(model) for _ in range(3)]
    in_turn(w, model, three)
    assert w.training.optimizers() == (three[1], three[2])


def test_optimizers_that_step_side_by_side_take_turns_and_those_for_one_task_do_not(w):
    model = w.model()
    lasting = [w.sgd(model) for _ in range(2)]
    in_turn(w, model, lasting)
    for_one_task = w.sgd(model)
    in_turn(w, model, [for_one_task])
    assert [facts.turns for facts in w.training.describe()] == [3, 3, 1]


def test_optimizers_that_take_turns_do_so_still_where_not_all_are_held(w, monkeypatch):
    monkeypatch.setattr(training_loop, "_MOST_HELD", 2)
    model = w.model()
    four = [w.sgd(model) for _ in range(4)]
    in_turn(w, model, four)
    assert [facts.turns for facts in w.training.describe()[-2:]] == [3, 3]


class Bags(torch.nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(4, 3, sparse=sparse), torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.table(x.long()))


@pytest.mark.parametrize("sparse", [True, False])
def test_no_fused_step_is_offered_for_sparse_gradients(w, sparse):
    model = Bags(sparse)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    in_turn(w, model, [optimizer])
    (facts,) = w.training.describe()
    assert facts.fused_available is not sparse


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.slow
def test_complex_parameters_are_told(w, kind, dtype):
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    optimizer = kind([parameter], lr=0.1)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    (facts,) = w.training.describe()
    assert facts.fused_available
    assert facts.has_complex is dtype.is_complex
