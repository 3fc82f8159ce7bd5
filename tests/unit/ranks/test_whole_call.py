"""The whole call of a trial, made by one rank for all: who makes it, and that ranks find what each would by itself."""

import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.unit.ranks.in_processes import on_ranks
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from flatout.machine import usable_cores
from flatout.ranks import whole_call
from flatout.ranks.exchanged import Tie
from flatout.ranks.local_rows import HERE, OwnRows
from flatout.ranks.proof import CutForm, CutResult, NotTried, prove
from flatout.ranks.rows import shares
from flatout.ranks.whole_call import Call

SETTINGS = SimpleNamespace(strength=0.5)
HIDDEN = random.Random(3)


class Calling(nn.Module):
    """A module that does `act` with what its layer gives."""

    def __init__(self, act):
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False)
        self.act = act

    def forward(self, x):
        return self.act(self, self.inner(x))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 300))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return {"found": torch.tanh(self.inner(x)) * SETTINGS.strength, "kind": 3, "none": None}


class Centred(Plain):
    def forward(self, x):
        return self.inner(x - x.mean(0))


class Detached(Plain):
    """Results are those of rows, and gradients are not."""

    def forward(self, x):
        found = self.inner(x)
        mean = found.mean()
        return found + mean - mean.detach()


class Largest(Plain):
    """What rank 0 finds of its rows is what the whole batch gives; rank 1 finds something else."""

    def forward(self, x):
        return self.inner(x), x.amax()


class Keeping(Plain):
    def forward(self, x):
        self.largest = float(x.amax())
        return self.inner(x)


class Drawing(Plain):
    def forward(self, x):
        return self.inner(x) * HIDDEN.choice([1.0])


def cut(group):
    """As `CutCalls` does it, without exchanging anything for the whole batch inside."""

    def cut_call(module, leaves, structure, plan):
        total = plan.rows([tuple(leaf.shape) for leaf in leaves])
        parts = shares(total, group.size)
        rows = OwnRows(total, sum(parts[: group.rank]), parts[group.rank], 0, parts, plan.draws)
        HERE.rows = rows
        try:
            own = [leaf.narrow(0, rows.first, rows.number) for leaf in leaves]
            args, kwargs = tree_unflatten(own, structure)
            return CutResult(*tree_flatten(module(*args, **kwargs)), Tie(module, rows, group))
        finally:
            HERE.rows = None

    return cut_call


def joined(group):
    from flatout.ranks.exchanged import JoinRows

    def join(result, dims):
        sizes = result.tie.rows.shares
        return [
            part if dim is None else JoinRows.apply(part, result.tie, dim, sizes)
            for part, dim in zip(result.parts, dims, strict=True)
        ]

    return join


def proven(module, batch, size=2, *, alone=False):
    """What each rank finds, on how many threads it made each whole call, and on how many it computes afterwards."""

    def act(group):
        calls, asked, own = [], [1], whole_call._reference
        whole_call._reference = lambda *args: calls.append(asked[-1]) or own(*args)
        whole_call._set_num_threads = asked.append  # a forked process must not start threads: its parent may have some
        if alone:
            whole_call._one_for_all = lambda call, group: False

        def run(module, leaves, structure):
            args, kwargs = tree_unflatten(leaves, structure)
            return module(*args, **kwargs)

        random.seed(0), numpy.random.seed(0)  # each forked process begins them anew
        found = prove(Call(module, *tree_flatten(((batch,), {}))), run, cut(group), joined(group), group)
        kind = "cut" if isinstance(found, CutForm) else "not tried" if isinstance(found, NotTried) else "whole"
        told = found.results if isinstance(found, CutForm) else str(found)
        return kind, told, calls, asked[-1]

    return on_ranks(size, act)


def batch(rows=10):
    found = torch.randn(rows, 6, generator=torch.Generator().manual_seed(1))
    found[0, 0] = 50.0
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_one_rank_makes_it_for_all_and_threads_are_as_before(size):
    found = proven(Plain(), batch(), size)
    assert [one[0] for one in found] == ["cut"] * size, found
    assert [len(one[2]) for one in found] == [1, *[0] * (size - 1)]
    assert found[0][2] == [min(size, usable_cores())]  # the threads of all
    assert {one[3] for one in found} == {1}


@pytest.mark.parametrize("kind", [Plain, Centred, Detached, Largest, Keeping])
def test_ranks_find_what_each_finds_that_makes_the_call_itself(kind):
    module = kind()
    together, alone = proven(module, batch()), proven(module, batch(), alone=True)
    assert sum(len(one[2]) for one in together) * 2 == sum(len(one[2]) for one in alone), (together, alone)
    assert [one[:1] for one in together] == [one[:1] for one in alone]
    assert together[0][1] == together[1][1] and alone[0][1] == alone[1][1]
    assert (together[0][0] == "cut") == (kind is Plain), together


def test_where_something_may_stay_behind_unseen_every_rank_makes_it():
    assert [len(one[2]) for one in proven(Drawing(), batch())] == [1, 1]


def test_what_is_no_plain_tensor_is_not_handed_on(monkeypatch):
    monkeypatch.setattr(whole_call, "_head", lambda outcome: b"")
    found = proven(Plain(), batch())
    assert [one[0] for one in found] == ["cut", "cut"], found
    assert [len(one[2]) for one in found] == [1, 1]


def test_a_reason_of_the_one_that_makes_it_is_that_of_all():
    found = proven(nn.Sequential(Plain(), nn.Identity()), torch.full((4, 6), float("inf")))
    assert found[0][:2] == found[1][:2] == ("not tried", "its results are not finite")
