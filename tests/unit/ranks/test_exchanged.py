"""Gradients through the operations between the whole batch and rows, against those of one process."""

import pytest
import torch
from tests.unit.ranks.in_threads import on_ranks

from flatout.ranks.exchanged import JoinRows, Leave, Mean, TakeRows, Tie, Visit
from flatout.ranks.local_rows import OwnRows
from flatout.ranks.rows import shares

X = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
W = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
V = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def tied(group, total=5):
    sizes = shares(total, group.size)
    return Tie(None, OwnRows(total, sum(sizes[: group.rank]), sizes[group.rank], 0, sizes), group)


def inner(x, w, v):
    return torch.tanh(x @ w) * v


def outer(z, w):
    return (z @ z.T).softmax(1).diagonal().log().sum() + w.pow(2).sum()


def by_rows(group, x, w, v):
    tie = tied(group)
    sizes = tie.rows.shares
    part = inner(TakeRows.apply(x, tie, 0, sizes), w, Visit.apply(v, (tie,)))
    return JoinRows.apply(part, tie, 0, sizes)


def averaged(group, tensor):
    own = tensor.clone()
    group.average(own.view(-1))
    return own


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_those_of_one_process(ranks):
    def leaves():
        return [one.clone().requires_grad_() for one in (X, W, V)]

    x, w, v = leaves()
    outer(inner(x, w, v), w).backward()

    def run(group):
        a, b, c = leaves()
        outer(by_rows(group, a, b, c), b).backward()
        return a.grad, averaged(group, b.grad), c.grad

    for found in on_ranks(ranks, run):  # of what is the same on all ranks they are whole without a mean
        for one, of in zip(found, (x.grad, w.grad, v.grad), strict=True):
            torch.testing.assert_close(one, of)


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_gradients_are_those_of_one_process(ranks):
    def penalty(x, w, v, call, mean):
        slope, of_w = torch.autograd.grad(call(x, w, v).sum(), (x, w), create_graph=True)
        return ((mean(slope).norm(dim=1) - 1) ** 2).mean() + mean(of_w).pow(3).sum()

    x, w, v = (one.clone().requires_grad_() for one in (X, W, V))
    penalty(x, w, v, inner, lambda one: one).backward()

    def run(group):
        a, b, c = (one.clone().requires_grad_() for one in (X, W, V))
        tie = tied(group)
        penalty(a, b, c, lambda *args: by_rows(group, *args), lambda one: Mean.apply(one, (tie,))).backward()
        return a.grad, averaged(group, b.grad), c.grad

    for found in on_ranks(ranks, run):
        for one, of in zip(found, (x.grad, w.grad, v.grad), strict=True):
            torch.testing.assert_close(one, of)


def test_one_call_after_another_is_right_too():
    def chain(x, w, v, call):
        return outer(call(call(x, w, v)[:, :3] * 2, w, v), w)

    x, w, v = (one.clone().requires_grad_() for one in (X, W, V))
    chain(x, w, v, inner).backward()

    def run(group):
        a, b, c = (one.clone().requires_grad_() for one in (X, W, V))
        chain(a, b, c, lambda *args: by_rows(group, *args)).backward()
        return a.grad, averaged(group, b.grad), c.grad

    for found in on_ranks(2, run):
        for one, of in zip(found, (x.grad, w.grad, v.grad), strict=True):
            torch.testing.assert_close(one, of)


def test_a_result_without_rows_gives_its_gradient_once():
    def run(group):
        w = W.clone().requires_grad_()
        Leave.apply(w.exp(), (tied(group),)).sum().backward()
        return averaged(group, w.grad)

    for found in on_ranks(3, run):
        torch.testing.assert_close(found, W.exp())
