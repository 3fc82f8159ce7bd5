"""Micro-batches of one step are timed one by one and put together, where that is the same training."""

import pytest
import torch
from torch import nn

from flatout.probe.core.event_log import EventLog
from flatout.probe.loader.micro_batches import MicroBatchWatch


@pytest.fixture
def watch():
    event_log = EventLog(lambda step: None, lambda stretch: None)
    event_log.tracing.possible = False
    return MicroBatchWatch(event_log)


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(), nn.Linear(16, 2))


def train(watch, net, steps=4, parts=6, shape=(2, 8), inputs=None):
    for _ in range(steps):
        for part in range(parts):
            x = inputs(part) if inputs else torch.randn(shape)
            out = watch.around(net, net.forward)(x)
            watch.backward()
            out[0].sum().backward()
        watch.step()


def measured(watch):
    watch.measure()
    return watch.facts()


def test_micro_batches_are_timed_both_ways(watch, net):
    train(watch, net)
    gradients = [one.grad.clone() for one in net.parameters()]
    state = torch.random.get_rng_state()
    found = measured(watch)
    assert (found.count, found.rows, found.joined) == (6, 2, 6)
    assert found.n >= 1
    assert min(found.apart_s, found.together_s) > 0
    assert found.stack[0].function == "train"
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(one.grad, before) for one, before in zip(net.parameters(), gradients, strict=True))
    assert net.training


def test_the_first_steps_and_a_step_of_few_passes_are_not_kept(watch, net):
    train(watch, net, steps=2)
    assert measured(watch) is None
    train(watch, net, parts=3)
    assert measured(watch) is None


def test_micro_batches_of_different_length_are_put_together_but_not_of_different_width(watch, net):
    train(watch, net, inputs=lambda part: torch.randn(1 + part % 2, 8))
    assert measured(watch).joined == 6
    other = MicroBatchWatch(watch._event_log)
    wide = nn.AdaptiveAvgPool1d(2)
    wide.weight = nn.Parameter(torch.ones(1))
    train(other, nn.Conv1d(3, 2, 1), inputs=lambda part: torch.randn(2, 3, 5 + part))
    assert measured(other) is None


def test_batch_statistics_are_left_alone(watch):
    train(watch, nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)))
    assert measured(watch) is None


def test_rows_that_depend_on_each_other_are_left_alone(watch):
    class Centred(nn.Linear):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    train(watch, Centred(8, 2))
    assert measured(watch) is None


def test_memory_that_a_result_has_left_is_no_result(watch, net):
    def anew(part):
        memory = [torch.randn(2, 8) for _ in range(40)]  # of which some lie where results of earlier calls lay
        return memory[part].clone()

    for size in (2, 16):  # a result is as large as an input
        other = MicroBatchWatch(watch._event_log)
        train(other, nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), parts=12, inputs=anew, shape=(size, 8))
        assert measured(other).joined == 12


def test_a_model_that_gets_its_own_output_back_is_left_alone(watch):
    net, state = nn.Linear(8, 8), [torch.randn(2, 8)]
    for _ in range(5):
        for _ in range(6):
            out = watch.around(net, net.forward)(state[0])
            watch.backward()
            out.sum().backward()
            state[0] = out.detach()
        watch.step()
    assert measured(watch) is None


def test_two_calls_before_one_backward_pass_are_no_micro_batches(watch, net):
    for _ in range(5):
        for _ in range(6):
            pair = [watch.around(net, net.forward)(torch.randn(2, 8)) for _ in range(2)]
            for each in pair:
                watch.backward()
                each.sum().backward()
        watch.step()
    assert measured(watch) is None


def test_two_models_in_turn_are_no_micro_batches(watch, net):
    other = nn.Linear(8, 2)
    for _ in range(5):
        for part in range(6):
            module = (net, other)[part % 2]
            out = watch.around(module, module.forward)(torch.randn(2, 8))
            watch.backward()
            out.sum().backward()
        watch.step()
    assert measured(watch) is None


def test_while_something_is_traced_nothing_is_kept(watch, net):
    watch._event_log.tracing.possible = True
    train(watch, net)
    assert measured(watch) is None


def test_a_model_that_cannot_be_copied_breaks_nothing(watch, net):
    net.thing = (each for each in ())  # a generator is no copy's
    train(watch, net)
    assert measured(watch) is None
