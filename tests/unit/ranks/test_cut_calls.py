"""Calls cut on two ranks, against the same calls of one process: results, what is left behind, and which were cut."""

import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.unit.ranks.in_processes import on_ranks
from torch import nn

from flatout.ranks.cut_calls import CutCalls
from flatout.ranks.gradients import LocalSpans

OWN = torch.Generator()


class Account:
    """Which calls were cut."""

    def __init__(self):
        self.said = []

    def cut(self, name, rows):
        self.said.append("cut")

    def few(self, name):
        self.said.append("few")

    def whole(self, name, reason):
        self.said.append(reason)

    def took(self, what, seconds):
        pass


def stop(reason):
    raise SystemExit(reason)


def original(module, *args, **kwargs):
    return module.forward(*args, **kwargs)


def called(make, given, left, group=None):
    """Return what calls of a module give with each of `given`, what `left` says of it then, and the account."""
    torch.manual_seed(5), OWN.manual_seed(6), random.seed(7), numpy.random.seed(8)
    module, account = make(), Account()
    calls = None if group is None else CutCalls(group, LocalSpans(), account, stop)
    found = []
    for args in given():
        result = original(module, *args) if calls is None else calls._outside(original, module, args, {})
        found.append([one.detach() if isinstance(one, torch.Tensor) else one for one in _listed(result)])
    return found, left(module), account.said


def _listed(result):
    return result if isinstance(result, (list, tuple)) else [result]


def compared(make, given, left=lambda module: None):
    """Hold two ranks against one process; return what became of each call."""
    whole, state, _ = called(make, given, left)
    ranks = on_ranks(2, lambda group: called(make, given, left, group))
    for found in ranks:
        assert isinstance(found, tuple), found
        for ours, theirs in zip(found[0], whole, strict=True):
            for one, of in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, of)
        torch.testing.assert_close(found[1], state)
    assert ranks[0][2] == ranks[1][2]
    return ranks[0][2]


class Plain(nn.Module):
    """A layer, with `act` done to what it gives."""

    def __init__(self, act):
        super().__init__()
        self.layer, self.act = nn.Linear(4, 4), act

    def forward(self, x, *more):
        return self.act(self, self.layer(x), *more)


def batches(*sizes):
    def given():
        stream = torch.Generator().manual_seed(3)
        return [(torch.randn(size, 4, generator=stream),) for size in sizes]

    return given


def test_rows_of_two_ranks_make_the_whole():
    assert compared(lambda: Plain(lambda self, x: x.relu()), batches(6, 5, 6)) == ["cut"] * 3


# -- arguments ------------------------------------------------------------------------------------------------------


def test_a_list_that_the_script_hands_in_is_the_one_that_is_written_to():
    lists = []

    def given():
        lists.clear()
        for args in batches(6, 6, 6)():
            lists.append([])
            yield (*args, lists[-1])

    def act(self, x, losses):
        losses.append(x.detach().pow(2).mean())
        return x

    said = compared(lambda: Plain(act), given, lambda module: [list(one) for one in lists])
    assert "it writes to its arguments" in said[0] and "cut" not in said[0]


def test_a_table_that_is_written_to_in_a_later_call_alone_is_the_script_s_too():
    tables = []

    def given():
        tables.clear()
        for number, args in enumerate(batches(6, 6, 6, 6, 6, 6, 6)()):
            tables.append({"level": torch.tensor(float(number))})
            yield (*args, tables[-1])

    def act(self, x, table):
        if table["level"] == 4:
            table["mean"] = x.detach().mean()
        return x

    said = compared(lambda: Plain(act), given, lambda module: [dict(one) for one in tables])
    assert said[0] == "cut" and "it writes to its arguments" in said


def test_a_meter_that_is_handed_in_counts_once():
    meter = SimpleNamespace(seen=0)

    def given():
        meter.seen = 0
        return [(*args, meter) for args in batches(6, 6)()]

    def act(self, x, meter):
        meter.seen += len(x)
        return x

    said = compared(lambda: Plain(act), given, lambda module: meter.seen)
    assert "it writes to its arguments" in said


# -- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [lambda self, x: x[:, :1].squeeze(), lambda self, x: x.squeeze()[:, 1]],
    ids=["a result without rows", "an exception"],
)
def test_one_row_in_a_rank_may_have_another_form(act):
    said = compared(lambda: Plain(act), batches(6, 6, 2, 6, 3, 6, 6))
    assert [one == "cut" for one in said] == [True, True, False, True, False, True, True]


def test_a_result_without_rows_that_comes_to_depend_on_them_is_that_of_all():
    def act(self, x, scale):
        return x, torch.clamp((x * scale).pow(2).mean(), min=3.0)

    def given():
        return [(*args, torch.tensor(float(number))) for number, args in enumerate(batches(*[6] * 9)())]

    said = compared(lambda: Plain(act), given)
    assert said[0] == "cut" and said[-1] != "cut"


