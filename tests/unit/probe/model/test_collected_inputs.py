"""Rollouts are told from validation by what comes back in training."""

import pytest
import torch
from torch import nn

from flatout.probe.model.collected_inputs import CollectedInputs


class Training:
    """A model whose calls are watched, and its steps."""

    def __init__(self, model=None):
        self.watch, self.model = CollectedInputs(), model or nn.Linear(6, 2)

    def evaluate(self, x):
        with torch.no_grad():
            return self.call(x)

    def call(self, x):
        return self.watch.around(self.model, self.model)(x)

    def step(self, x):
        self.call(x)
        self.watch.step(None, 0)

    @property
    def share(self):
        found = self.watch.facts()
        return found.matched / found.checked


def rollout(training, observe=lambda x: x):
    for _ in range(3):
        seen = [observe(torch.randn(6)) for _ in range(40)]
        for one in seen:
            training.evaluate(one[None])
        for batch in torch.stack(seen).split(10):
            training.step(batch)


def test_what_was_acted_on_comes_back():
    training = Training()
    rollout(training)
    found = training.watch.facts()
    assert training.share == 1.0
    assert (found.calls, found.rows, found.steps, found.steps_with_calls) == (120, 120, 12, 3)


def test_lines_that_act_are_told_from_those_that_learn(tmp_path):
    training = Training()
    rollout(training)
    found = training.watch.facts()
    acting, learning = ({frame.function for frame in frames} for frames in (found.acting, found.learning))
    assert "Training.evaluate" in acting - learning
    assert "Training.step" in learning - acting
    rollouts = [frame.line for frame in found.acting if frame.function == "rollout"]
    assert rollouts
    assert set(rollouts).isdisjoint(frame.line for frame in found.learning)


def test_observations_without_a_batch_of_their_own_count_as_rows():
    training = Training()
    for x in torch.randn(30, 6):
        training.evaluate(x)
    training.step(torch.randn(4, 6))
    assert training.watch.facts().rows == 30


def held_out(training, data):
    for x in data[64:].split(16):
        training.evaluate(x)


def training_set(training, data):
    for x in data[:64].split(16):
        training.evaluate(x)


def random_batches(training, data):
    for _ in range(4):
        training.evaluate(data[64 + torch.randint(32, (16,))])


@pytest.mark.parametrize("validate", [held_out, training_set, random_batches])
def test_a_validation_does_not(validate):
    training, data = Training(), torch.randn(96, 6)
    for _ in range(3):
        for number in torch.randperm(64).split(8):
            training.step(data[number])
        validate(training, data)
    assert training.share == 0.0


def test_a_teacher_is_called_in_every_step():
    training, data = Training(), torch.randn(64, 6)
    for x in data.split(8):
        training.evaluate(x)
        training.step(x)
    found = training.watch.facts()
    assert found.steps_with_calls == found.steps == 8


def test_rows_that_say_nothing_are_no_match():
    training = Training()
    for _ in range(20):
        training.evaluate(torch.zeros(1, 6))
        training.step(torch.zeros(4, 6))
    assert training.watch.facts().checked == 0
    names = Training(nn.Embedding(9, 2))
    names.evaluate(torch.arange(5))  # class numbers, words
    assert names.watch.facts().rows == 0


def test_nothing_is_said_where_no_call_was_without_gradients():
    training = Training()
    training.step(torch.randn(4, 6))
    assert training.watch.facts() is None
