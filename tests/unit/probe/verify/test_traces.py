"""What the training sees between two optimizer steps is noted where the script sees it."""

import random
from threading import get_ident

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from flatout.probe.core.seams import Seams
from flatout.probe.verify.traces import TraceWatch, random_print


@pytest.fixture
def trace():
    seams = Seams()
    watch = TraceWatch(get_ident(), lambda act: act())
    watch.install(seams)
    yield watch
    seams.undo()


def data(n=10):
    return TensorDataset(torch.arange(float(n))[:, None], torch.arange(n))


def test_every_batch_is_noted_with_its_place_and_every_pass_with_its_end(trace):
    loader = DataLoader(data(), batch_size=4)
    for _ in range(2):
        for _ in loader:
            pass
    events = trace.take()
    assert [batch[:4] for batch in events["batches"]] == [
        [0, 0, 0, 4], [0, 0, 1, 4], [0, 0, 2, 2], [0, 1, 0, 4], [0, 1, 1, 4], [0, 1, 2, 2],
    ]  # fmt: skip
    assert [end[:3] for end in events["ends"]] == [[0, 0, 3], [0, 1, 3]]
    assert [start[3] for start in events["starts"]] == [3, 3]
    assert trace.take() == {}


def test_batches_from_workers_have_the_prints_of_those_without(trace):
    plain = [batch[2:] for batch in collected(trace, DataLoader(data(), batch_size=4))]
    assert [batch[2:] for batch in collected(trace, DataLoader(data(), batch_size=4, num_workers=1))] == plain


def collected(trace, loader):
    list(loader)
    return trace.take()["batches"]


def test_an_iterator_that_a_fix_puts_in_front_is_seen_once_for_each_batch():
    seams = Seams()

    class Ahead:
        def __init__(self, inner):
            self.inner, self.batches = iter(inner), []
            self.note = "its own"

        def __iter__(self):
            return self

        def __next__(self):
            while len(self.batches) < 2:
                self.batches.append(next(self.inner, None))
            batch = self.batches.pop(0)
            if batch is None:
                raise StopIteration
            return batch

    seams.wrap(
        "torch.utils.data.dataloader:DataLoader.__iter__", lambda original, hits: lambda loader: Ahead(original(loader))
    )
    watch = TraceWatch(get_ident(), lambda act: act())
    watch.install(seams)
    try:
        iterator = iter(DataLoader(data(), batch_size=4))
        assert iterator.note == "its own"
        assert len(list(iterator)) == 3
    finally:
        seams.undo()
    events = watch.take()
    assert [batch[2:4] for batch in events["batches"]] == [[0, 4], [1, 4], [2, 2]]
    assert [end[:3] for end in events["ends"]] == [[0, 0, 3]]


def test_a_batch_that_changes_after_the_script_has_it_is_noted(trace):
    kept = []
    for x, _ in DataLoader(data(40), batch_size=4):
        kept.append(x)
        if len(kept) > 1:
            kept[-2].zero_()
    assert trace.take()["changed"][0] == [0, 0, 0]


def test_modes_and_gradients_of_a_call_are_noted(trace):
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    with torch.no_grad():
        trace.called(model, ((torch.ones(3, 2),), {}))
    assert trace.take()["calls"][0][:5] == ["Sequential", 2, 3, 0, 3]


def test_losses_are_noted_exactly(trace):
    loss = torch.tensor(0.1, requires_grad=True)
    trace.loss(loss)
    trace.loss([loss, loss * 2])
    assert [float.fromhex(value) for value in trace.take()["losses"]] == [loss.item(), loss.item(), loss.item() * 2]


def test_clipping_is_noted_with_the_norm_that_it_leaves(trace):
    model = nn.Linear(4, 1)
    model(torch.ones(2, 4) * 9).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
    (first, limit, norm, number), second = trace.take()["clips"]
    assert (first, limit, number) == ("clip_grad_norm_", 0.5, 2)
    assert norm == pytest.approx(0.5, rel=1e-4)
    assert second[:2] == ["clip_grad_value_", 0.1]


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, lambda: __import__("numpy").random.rand()])
def test_a_random_number_drawn_changes_the_print_of_the_random_state(draw):
    before = random_print()
    assert random_print() == before
    draw()
    assert random_print() != before
