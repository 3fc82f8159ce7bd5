"""Graphs of past steps that someone keeps: the name, and the line."""

import inspect
import sys
from collections import defaultdict, deque

import pytest
import torch
from torch import nn

from flatout.probe.model.retained_graphs import RetentionWatch

X = torch.ones(4, 3)


class Meter:
    def __init__(self):
        self.sum, self.values = 0.0, []

    def update(self, value):
        self.sum += value  # METER


class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1)
        self.outputs = []


def loss_of(model):
    return model(X).square().mean()


def step(watch, loss):
    watch.mark(loss)
    loss.backward()


def line_of(function, text):
    """Return the number of the line of a function that holds `text`."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def only(found, name, function, text):
    assert [item.name for item in found] == [name]
    assert (found[0].graphs, found[0].of_steps) == (18, 18)
    place = found[0].place
    assert place is not None
    assert (place.file, place.line) == (__file__, line_of(function, text))
    return place


@pytest.fixture
def watch():
    return RetentionWatch()


def test_a_running_total(watch):
    model, total = nn.Linear(3, 1), 0
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        total += loss
    place = only(watch.find(sys._getframe()), "total", test_a_running_total, "total += loss")
    assert place.function == "test_a_running_total"


def test_a_total_written_out(watch):
    model, total = nn.Linear(3, 1), torch.zeros(())
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        total = total + loss
    only(watch.find(sys._getframe()), "total", test_a_total_written_out, "total = total + loss")


def test_a_list(watch):
    model, losses = nn.Linear(3, 1), []
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        losses.append(loss)
    only(watch.find(sys._getframe()), "losses", test_a_list, "losses.append")


def test_a_loss_that_was_scaled_before_backward(watch):
    model, losses = nn.Linear(3, 1), []
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss * 1024 / 4)
        losses.append(loss)
    only(watch.find(sys._getframe()), "losses", test_a_loss_that_was_scaled_before_backward, "losses.append")


def test_predictions_that_are_kept(watch):
    model, predictions = nn.Linear(3, 1), []
    for _ in range(20):
        out = model(X)
        step(watch, nn.functional.binary_cross_entropy_with_logits(out, torch.ones_like(out)))
        predictions.append(out)
    only(watch.find(sys._getframe()), "predictions", test_predictions_that_are_kept, "predictions.append")


@pytest.mark.parametrize("make", [dict, lambda: defaultdict(list)])
def test_a_dictionary_of_lists(watch, make):
    model, history = nn.Linear(3, 1), make()
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        history.setdefault("loss", []).append(loss)
    only(watch.find(sys._getframe()), "history", test_a_dictionary_of_lists, "history.setdefault")


def test_a_list_of_dictionaries(watch):
    model, outputs = nn.Linear(3, 1), deque()
    for number in range(20):
        loss = loss_of(model)
        step(watch, loss)
        outputs.append({"step": number, "loss": loss})
    only(watch.find(sys._getframe()), "outputs", test_a_list_of_dictionaries, "outputs.append")


def test_an_attribute_of_the_user_s_object(watch):
    model, meter = nn.Linear(3, 1), Meter()
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        meter.update(loss)
    place = only(watch.find(sys._getframe()), "meter.sum", Meter, "# METER")
    assert place.function == "Meter.update"


def test_an_attribute_of_the_user_s_module(watch):
    task = Task()
    for _ in range(20):
        loss = task.net(X).mean()
        step(watch, loss)
        task.outputs.append(loss)
    only(watch.find(sys._getframe()), "task.outputs", test_an_attribute_of_the_user_s_module, "task.outputs.append")


class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.maps = nn.Linear(3, 3), []

    def forward(self, x):
        weights = self.net(x).softmax(1)
        self.maps.append(weights.mean(0))  # MAPS
        return weights


def test_an_attribute_of_a_module_in_the_user_s_module(watch):
    model = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"layers": nn.Sequential(nn.Linear(3, 3), Looks())})["layers"])
    for _ in range(20):
        step(watch, loss_of(model))
    only(watch.find(sys._getframe()), "model[1][1].maps", Looks.forward, "MAPS")


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.register_buffer("running", torch.zeros(3))

    def forward(self, x):
        x = self.net(x)
        self.running = self.running * 0.9 + x.mean(0) * 0.1  # RUNNING
        return x


def test_a_buffer_that_keeps_its_graph(watch):
    model = nn.Sequential(nn.Linear(3, 3), Running())
    for _ in range(20):
        watch.mark(loss_of(model))
    found = watch.find(sys._getframe())
    assert [item.name for item in found] == ["model[1].running"]


def test_a_module_that_was_never_set_up_is_looked_at_as_any_object(watch):
    class Broken(nn.Module):
        def __init__(self):
            self.__dict__["kept"] = []

    broken, model = Broken(), nn.Linear(3, 1)
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        broken.kept.append(loss)
    assert "broken.kept" in [item.name for item in watch.find(sys._getframe())]


@pytest.mark.slow
def test_a_deep_model_with_many_steps(watch):
    model, total = nn.Sequential(*[nn.Linear(3, 3) for _ in range(150)]), 0
    for _ in range(120):
        loss = loss_of(model)
        step(watch, loss)
        total += loss
    found = watch.find(sys._getframe())
    assert [(item.name, item.graphs) for item in found] == [("total", 118)]


def test_names_further_out_are_seen(watch):
    losses = []

    def epoch(model):
        for _ in range(20):
            loss = loss_of(model)
            step(watch, loss)
            losses.append(loss)
        return watch.find(sys._getframe())

    found = epoch(nn.Linear(3, 1))
    assert found[0].name == "losses"
    assert found[0].place.function.endswith("epoch")


def test_values_without_their_graph_stay_silent(watch):
    model, total, losses, meter = nn.Linear(3, 1), 0, [], Meter()
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        total += loss.detach()
        losses.append(loss.item())
        meter.update(loss.item())
        meter.values.append(loss.detach().clone())
    assert watch.find(sys._getframe()) == ()


def test_the_last_graphs_alone_stay_silent(watch):
    model, recent = nn.Linear(3, 1), deque(maxlen=2)
    for _ in range(20):
        recent.append(loss_of(model))
        step(watch, recent[-1])
    assert watch.find(sys._getframe()) == ()


def test_a_keeper_without_a_name(watch):
    model = nn.Linear(3, 1)
    hidden = iter([kept := []])
    for _ in range(20):
        loss = loss_of(model)
        step(watch, loss)
        kept.append(loss)
    del kept
    found = watch.find(sys._getframe())
    assert [(item.name, item.place, item.graphs) for item in found] == [("", None, 18)]
    assert next(hidden)


def test_few_steps_say_nothing(watch):
    model, losses = nn.Linear(3, 1), []
    for _ in range(6):
        losses.append(loss_of(model))
        step(watch, losses[-1])
    assert watch.find(sys._getframe()) == ()


def test_what_has_no_graph_is_passed_over(watch):
    for value in (None, 3, torch.ones(()), [torch.ones(())]):
        watch.mark(value)
    assert watch.find(sys._getframe()) == ()


def test_a_list_that_is_emptied_each_epoch_is_seen_while_it_grows():
    watch = RetentionWatch()
    kept = []
    for number in range(60):
        if number % 20 == 0:
            kept.clear()
        loss = (torch.ones(3, requires_grad=True) * 2).sum()
        watch.mark(loss)
        loss.backward()
        kept.append(loss)
        watch.glance(sys._getframe())
    kept.clear()
    (found,) = watch.find(sys._getframe())
    assert found.name == "kept"
    assert found.graphs == found.of_steps == 12