def test_a_count_that_is_the_same_in_each_rank_is_that_of_all_rows():
    def act(self, x, limit):
        return x, int((x.detach().abs() > limit).sum())

    def given():
        rows = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
        whole = torch.cat([rows, rows])  # each rank counts as many
        return [(whole, torch.tensor(limit)) for limit in (9.0, 9.0, 9.0, 9.0, 0.2, 0.1)]

    said = compared(lambda: Plain(act), given)
    assert said[:3] == ["cut"] * 3 and said[-1] != "cut"


def test_results_of_other_sizes_in_each_rank_are_not_mixed_up():
    def act(self, x, lengths):
        longest = int(lengths.max())
        return x.unsqueeze(1).expand(-1, longest, -1) * torch.arange(1.0, 1 + longest).view(1, -1, 1)

    def given():
        stream = torch.Generator().manual_seed(3)
        lengths = [[3, 1, 2, 3], [3, 1, 2, 3], [3, 1, 2, 2], [3, 1, 2, 3]]
        return [(torch.randn(4, 4, generator=stream), torch.tensor(one, dtype=torch.float32)) for one in lengths]

    said = compared(lambda: Plain(act), given)
    assert [one == "cut" for one in said] == [True, True, False, True]
    assert "have another form" in said[2]


# -- state ----------------------------------------------------------------------------------------------------------


class Counting(Plain):
    """Goes another way in every third call, by a counter that one would not look at."""

    def __init__(self):
        super().__init__(None)
        self._calls = 0

    def forward(self, x):
        self._calls += 1
        return self.layer(x).tanh() if self._calls % 3 == 0 else self.layer(x)


def test_a_counter_counts_each_call_once():
    said = compared(Counting, batches(*[6] * 7), lambda module: module._calls)
    assert "cut" in said or any("_calls" in one for one in said)


class Going(Plain):
    """Keeps what is the same for a part of a batch, and goes another way with some batches."""

    def __init__(self):
        super().__init__(None)
        self.level, self.told = 1.0, [0]
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, way):
        self.level *= 0.5
        self.told[0] = self.told[0] + 1
        self.count = self.count + 1
        found = self.layer(x)
        return (found.tanh().exp() if way > 0 else found) * self.count


def test_a_call_that_goes_another_way_leaves_its_traces_once():
    def given():
        ways = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]
        return [(*args, torch.tensor(way)) for way, args in zip(ways, batches(*[6] * 7)(), strict=True)]

    said = compared(Going, given, lambda module: (module.level, module.told, module.count))
    assert said[0] == "cut", said


def test_streams_of_the_script_are_drawn_from_as_in_one_process():
    def given():
        return [(*args, random.Random(4)) for args in batches(6, 6, 6)()]

    def act(self, x, stream):
        return x + torch.randn(x.shape, generator=OWN) * stream.random()

    compared(lambda: Plain(act), given, lambda module: OWN.get_state())


@pytest.mark.parametrize(
    "act",
    [
        lambda self, x: self.usage.index_add_(0, x.detach().argmax(1), torch.ones(len(x))) is None or x,
        lambda self, x: self.book.data.mul_(0.9).add_(x.detach().mean(0)) is None or x + self.book,
    ],
    ids=["a tensor in an attribute", "values of a parameter"],
)
def test_what_a_call_writes_of_its_batch_is_that_of_the_whole(act):
    def make():
        module = Plain(act)
        module.usage, module.book = torch.zeros(4), nn.Parameter(torch.zeros(4), requires_grad=False)
        return module

    said = compared(make, batches(6, 6, 6), lambda module: (module.usage, module.book.detach()))
    assert "cut" not in said[:1], said


def test_a_call_that_computes_gradients_has_those_of_the_whole_batch():
    def act(self, x):
        loss = x.pow(2).mean()
        loss.backward()
        return loss.detach()

    said = compared(lambda: Plain(act), batches(6), lambda module: None)
    assert any("calls backward itself" in one for one in said)


def test_weights_that_are_not_the_same_on_all_ranks_are_seen_before_the_first_call():
    def act(group):
        torch.manual_seed(group.rank)
        module = nn.Linear(4, 4)
        group.parted = lambda texts: stop("; ".join(texts))
        calls = CutCalls(group, LocalSpans(), Account(), stop)
        torch.manual_seed(0)
        calls._outside(original, module, (torch.ones(6, 4),), {})

    assert all("SystemExit: call 1, of Linear" in found for found in on_ranks(2, act))


def test_parameters_that_are_gone_are_forgotten():
    calls = CutCalls(None, LocalSpans(), Account(), stop)
    wrapped = {}
    calls.install(SimpleNamespace(wrap=lambda name, make: wrapped.__setitem__(name, make)))
    init = wrapped["torch.optim.optimizer:Optimizer.__init__"](torch.optim.SGD.__init__, None)
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD.__new__(torch.optim.SGD)
    init(optimizer, [weight])
    assert [held for _, held in calls._trained.values()] == [3]
    del optimizer, weight
    assert calls._trained == {}
