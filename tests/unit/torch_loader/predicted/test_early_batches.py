"""Processes that make batches early, as they are: flatout.torch_loader.predicted.sample_worker is what they run."""

import os
import random
import time

import pytest
import torch

from flatout.torch_loader.predicted.early_batches import EarlyBatches, WorkerHangsError
from flatout.torch_loader.predicted.random_streams import StreamSet, at_one_place
from flatout.torch_loader.predicted.sample_worker import AFTER_END, AFTER_START, MadeFrom

pytestmark = pytest.mark.slow


def fetch(index):
    if index == "fails":
        raise KeyError(index)
    if index == "dies":
        os._exit(3)
    if index == "hangs":
        time.sleep(60)
    return torch.full((3,), random.random()), index


@pytest.fixture
def streams():
    random.seed(5)
    return StreamSet([])


@pytest.fixture
def early(streams):
    found = EarlyBatches(2, 3, MadeFrom(fetch, streams, []), batch_bytes=64, hang_s=20.0)
    yield found
    found.end()


def nothing(streams):
    return (0,) * len(streams.read())


def numbers(count):
    return [random.random() for _ in range(count)]


def test_a_batch_is_made_from_the_state_that_was_given(early, streams):
    now = streams.read()
    early.give(0, 7, "a", now, nothing(streams))
    assert early.began(7) == now
    made = early.made(7)
    batch, index = early.unpacked(made)
    assert streams.read() == now
    assert (float(batch[0]), index) == (pytest.approx(random.random()), "a")
    assert at_one_place(streams.read(), made.end)


def test_jobs_follow_each_other_by_their_start_or_their_end(early, streams):
    now, none = streams.read(), nothing(streams)
    two = (2, *none[1:])
    early.give(0, 0, "a", now, none)
    early.give(0, 1, "b", AFTER_END, none)
    early.give(0, 2, "c", AFTER_START, two)
    values = [float(early.unpacked(early.made(number))[0][0]) for number in range(3)]
    assert values == [pytest.approx(value) for value in numbers(3)]


def test_what_is_forgotten_is_neither_made_nor_told_of(early, streams):
    now, none = streams.read(), nothing(streams)
    for number in range(3):
        early.give(0, number, "old", now, none)
    early.forget()
    assert 1 not in early
    early.give(0, 1, "new", now, none)
    assert early.unpacked(early.made(1))[1] == "new"


def test_there_is_room_for_some_batches_until_they_are_released(early, streams):
    now, none = streams.read(), nothing(streams)
    assert all(early.give(0, number, "a", now, none) for number in range(3))
    assert not early.give(0, 3, "a", now, none)
    assert early.give(1, 3, "a", now, none)
    early.made(0)
    early.release(0)
    assert early.give(0, 4, "a", now, none)


def test_a_sample_that_raises_gives_no_batch_and_the_process_goes_on(early, streams):
    now, none = streams.read(), nothing(streams)
    early.give(0, 0, "fails", now, none)
    assert early.made(0).parcel is None
    early.give(0, 1, "a", now, none)
    assert early.made(1).parcel is not None


def test_a_process_that_ends_raises_at_once(early, streams):
    early.give(0, 0, "dies", streams.read(), nothing(streams))
    with pytest.raises((EOFError, OSError)):
        early.made(0)


def test_a_process_that_hangs_raises_after_a_while(streams):
    early = EarlyBatches(1, 2, MadeFrom(fetch, streams, []), batch_bytes=64, hang_s=0.3)
    early.give(0, 0, "hangs", streams.read(), nothing(streams))
    with pytest.raises(WorkerHangsError):
        early.made(0)
    early.end()


def test_processes_end_with_what_started_them(streams):
    early = EarlyBatches(1, 2, MadeFrom(fetch, streams, []), batch_bytes=64, hang_s=5.0)
    early.give(0, 0, "a", streams.read(), nothing(streams))
    early.made(0)
    (process,) = (each._process for each in early._processes.values())
    assert process.is_alive()
    del early
    assert not process.is_alive()
