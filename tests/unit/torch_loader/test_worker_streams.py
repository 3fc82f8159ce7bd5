"""A pass without workers draws what the workers would have drawn, each from a stream of its own."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.torch_loader.worker_streams import WorkerStreams, drawn_from


def drawn(streams, number):
    return [torch.rand(1, generator=streams.next()).item() for _ in range(number)]


def test_without_workers_the_stream_is_the_processes_own():
    assert WorkerStreams(5, 0).next() is None


def test_batches_go_to_the_streams_in_turn():
    found = drawn(WorkerStreams(5, 2), 4)
    first, second = (torch.Generator().manual_seed(5 + worker) for worker in range(2))
    wanted = [torch.rand(1, generator=each).item() for each in (first, second, first, second)]
    assert found == wanted


def test_workers_that_stay_go_on_with_theirs_and_begin_with_the_first():
    earlier = WorkerStreams(5, 2)
    drawn(earlier, 3)
    going_on = drawn(WorkerStreams(99, 2, earlier), 2)
    whole = drawn(WorkerStreams(5, 2), 5)
    assert going_on == [whole[4], whole[3]]


class Random(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.rand(2)


def test_the_numbers_are_those_of_torchs_own_workers():
    torch.manual_seed(3)
    own = list(DataLoader(Random(), batch_size=1, num_workers=2))
    torch.manual_seed(3)
    seed = torch.empty((), dtype=torch.int64).random_().item()
    streams, made = WorkerStreams(seed, 2), []
    for _ in range(6):
        with drawn_from(streams.next()):
            made.append(torch.rand(2)[None])
    assert all(map(torch.equal, own, made))


def test_the_global_stream_stands_where_it_stood_and_the_other_goes_on():
    stream = torch.Generator().manual_seed(1)
    before = torch.get_rng_state()
    with drawn_from(stream):
        first = torch.rand(1)
    with pytest.raises(ValueError, match="odd"), drawn_from(stream):
        second = torch.rand(1)
        raise ValueError("odd")
    assert torch.equal(torch.get_rng_state(), before)
    again = torch.Generator().manual_seed(1)
    assert torch.equal(torch.cat([first, second]), torch.cat([torch.rand(1, generator=again) for _ in range(2)]))
    with drawn_from(None):
        torch.rand(1)
    assert not torch.equal(torch.get_rng_state(), before)
