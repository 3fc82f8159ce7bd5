"""Which threads speak against looking at a data set that changes while it is read."""

import contextlib
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.watch.other_threads import other_threads_act


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(index)


def settled():
    """The answer once threads that are starting or ending have come to rest."""
    until = time.monotonic() + 2
    while (found := other_threads_act()) and time.monotonic() < until:
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def running(work, name=None):
    """A thread that does `work(given)` until it is told to end."""
    given = queue.Queue()
    thread = threading.Thread(target=work, args=(given,), name=name, daemon=True)
    thread.start()
    yield
    given.put(None)
    thread.join()


def test_no_thread_but_this_one():
    assert not settled()


def test_a_function_of_the_script_that_waits_may_go_on():
    with running(lambda given: given.get()):
        assert other_threads_act()
    assert not settled()


@pytest.mark.parametrize(
    ("name", "acts"), [("flatout-lines", False), ("fsspecIO", False), ("flatout-samples-3", True), ("mine", True)]
)
def test_threads_with_work_of_their_own_are_harmless(name, acts):
    with running(lambda given: given.get(), name):
        assert settled() is acts


def test_a_pool_is_harmless_while_it_has_nothing_to_do():
    with ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        assert not settled()
        release = threading.Event()
        pool.submit(lambda: release.wait(5))
        time.sleep(0.05)
        assert other_threads_act()
        release.set()


def test_a_pool_that_is_in_a_function_of_c_may_write():
    read, write = os.pipe()
    data = bytearray(1)
    with ThreadPoolExecutor(1) as pool, open(read, "rb", buffering=0) as file:
        filled = pool.submit(file.readinto, memoryview(data))
        time.sleep(0.05)
        assert other_threads_act()
        os.write(write, b"x")
        filled.result()
        assert not settled()
        os.close(write)


def test_a_timer_calls_what_the_script_gave():
    timer = threading.Timer(60, print)
    timer.daemon = True
    timer.start()
    assert settled()
    timer.cancel()
    timer.join()


def test_workers_of_another_loader_are_harmless():
    rows = iter(DataLoader(Rows(), batch_size=2, num_workers=1))
    next(rows)
    assert not settled()
    del rows


@pytest.mark.parametrize(("module", "acts"), [("tqdm._monitor", False), ("my_bars", True)])
def test_the_thread_of_a_progress_bar_is_harmless(module, acts):
    names = {"__name__": module}
    exec("def watch(given):\n    given.get()\n", names)
    with running(names["watch"]):
        assert settled() is acts
