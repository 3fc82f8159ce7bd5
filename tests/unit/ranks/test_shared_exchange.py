"""Exchanges through shared memory, by threads that have each their own view of it."""

import os
import platform
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from flatout.ranks import shared_exchange
from flatout.ranks.shared_exchange import open_shared

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="another family of processors")


class Store:
    """A store in which reading waits for the writer, as torch's does."""

    def __init__(self):
        import threading

        self.kept, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.kept[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.kept, timeout=20)
            return self.kept[key]


def on_ranks(size, act):
    store = Store()
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(lambda rank=rank: act(open_shared(store, rank, size), rank)) for rank in range(size)]
        return [future.result() for future in futures]


@pytest.mark.parametrize("length", [1, 7, 4096, 100_000])
@pytest.mark.parametrize("size", [2, 3])
def test_bytes_and_sums_of_all_ranks_again_and_again(monkeypatch, length, size):
    monkeypatch.setattr(shared_exchange, "_MOST_BYTES", 1 << 16)  # longer ones come in parts
    values = torch.randn(6, size, length)

    def act(shared, rank):
        found = []
        for turn in values:
            own = turn[rank].contiguous()
            gathered = torch.empty(size, length)
            shared.gather(own.view(torch.uint8), gathered.view(-1).view(torch.uint8))
            total = own.clone()
            shared.total(total)
            found.append((gathered, total))
        return found

    results = on_ranks(size, act)
    for turn, value in enumerate(values):
        for rank in range(size):
            gathered, total = results[rank][turn]
            assert torch.equal(gathered, value)
            assert torch.equal(total, results[0][turn][1])
            torch.testing.assert_close(total, value.sum(0))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("lengths", [(5,), (1, 0, 7, 3), (40_000, 2, 9_000), (16_384, 16_384, 1)])
def test_means_of_several_tensors_are_those_of_one_after_the_other(monkeypatch, size, lengths):
    monkeypatch.setattr(shared_exchange, "_MOST_BYTES", 1 << 16)  # 16,384 values at a time
    values = [[torch.randn(length) for length in lengths] for _ in range(size)]

    def act(shared, rank):
        own, flat = [one.clone() for one in values[rank]], torch.cat(values[rank])
        shared.mean(own)
        shared.total(flat)
        return own, (flat / size).split(lengths)

    for own, wanted in on_ranks(size, act):
        assert all(torch.equal(one, other) for one, other in zip(own, wanted, strict=True))


@pytest.mark.parametrize("length", [0, 1, 65_536, 200_001])
def test_what_one_rank_has_is_handed_on(monkeypatch, length):
    monkeypatch.setattr(shared_exchange, "_MOST_BYTES", 1 << 16)
    sent = torch.randint(0, 255, (3, length), dtype=torch.uint8)

    def act(shared, rank):
        found = [turn.clone() if rank == 0 else torch.full((length,), 255, dtype=torch.uint8) for turn in sent]
        for one in found:
            shared.hand_on(one)
        return torch.stack(found)

    assert all(torch.equal(found, sent) for found in on_ranks(3, act))


def test_nothing_is_left_and_where_there_is_no_room_there_is_none(monkeypatch):
    assert all(shared is not None for shared in on_ranks(2, lambda shared, rank: shared))
    assert [name for name in os.listdir("/dev/shm") if name.startswith(f"flatout-{os.getpid()}-")] == []
    monkeypatch.setattr(shared_exchange, "_LEAST_BYTES", 1 << 60)
    assert on_ranks(2, lambda shared, rank: shared) == [None, None]


def test_a_rank_that_has_gone_is_noticed():
    def act(shared, rank):
        if rank:
            return True
        shared._counters[8 + 1] = 2**22 + 1  # no process has that number
        with pytest.raises(RuntimeError, match="rank 1 has gone"):
            shared.gather(torch.ones(4, dtype=torch.uint8), torch.empty(8, dtype=torch.uint8))
        return True

    assert on_ranks(2, act) == [True, True]
