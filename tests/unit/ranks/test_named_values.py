"""Values that the code of a module names, where they are, and what becomes of them in a trial."""

import itertools
import random
from collections import deque
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

from flatout.ranks.named_values import NamedValues
from flatout.ranks.streams import Streams, same_streams

SETTINGS = SimpleNamespace(warm_up=3, unnamed=1)
TABLE = {"strength": 0.5, "other": 2}
LIMIT = 4
HEARD = []
METER = SimpleNamespace(total=0)


def helped(x):
    HEARD.append(len(x))
    METER.total += len(x)
    return x * TABLE["strength"]


def closed():
    level = 1.0

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.share, self.unread = nn.Linear(2, 2), 0.25, 7

        def forward(self, x):
            nonlocal level
            level += 1
            return self.layer(x) * self.share if level < LIMIT else helped(x)

        def at(self, epoch):
            return epoch >= SETTINGS.warm_up

    return Inner()


@pytest.fixture
def values():
    module = nn.Sequential(closed(), nn.Dropout(0.5))
    return module, NamedValues(list(module.modules()))


@pytest.mark.parametrize("change", ["global", "field", "entry", "attribute", "closure"])
def test_a_value_that_code_names_is_seen_to_change(values, monkeypatch, change):
    module, named = values
    before = named.now()
    assert named.now() == before
    if change == "global":
        monkeypatch.setitem(globals(), "LIMIT", 5)
    elif change == "field":
        monkeypatch.setattr(SETTINGS, "warm_up", 4)
    elif change == "entry":
        monkeypatch.setitem(TABLE, "strength", 0.75)
    elif change == "attribute":
        module[0].share = 0.5
    else:
        module(torch.ones(1, 2))
    assert named.now() != before


def test_what_no_code_names_and_what_torch_s_own_modules_hold_does_not_count(values, monkeypatch):
    module, named = values
    before = named.now()
    monkeypatch.setattr(SETTINGS, "unnamed", 2)
    monkeypatch.setitem(TABLE, "other", 3)
    module[0].unread, module[1].p = 8, 0.1
    assert named.now() == before


def test_what_a_trial_has_written_outside_is_told_and_put_back(values):
    _, named = values
    assert named.kept()() == ""
    put_back = named.kept()
    helped(torch.ones(3))
    assert (HEARD, METER.total) == ([3], 3)
    assert put_back() != ""
    assert (HEARD, METER.total) == ([], 0)
    assert named.kept()() == ""


GENERATORS = [random.Random(0), numpy.random.default_rng(0), numpy.random.RandomState(0), torch.Generator()]
PYTHON, NEW, OLD, TORCH = GENERATORS
ARGS, DRAW = SimpleNamespace(rng=random.Random(1), name="x"), random.Random(2).random
SYSTEM = random.SystemRandom()


class Drawing(nn.Module):
    def forward(self, x):
        noise = torch.randn(2, generator=TORCH) + PYTHON.random() + NEW.random() + OLD.rand()
        return x + noise + ARGS.rng.random() + DRAW() + 0 * SYSTEM.random() + 0 * random.random()


def test_streams_of_the_script_are_found_and_put_back(monkeypatch):
    module = Drawing()
    values = NamedValues([module])
    found = values.generators()
    assert {id(one) for one in found} >= {id(one) for one in [*GENERATORS, ARGS.rng, DRAW.__self__]}
    assert SYSTEM not in found
    before = Streams(found)
    first, states = module(torch.ones(2)), before.now()
    before.put_back()
    assert torch.equal(first, module(torch.ones(2))) and same_streams(states, before.now())
    before.put_back()
    for one in found:  # each of them counts
        torch.rand(3, generator=one) if isinstance(one, torch.Generator) else one.random()
        assert not same_streams(before.now(), states) and not same_streams(before.now(), before._states)
        before.put_back()
        assert same_streams(before.now(), before._states)
    other = random.Random(5)
    monkeypatch.setitem(globals(), "PYTHON", other)
    assert any(one is other for one in values.generators())


LATE = None


class Counting(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        global LATE
        LATE = torch.ones(2)
        Counting.calls += 1
        Counting.last = len(x)
        named.times = getattr(named, "times", 0) + 1
        return named(self.layer(x))


def named(x):
    return x


def test_what_a_class_a_function_and_a_name_without_a_value_have_got_is_put_back():
    module = Counting()
    put_back = NamedValues(list(module.modules())).kept()
    module(torch.ones(3, 2))
    assert (Counting.calls, Counting.last, named.times) == (1, 3, 1) and LATE is not None
    assert put_back() != ""
    assert (Counting.calls, vars(named), LATE) == (0, {}, None) and "last" not in vars(Counting)
    assert NamedValues(list(module.modules())).kept()() == ""


TENSOR, NET, LAST, STEPS = torch.zeros(2), nn.BatchNorm1d(2), deque([1, 2], maxlen=2), itertools.count()


class Writing(nn.Module):
    def forward(self, x):
        TENSOR.add_(1)
        LAST.append(len(x))
        return NET(x)


class Taking(nn.Module):
    def forward(self, x):
        return x * next(STEPS)


@pytest.mark.parametrize("change", ["tensor", "module", "queue"])
def test_tensors_of_other_modules_and_queues_are_put_back(change):
    put_back = NamedValues([Writing()]).kept()
    if change == "tensor":
        TENSOR.add_(1)
    elif change == "module":
        NET(torch.randn(4, 2))
    else:
        LAST.append(3)
    assert put_back() != ""
    assert TENSOR.tolist() == [0, 0] and int(NET.num_batches_tracked) == 0 and list(LAST) == [1, 2]
    assert NET.running_mean.tolist() == [0, 0]
    assert NamedValues([Writing()]).kept()() == ""


def test_an_iterator_is_told():
    assert NamedValues([Taking()]).iterator == "STEPS"
    assert NamedValues([Writing()]).iterator == ""
