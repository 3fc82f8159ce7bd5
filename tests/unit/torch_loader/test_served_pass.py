"""A pass of torch's own iterator class whose batches come from elsewhere: same indices, same draws."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from flatout.torch_loader.served_pass import ServedPass

ROWS = TensorDataset(torch.arange(10))


def served(loader, make=None, **named):
    made = make or (lambda indices, stream: indices.tolist())
    return ServedPass(loader, made, **{"seeded_before": False, **named})


def plain(loader):
    return [batch.tolist() for (batch,) in loader]


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "num_workers": 2},
        {"shuffle": True, "num_workers": 1, "prefetch_factor": 5},
        {"drop_last": True},
        {"batch_sampler": [[3, 1], [2]]},
    ],
)
def test_indices_and_the_random_stream_are_those_of_the_scripts_own(named):
    sizes = {} if "batch_sampler" in named else {"batch_size": 4}
    torch.manual_seed(1)
    wanted = plain(DataLoader(ROWS, **named, **sizes))
    state = torch.get_rng_state()
    torch.manual_seed(1)
    assert list(served(DataLoader(ROWS, **named, **sizes))) == wanted
    assert torch.equal(torch.get_rng_state(), state)


def test_each_batch_has_the_stream_of_its_worker():
    streams = []
    walked = served(DataLoader(ROWS, batch_size=4, num_workers=2), lambda indices, stream: streams.append(stream))
    list(walked)
    assert streams[0] is streams[2] is not streams[1]
    assert walked.streams.num_workers == 2
    assert served(DataLoader(ROWS), lambda indices, stream: stream).next_batch() is None


def test_workers_that_stay_draw_no_second_seed():
    loader = DataLoader(ROWS, num_workers=1, persistent_workers=True)
    before = torch.get_rng_state()
    first = served(loader, seeded_before=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert loader.generator is None
    served(loader, seeded_before=False)
    assert not torch.equal(torch.get_rng_state(), before)
    again = served(loader, seeded_before=True, earlier=first.streams)
    assert again.streams.next() is first.streams.next()


def test_what_is_asked_for_follows_and_whoever_computes_is_asked():
    calls = []

    def compute(make, indices, stream):
        calls.append(indices.tolist())
        return make(indices, stream)

    def follow(indices, ahead):
        assert ahead
        return (index + 0 for index in indices)

    walked = served(DataLoader(ROWS, batch_size=5), compute=compute, follow=follow)
    assert list(walked) == calls == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert walked.latest.tolist() == calls[-1]


class Ready:
    """Has every other batch before it is asked for."""

    def __init__(self, order, size):
        self.order, self.size, self.turn = iter(order), size, 0

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.order)

    def batch(self):
        self.turn += 1
        return ("ready", next(self.order).tolist()) if self.turn == 1 else None


def test_some_batches_are_there_before_they_are_asked_for():
    walked = served(DataLoader(ROWS, batch_size=4), ready=Ready)
    assert list(walked) == [("ready", [0, 1, 2, 3]), [4, 5, 6, 7], [8, 9]]


def test_the_end_is_told_once_and_the_number_of_batches_counted():
    ends = []
    walked = served(DataLoader(ROWS, batch_size=5), ended=lambda: ends.append(1))
    assert len(walked) == 2
    list(walked)
    assert ends == [1]
    assert walked._num_yielded == 2


def test_whoever_watches_loaders_sees_the_pass(monkeypatch):
    seen, own = [], _BaseDataLoaderIter.__next__
    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", lambda walked: seen.append(1) or own(walked))
    assert list(served(DataLoader(ROWS, batch_size=5))) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert len(seen) == 3


def test_batches_may_be_given_by_something_else():
    walked = served(DataLoader(ROWS, batch_size=5, pin_memory=False))
    walked.leave_to_device(resident=True)
    walked.give_by(lambda: ("given", walked.next_batch()))
    assert next(walked) == ("given", [0, 1, 2, 3, 4])


def test_only_indices_of_torchs_own_samplers_may_be_drawn_ahead():
    assert served(DataLoader(ROWS, shuffle=True)).may_draw_ahead
    assert not served(DataLoader(ROWS, batch_sampler=[[1]])).may_draw_ahead
