"""The process that reads a stream: it tells what it begins from and what came of it, and ends when it is let go."""

import multiprocessing
import time

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from flatout.torch_loader.predicted.early_batches import WorkerHangsError
from flatout.torch_loader.streamed.batch_digest import digest_of
from flatout.torch_loader.streamed.stream_reader import StreamReader
from flatout.torch_loader.streamed.stream_worker import ReadJob, streams_of

pytestmark = pytest.mark.slow


class Drawn(IterableDataset):
    def __init__(self, length=6, fails=None):
        self.length, self.fails = length, fails

    def __iter__(self):
        for number in range(self.length):
            if number == self.fails:
                raise KeyError(number)
            yield torch.rand(2) + number


def reader(**options):
    loader = DataLoader(Drawn(**options), 2)
    streams = streams_of(loader, [])
    return StreamReader(loader, streams, 4, batch_bytes=100, hang_s=20), streams, loader


def test_batches_begin_where_they_are_told_and_where_the_last_one_ended():
    made, streams, loader = reader()
    begun = iter(loader)  # which draws a seed
    torch.manual_seed(5)
    start, expected = streams.read(), [*begun]
    made.give(ReadJob(0, start))
    for number in (1, 2, 3):
        made.give(ReadJob(number, None, (0,) * len(start)))
    found = [made.delivered(number) for number in range(4)]
    assert torch.equal(made.unpacked(found[0]), expected[0])
    assert [each.digest for each in found[:3]] == [digest_of(each) for each in expected]
    assert found[3].ended
    assert made.started(1)[0].mark == found[0].end[0].mark
    assert made.given == 4
    made.end()
    assert not multiprocessing.active_children()


def test_an_error_is_told_and_the_process_goes_on():
    made, streams, _ = reader(fails=2)
    made.give(ReadJob(0, streams.read()))
    made.give(ReadJob(1, streams.read()))
    assert made.opened()
    assert not made.delivered(0).failed
    assert made.delivered(1).failed
    made.end()


def test_a_process_that_says_nothing_is_not_waited_for_without_end():
    made, _, _ = reader()
    made.opened()
    made.hang_s = 0.1
    with pytest.raises(WorkerHangsError):
        made.delivered(0)
    made.end()


LOCK = multiprocessing.get_context("fork").Lock()


class Locking(IterableDataset):
    """Has a lock that all processes share while it makes a sample."""

    def __init__(self, took_s):
        self.took_s = took_s

    def __iter__(self):
        while True:
            with LOCK:
                time.sleep(self.took_s)
            yield torch.rand(2)


def locking(took_s):
    loader = DataLoader(Locking(took_s), 2)
    streams = streams_of(loader, [])
    made = StreamReader(loader, streams, 4, batch_bytes=100, hang_s=20)
    made.give(ReadJob(0, streams.read()))
    made.started(0)
    return made


def test_it_ends_between_two_batches_with_no_lock_of_the_script_s(monkeypatch):
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_reader._BATCH_S", 60.0)
    for _ in range(5):
        locking(0.02).end()
        assert LOCK.acquire(timeout=5)
        LOCK.release()
    assert not multiprocessing.active_children()


def test_a_batch_that_takes_longer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_reader._BATCH_S", 0.1)
    made = locking(1000.0)
    began = time.monotonic()
    made.end()
    assert time.monotonic() - began < 100
    assert not multiprocessing.active_children()
