"""What is known of passes that no backward pass follows: how many graphs pile up, and what a pass takes without."""

import pytest
import torch

from flatout.probe.core.event_log import EventLog
from flatout.probe.model.graph_recording import GraphWatch
from flatout.probe.model.retained_graphs import RetentionWatch


@pytest.fixture
def watch():
    event_log = EventLog(lambda step: None, lambda stretch: None)
    event_log.tracing.possible = False
    return GraphWatch(event_log)


@pytest.fixture
def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 2))


def validate(watch, net, count, *, kept=None):
    """Call the model `count` times, keeping a figure of each result in `kept`, with its graph."""
    for _ in range(count):
        result = watch.around(net, net.forward)(torch.randn(4, 8))
        if kept is not None:
            kept.append(result.square().mean())


def train(watch, net, steps):
    for _ in range(steps):
        loss = watch.around(net, net.forward)(torch.randn(4, 8)).square().mean()
        watch.backward()
        loss.backward()


def test_graphs_that_are_let_go_do_not_pile_up(watch, net):
    train(watch, net, 12)
    validate(watch, net, 12)
    assert watch.facts() is None
    state = torch.random.get_rng_state()
    watch.measure()
    found = watch.facts()
    assert (found.model, found.piled, found.n >= 1) == ("Sequential", 0, True)
    assert min(found.with_s, found.without_s) > 0
    assert torch.equal(torch.random.get_rng_state(), state)
    assert net.training


def test_graphs_that_are_kept_are_counted(watch, net):
    kept = []
    train(watch, net, 5)
    validate(watch, net, 28, kept=kept)
    watch.measure()
    assert watch.facts().piled == 20  # the first eight might have been a step's
    assert all(one.grad_fn is not None for one in kept)


def test_a_training_has_no_unused_graphs(watch, net):
    train(watch, net, 20)
    watch.measure()
    assert watch.facts() is None


def test_without_gradients_nothing_is_marked(watch, net):
    with torch.no_grad():
        validate(watch, net, 20)
    watch.measure()
    assert watch.facts() is None


def test_a_copy_is_called_in_the_mode_of_the_call(watch, net):
    modes = []

    class Noted(torch.nn.Linear):
        def forward(self, x):
            modes.append(self.training)
            return super().forward(x)

    noted = Noted(8, 2).eval()
    train(watch, net, 5)
    validate(watch, noted, 10)
    noted.train()
    modes.clear()
    watch.measure()
    assert set(modes) == {False}
    assert noted.training


def test_a_model_with_hooks_is_left_alone(watch, net):
    seen = []
    train(watch, net, 5)
    net[0].register_forward_hook(lambda module, given, result: seen.append(1))
    validate(watch, net, 12)
    watch.measure()
    assert (watch.facts(), len(seen)) == (None, 12)


def test_steps_of_many_passes_are_no_validation(watch, net):
    for _ in range(6):
        losses = [watch.around(net, net.forward)(torch.randn(4, 8)).square().mean() for _ in range(20)]
        watch.backward()
        torch.stack(losses).sum().backward()
    watch.measure()
    assert watch.facts() is None


def test_several_models_in_a_validation_are_left_to_the_estimate(watch, net):
    train(watch, net, 5)
    head = torch.nn.Linear(8, 1)
    for _ in range(12):
        validate(watch, net, 1)
        validate(watch, head, 1)
    watch.measure()
    assert watch.facts() is None


def test_under_autocast_nothing_is_made_again(watch, net):
    train(watch, net, 5)
    with torch.autocast("cpu", torch.bfloat16):
        validate(watch, net, 20)
    watch.measure()
    assert watch.facts() is None


def test_a_model_with_much_besides_its_parameters_is_not_copied(watch, net):
    train(watch, net, 5)
    net.bank = [torch.zeros(1)] * 2000
    validate(watch, net, 20)
    watch.measure()
    assert watch.facts() is None


def test_marks_of_losses_and_of_passes_do_not_meet(watch, net):
    """A model that returns its loss: the same node carries both."""
    retention, kept = RetentionWatch(), []
    train(watch, net, 5)
    for _ in range(30):
        loss = watch.around(net, lambda x: net(x).square().mean())(torch.randn(4, 8))
        kept.append(loss)
        retention.mark(loss)
    assert sum(mark() is not None for mark in retention._marks) == 30
