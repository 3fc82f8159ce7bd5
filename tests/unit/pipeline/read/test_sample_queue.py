"""Where samples are asked for, made by threads and waited for."""

import threading
import time

import pytest
import torch

from flatout.pipeline.read.sample_queue import SampleQueue


def queue(one=lambda index: index * 2, *, threads=2, reader=None):
    made = SampleQueue(reader or (lambda: one), 1, None)
    made.wanted = threads
    made.grow()
    return made


def ask(made, *indices):
    for index in indices:
        made.todo.put(index)
    return made.wait(indices)


@pytest.fixture
def ended():
    """Ends every queue that is given to it, with its threads."""
    queues = []
    yield lambda made: queues.append(made) or made
    for made in queues:
        made.end()
        for thread in made.threads:
            thread.join(5)
            assert not thread.is_alive()


def test_samples_come_out_by_their_indices(ended):
    made = ended(queue())
    assert ask(made, 3, 1) == {3: 6, 1: 2}
    assert ask(made, 1) == {1: 2}


def test_samples_that_were_made_before_somebody_waits_are_there(ended):
    made = ended(queue())
    made.todo.put(5)
    while 5 not in made.done:
        time.sleep(0.001)
    assert made.wait([5]) == {5: 10}


def test_each_thread_asks_for_a_reader_of_its_own_and_two_start_the_next_ones(ended):
    readers, meet = [], threading.Barrier(5)

    def reader():
        readers.append(threading.get_ident())
        return lambda index: meet.wait(30) and None

    made = ended(queue(reader=reader, threads=5))
    ask(made, *range(5))
    assert len(set(readers)) == len(made.threads) == 5


def test_what_is_raised_comes_to_whoever_waits(ended):
    def one(index):
        if index == 2:
            raise KeyboardInterrupt("at a sample")
        return index

    made = ended(queue(one))
    with pytest.raises(KeyboardInterrupt, match="at a sample"):
        ask(made, 1, 2, 3)
    assert ask(made, 7) == {7: 7}  # its thread goes on


def test_a_reader_that_cannot_be_made_is_tried_again(ended):
    tries = []

    def reader():
        tries.append(1)
        if len(tries) == 1:
            raise OSError("busy")
        return lambda index: index

    made = ended(queue(reader=reader, threads=1))
    with pytest.raises(OSError, match="busy"):
        ask(made, 0)
    assert ask(made, 1) == {1: 1}


def test_threads_compute_as_the_script_would(ended, two_threads):
    found = []
    made = ended(queue(lambda index: found.append(torch.get_num_threads())))
    ask(made, 0)
    assert found == [1]
    assert torch.get_num_threads() == 2


def test_after_the_end_nothing_more_is_made():
    seen = []
    made = queue(seen.append)
    made.end()
    made.end()
    made.todo.put(1)
    for thread in made.threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in made.threads)
    made.grow()
    assert seen == []


def test_where_the_system_has_no_more_threads_those_that_there_are_do_the_work(ended, monkeypatch):
    start, started = threading.Thread.start, []

    def few(thread):
        if thread.name.startswith("flatout-samples") and started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    made = ended(queue(threads=4))
    assert made.wanted == len(made.threads) == 1
    assert ask(made, 1, 2) == {1: 2, 2: 4}


def test_where_there_is_not_one_that_is_raised(monkeypatch):
    def none(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    with pytest.raises(RuntimeError, match="can't start"):
        queue()


class Core:
    def __init__(self):
        self.calls = []

    def keep(self):
        self.calls.append("keep")

    def leave(self):
        self.calls.append("leave")

    def end(self):
        self.calls.append("end")

    def run(self, one, index, *, first):
        self.calls.append((index, first))
        return one(index)


def test_threads_of_one_core_are_kept_there():
    core = Core()
    made = SampleQueue(lambda: lambda index: -index, 1, core)
    made.wanted = 1
    made.grow()
    assert ask(made, 1) == {1: -1}
    assert ask(made, 2) == {2: -2}
    made.end()
    made.threads[0].join(5)
    assert core.calls[:3] == ["keep", (1, True), (2, False)]
    assert sorted(core.calls[3:]) == ["end", "leave"]
