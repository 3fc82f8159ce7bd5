"""Which cut calls a loss was computed from, and what leaves a call past its results; `LocalSpans` of flatout.ranks."""

import torch
from tests.unit.ranks.in_processes import on_ranks as in_processes
from tests.unit.ranks.in_threads import on_ranks

from flatout.ranks.exchanged import JoinRows, TakeRows, Tie
from flatout.ranks.gradients import LocalSpans, _average_leaves, _averaged, ties_of
from flatout.ranks.local_rows import OwnRows


class Alone:
    rank, size = 0, 1

    def joined(self, part, dim, sizes):
        return part.detach().clone()


def called(spans, x, leak=None):
    """One cut call of a module on a group of one rank."""
    module = torch.nn.Linear(3, 3)
    tie = Tie(module, OwnRows(len(x), 0, len(x), 0, (len(x),)), Alone())
    if x.grad_fn is not None:
        tie.before.append(x.grad_fn)
    own = TakeRows.apply(x, tie, 0, (len(x),)) if x.requires_grad else x
    begin = spans.now()
    part = torch.relu(module(own))
    if leak is not None:
        leak.append(part.sum())
    spans.note(begin, spans.now(), "Linear")
    return JoinRows.apply(part, tie, 0, (len(x),)), tie


def test_a_loss_leads_back_to_all_calls_that_it_was_computed_from():
    spans = LocalSpans()
    first, one = called(spans, torch.randn(4, 3))
    second, two = called(spans, first * 2)
    _, other = called(spans, torch.randn(4, 3))
    assert ties_of([second.sum()], spans) == ([two, one], "")
    assert other not in ties_of([first.sum(), second.sum()], spans)[0]
    assert ties_of([torch.randn(3, requires_grad=True).sum(), torch.randn(3)], spans) == ([], "")


def test_what_leaves_a_call_past_its_results_is_seen():
    spans, leak = LocalSpans(), []
    out, _ = called(spans, torch.randn(4, 3), leak)
    assert ties_of([out.sum() + leak[0]], spans) == ([], "Linear")
    assert ties_of([out.sum()], spans)[1] == ""


def test_old_calls_are_forgotten():
    spans = LocalSpans()
    for number in range(25_000):
        spans.note(10 * number, 10 * number + 5, "Net")
    assert len(spans._begins) <= 10_000
    assert spans.module_of(249_991) == "Net"
    assert spans.module_of(249_996) == spans.module_of(3) == ""


def test_gradients_are_averaged_where_some_rank_has_one():
    def run(group):
        there, partly, nowhere = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
        there.grad = torch.full((2,), 1.0 + group.rank)
        partly.grad = torch.full((2,), 4.0) if group.rank else None
        _average_leaves([there, partly, nowhere], [], group)
        return there.grad.tolist(), partly.grad.tolist(), nowhere.grad

    assert on_ranks(2, run) == [([1.5, 1.5], [2.0, 2.0], None)] * 2


def test_gradients_that_are_asked_for_are_averaged_by_name_too():
    def run(group):
        tie, x = Tie(None, None, group), torch.ones(2)
        found = _averaged({"a": x * (1 + group.rank), "b": x if group.rank else None, "c": None},
                          {"a": x, "b": x, "c": x}, [tie], group)  # fmt: skip
        return {name: None if one is None else one.tolist() for name, one in found.items()}

    assert on_ranks(2, run) == [{"a": [1.5, 1.5], "b": [0.5, 0.5], "c": None}] * 2


def test_gradients_of_any_layout_are_averaged_as_one_after_the_other():
    together = torch.arange(24.0)

    def run(group):
        shapes = [(2, 3, 4, 4), (5,), (), (0,), (12,), (12,)]
        values = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
        grads = [torch.randn(shape, generator=torch.Generator().manual_seed(group.rank)) for shape in shapes[:4]]
        grads[0] = grads[0].to(memory_format=torch.channels_last)
        flat = together * (group.rank + 1)
        for one, grad in zip(values, [*grads, *flat.split(12)], strict=True):
            one.grad = grad
        objects = [one.grad for one in values]
        before = [one.grad.clone() for one in values]
        for some in (values[:4], values[4:], [values[1]]):
            _average_leaves(some, [], group)
        wanted = [group.joined(one.reshape(1, -1), 0, (1,) * group.size).mean(0).view(one.shape) for one in before]
        wanted[1] = group.joined(wanted[1].reshape(1, -1), 0, (1,) * group.size).mean(0)
        same = [torch.equal(one.grad, of) for one, of in zip(values, wanted, strict=True)]
        return same, [one.grad is of for one, of in zip(values, objects, strict=True)], values[0].grad.stride()

    strides = torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last).stride()
    assert in_processes(2, run) == [([True] * 6, [True] * 6, strides)] * 2
