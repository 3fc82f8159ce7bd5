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
