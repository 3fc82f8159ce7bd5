"""New shapes of convolutions are told from known ones, by step."""

from threading import get_ident

import pytest
import torch
from torch import nn

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.seams import Seams
from flatout.probe.core.spans import FORWARD
from flatout.probe.model.convolutions import ConvolutionWatch
from flatout.schema.run import Convolutions, Step

WARM_UP = 4


def tape_of_this_thread():
    event_log = EventLog(lambda _: None, lambda _: None)
    event_log.thread = get_ident()
    return event_log


@pytest.fixture
def watch():
    watch = ConvolutionWatch(tape_of_this_thread())
    watch.trouble = raise_it
    seams = Seams()
    watch.install(seams)
    yield watch
    seams.undo()


def step_of(ms):
    return Step(start_ns=0, wall_ns=ms * 10**6, phases_ns=tuple(ms * 10**6 if i == FORWARD else 0 for i in range(8)))


def train(watch, sizes, new_ms=50, known_ms=10, module=None):
    module, seen = module or nn.Conv2d(3, 4, 3), set()
    for number, size in enumerate(sizes, 1):
        module(torch.zeros(1, 3, size, size))
        watch.step(step_of(known_ms if size in seen else new_ms), number)
        seen.add(size)
    return watch.facts()


def test_one_shape_is_new_only_before_steps_are_looked_at(watch):
    found = train(watch, [8] * 20)
    assert (found.steps, found.new_steps, found.known_s) == (20 - WARM_UP, 0, 0.01)


def test_steps_with_new_shapes_are_timed_apart(watch):
    found = train(watch, [8, 8, 8, 8, *range(9, 15), *range(9, 15)])
    assert (found.steps, found.new_steps) == (12, 6)
    assert (found.new_s, found.known_s) == (0.05, 0.01)


def test_without_convolutions_there_is_nothing_to_say(watch):
    for number in range(1, 12):
        nn.functional.linear(torch.zeros(2, 3), torch.zeros(4, 3))
        watch.step(step_of(10), number)
    assert watch.facts() is None


@pytest.mark.parametrize(
    ("benchmark", "deterministic", "search"),
    [(False, False, "off"), (True, False, "on"), (True, True, "deterministic"), (False, True, "deterministic")],
)
def test_the_search_is_read_from_torch_s_flags(watch, monkeypatch, benchmark, deterministic, search):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", deterministic)
    assert train(watch, [8] * 8).search == search


def test_functions_are_put_back_and_give_what_they_gave():
    original, seams, x = nn.functional.conv2d, Seams(), torch.randn(1, 3, 8, 8)
    watch, weight = ConvolutionWatch(tape_of_this_thread()), torch.randn(4, 3, 3, 3)
    plain = original(x, weight, padding=1)
    watch.install(seams)
    assert torch.equal(nn.functional.conv2d(x, weight, padding=1), plain)
    seams.undo()
    assert nn.functional.conv2d is original
    assert isinstance(watch.facts(), Convolutions | None)
