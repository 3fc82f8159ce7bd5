"""The parts of an execution that is taken down step by step: tensors, optimizer steps, progress, what is written."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from flatout.probe.core.seams import Hits
from flatout.probe.verify.compared_execution import (
    OutermostSteps,
    TrainingProgress,
    TrainingTensors,
    WrittenOptimizers,
    _seeded,
    _settings,
)


def tensors(*modules):
    return TrainingTensors(SimpleNamespace(roots=lambda: list(modules), modules=lambda: list(modules)))


def test_an_optimizer_moves_its_parameters_by_the_length_of_its_step():
    model = nn.Linear(2, 1)
    held = tensors(model)
    parameters = list(model.parameters())
    held.step_begins(parameters)
    with torch.no_grad():
        model.weight += torch.tensor([[3.0, 0.0]])
        model.bias += 4.0
    assert held.step_ends(parameters) == pytest.approx(5.0)
    held.step_begins([])
    assert held.step_ends([]) == 0.0


def test_tensors_are_looked_up_again_only_where_there_is_something_new():
    model = nn.Linear(2, 1)
    held = tensors(model)
    first = held.capture()
    assert held.capture() is first
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held.optimizers[id(optimizer)] = optimizer
    second = held.capture()
    assert second is not first
    assert list(second.parameters) == ["0.0", "0.1"]
    assert held.number(optimizer) == 0
    assert held.capture(anew=True) is not second


class Outer(torch.optim.SGD):
    """An optimizer that steps another one inside."""

    def __init__(self, params, inner):
        super().__init__(params, lr=0.1)
        self.inner = inner

    def step(self, closure=None):
        self.inner.step()
        return super().step(closure)


class Subclass(torch.optim.SGD):
    """An optimizer whose step goes through that of torch's class, which has hooks of its own."""

    def step(self, closure=None):
        return super().step(closure)


class Tolerant(torch.optim.SGD):
    """An optimizer that goes on where one inside fails."""

    def __init__(self, params, inner):
        super().__init__(params, lr=0.1)
        self.inner = inner

    def step(self, closure=None):
        with contextlib.suppress(ValueError):
            self.inner.step()
        return super().step(closure)


class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise ValueError("no step")


@pytest.fixture
def followed():
    seen = []
    steps = OutermostSteps(lambda one: seen.append(("begins", one)), lambda one: seen.append(("ends", one)))
    steps.follow(lambda act, optimizer: act(optimizer))
    yield seen
    steps.leave()


def weights():
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return [weight]


def test_a_step_inside_another_one_is_part_of_it(followed):
    inner = torch.optim.SGD(weights(), lr=0.1)
    outer = Outer(weights(), inner)
    outer.step()
    inner.step()
    assert followed == [("begins", outer), ("ends", outer), ("begins", inner), ("ends", inner)]


def test_one_that_raised_is_over_when_it_begins_again(followed):
    optimizer = Failing(weights(), lr=0.1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no step"):
            optimizer.step()
    assert followed == [("begins", optimizer)] * 2


def test_the_step_of_a_subclass_is_one_step(followed):
    torch.optim.SGD(weights(), lr=0.1).step()
    optimizer = Subclass(weights(), lr=0.1)
    optimizer.step()
    assert followed[2:] == [("begins", optimizer), ("ends", optimizer)]


def test_one_that_raised_inside_another_one_does_not_hide_its_end(followed):
    optimizer = Tolerant(weights(), Failing(weights(), lr=0.1))
    for _ in range(2):
        optimizer.step()
    assert followed == [("begins", optimizer), ("ends", optimizer)] * 2


def test_a_step_that_was_under_way_when_following_began_has_no_end():
    seen = []
    steps = OutermostSteps(seen.append, seen.append)

    class Late(torch.optim.SGD):
        def step(self, closure=None):
            steps.follow(lambda act, optimizer: act(optimizer))

    Late(weights(), lr=0.1).step()
    steps.leave()
    assert seen == []


def test_a_second_epoch_has_begun_when_a_loader_that_was_trained_on_gives_batches_after_its_end():
    progress = TrainingProgress()
    assert not progress.second_epoch
    for events in (
        {"batches": [(0, "x")]},  # a look into a loader
        {"ends": [(0,)], "batches": [(1, "x")], "losses": [1.0]},
        {"ends": [(1,)]},
    ):
        progress.follow_epochs(events)
        assert not progress.second_epoch
    assert (progress.trained, progress.num_ended) == ({1}, 1)
    progress.follow_epochs({"batches": [(1, "x")]})
    assert progress.second_epoch


def test_the_clock_starts_with_the_first_step():
    progress = TrainingProgress()
    progress.begin()
    began = progress._began
    progress.begin()
    assert progress._began == began
    assert progress.elapsed_s >= 0


def test_of_an_optimizer_only_changes_are_written():
    written = WrittenOptimizers()
    group = {"lr": 0.1}
    assert written.changes(0, [group], ["weight"]) == {"groups": [{"lr": 0.1}], "names": ["weight"]}
    assert written.changes(0, [group], ["weight"]) == {}
    assert written.changes(1, [group], ["weight"]) != {}
    assert written.changes(0, [{"lr": 0.2}], ["weight"]) == {"groups": [{"lr": 0.2}]}


def test_of_a_group_the_numbers_are_told_that_say_what_is_computed():
    group = {
        "params": weights(),
        "lr": torch.tensor(0.5),
        "betas": (0.9, 0.99),
        "fused": True,
        "nesterov": False,
        "mode": None,
        "odd": object(),
        "many": torch.ones(2),
    }
    assert _settings(group) == {"num_params": 1, "lr": 0.5, "betas": [0.9, 0.99], "nesterov": False, "mode": None}


def test_generators_of_numpy_start_from_the_seed_where_the_script_leaves_it_to_chance():
    make = [_seeded(7)(np.random.default_rng, Hits()) for _ in range(2)]
    assert make[0]().random() == make[1]().random()
    assert make[0]().random() != make[0]().random()  # each is another one
    assert make[0](5).random() == np.random.default_rng(5).random()
