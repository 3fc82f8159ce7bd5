"""Threads that ask for samples which only wait stay on one core; nothing else does, and nothing stays behind."""

import hashlib
import itertools
import os
import subprocess
import sys
import threading
import time

import pytest
import torch
from tests.unit.pipeline import unseen
from tests.unit.pipeline.read.test_thread_prefetcher import Remote, wait_for_the_end_of_threads
from torch.utils.data import DataLoader

from flatout.pipeline import compile_loader
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.inspect.determinism import Determinism, check_determinism
from flatout.pipeline.read.one_core import OneCore, usable
from flatout.pipeline.read.thread_prefetcher import ThreadPrefetcher, in_flight, suit_one_core
from flatout.pipeline.serve.decision import choose
from flatout.pipeline.serve.input_facts import inspect

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="there is one core, or the system does not tell")


class Tells(Remote):
    """Samples are the cores that the thread may use; the sixth starts a thread that stays."""

    def __init__(self, started):
        super().__init__(40)
        self.started = started

    def __getitem__(self, index):
        time.sleep(self.wait_s)
        if index == 5 and threading.current_thread() is not threading.main_thread():
            thread = threading.Thread(target=self.started[0].wait, daemon=True)
            thread.start()
            self.started.append(thread)
        return index, sorted(os.sched_getaffinity(0))


@pytest.fixture
def started():
    until = threading.Event()
    given = [until]
    yield given
    until.set()
    for thread in given[1:]:
        thread.join()


def test_the_threads_of_a_pass_share_one_core_and_what_they_start_is_let_go(started):
    dataset = Tells(started)
    prefetch = ThreadPrefetcher(lambda: dataset.__getitem__, 4, one_core=True)
    prefetch.take(range(10, 40))
    seen = prefetch.take(range(10))
    (thread,) = started[1:]
    assert [index for index, _ in seen] == list(range(10))
    assert {len(cores) for _, cores in seen} == {1}
    assert len({tuple(cores) for _, cores in seen}) == 1
    assert sorted(os.sched_getaffinity(thread.native_id)) == seen[0][1]
    prefetch.end()
    assert sorted(os.sched_getaffinity(thread.native_id)) == CORES
    assert sorted(os.sched_getaffinity(0)) == CORES
    assert wait_for_the_end_of_threads()


class Writes(Remote):
    """Notes on how many cores it is asked for, apart where that is not by a thread of a pass."""

    def __init__(self, noted):
        super().__init__(40)
        self.noted = noted

    def __getitem__(self, index):
        looked_at = not threading.current_thread().name.startswith("flatout-samples")
        unseen.count(self.noted, 1000 * looked_at + len(os.sched_getaffinity(0)))
        return super().__getitem__(index)


@pytest.mark.alone
def test_a_loader_of_samples_that_wait_keeps_its_threads_on_one_core(monkeypatch):
    monkeypatch.setattr(
        "flatout.pipeline.serve.input_facts.suit_one_core", lambda _times: True
    )  # on a busy machine, too
    noted = unseen.tally()
    loader = compile_loader(DataLoader(Writes(noted), 8, num_workers=1))
    assert sum(len(numbers) for numbers, _ in loader) == 40
    here, elsewhere = unseen.counted(noted, 2000)
    assert here[1] == sum(here[:1000]) == 40  # all on one core
    assert sum(here[1000:]) <= 1 and here[1000 + len(CORES)] <= 1  # looking at most is done in a copy of the process
    assert not any(elsewhere)
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_threads_are_not_kept_where_that_is_not_asked_for(started):
    dataset = Tells(started)
    prefetch = ThreadPrefetcher(lambda: dataset.__getitem__, 16)
    assert {tuple(cores) for _, cores in prefetch.take(range(20))} == {tuple(CORES)}
    prefetch.end()


class Unpacks(Remote):
    """Each sample waits, then computes beside the lock of the interpreter; it is the cores that the thread may use."""

    def __getitem__(self, index):
        time.sleep(self.wait_s)
        hashlib.sha256(bytes(400_000))
        return len(os.sched_getaffinity(0))


def test_a_thread_that_a_kept_one_starts_late_uses_all_cores_where_they_were_let_go():
    core, seen = OneCore(), []

    def late():
        core.keep()
        seen.append(sorted(os.sched_getaffinity(0)))
        core.leave()

    def prefetch():
        core.keep()
        thread = threading.Thread(target=late)
        mask = os.sched_getaffinity(0)
        core.open()
        os.sched_setaffinity(0, mask)  # as it stood when the other was about to start
        thread.start()
        thread.join()
        core.leave()

    first = threading.Thread(target=prefetch)
    first.start()
    first.join()
    assert seen == [CORES]


def test_threads_whose_samples_compute_go_where_they_like():
    dataset = Unpacks(1000)
    prefetch = ThreadPrefetcher(lambda: dataset.__getitem__, 8, one_core=True)
    seen = [prefetch.take(range(begin, begin + 50)) for begin in range(0, 300, 50)]
    assert 1 in seen[0]
    assert set(seen[-1]) == {len(CORES)}
    assert OneCore.run(OneCore(), dataset.__getitem__, 3, first=True) == len(CORES)
    prefetch.end()


def test_what_is_started_after_the_end_of_a_pass_is_let_go_by_the_last_thread(started):
    there, going = threading.Semaphore(0), threading.Event()

    class Late(Tells):
        def __getitem__(self, index):
            if index < 10:
                there.release()
                going.wait()
            return super().__getitem__(index)

    dataset = Late(started)
    prefetch = ThreadPrefetcher(lambda: dataset.__getitem__, 4, one_core=True)
    prefetch.take(range(10, 40))
    prefetch.ask([3, 4, 5, 6])
    for _ in range(4):
        there.acquire()
    prefetch.end()
    going.set()
    assert wait_for_the_end_of_threads()
    (thread,) = started[1:]
    assert sorted(os.sched_getaffinity(thread.native_id)) == CORES


def test_the_end_of_a_pass_lets_go_no_thread_of_another_on_the_same_core(monkeypatch):
    monkeypatch.setattr("flatout.pipeline.read.one_core._turns", itertools.repeat(0))
    datasets = [Tells([threading.Event()]) for _ in range(2)]
    first, second = (ThreadPrefetcher(lambda one=one: one.__getitem__, 4, one_core=True) for one in datasets)
    first.take(range(10, 40))
    second.take(range(10, 40))
    first.end()
    assert {len(cores) for _, cores in second.take([0, 1, 2, 3])} == {1}
    second.end()


def test_passes_and_processes_begin_on_different_cores(monkeypatch):
    def begun(pid):
        monkeypatch.setattr("flatout.pipeline.read.one_core._turns", iter(range(100)))
        monkeypatch.setattr(os, "getpid", lambda: pid)
        return [min(OneCore()._core) for _ in range(len(CORES))]

    assert sorted(begun(70)) == sorted(begun(71)) == CORES
    assert begun(70)[0] != begun(71)[0]


@pytest.mark.parametrize(("cpu_s", "suited"), [(200e-6, True), (300e-6, False), (1e-3, False)])
def test_samples_that_compute_are_left_to_all_cores(cpu_s, suited):
    assert suit_one_core([(0.1, cpu_s)] * 4) is suited
    assert suit_one_core([(0.1, cpu_s)] * 3 + [(0.1, 1e-5)]) is suited
    assert suit_one_core([]) is False
    assert in_flight([(0.005, 200e-6)] * 4, one_core=True) == 250


def decided(loader, budget):
    """Who reads ahead, as is decided of what is found."""
    facts, _ = inspect(loader, budget)
    return choose(facts).reading


def test_where_torch_computes_a_sample_on_several_cores_none_is_chosen(monkeypatch):
    monkeypatch.setattr(
        "flatout.pipeline.serve.input_facts.suit_one_core", lambda _times: True
    )  # on a busy machine, too
    for workers, chosen in ((0, False), (1, True)):
        plan = decided(DataLoader(Remote(), 8, num_workers=workers), MemoryBudget())
        assert plan.in_flight
        assert plan.one_core is (chosen or torch.get_num_threads() == 1)


def test_samples_that_leave_a_program_running_are_left_to_all_cores(monkeypatch):
    monkeypatch.setattr(
        "flatout.pipeline.serve.input_facts.suit_one_core", lambda _times: True
    )  # on a busy machine, too
    left = []

    class Serves(Remote):
        """Starts a server of its own at its first sample."""

        server = None

        def __getitem__(self, index):
            if self.server is None:
                self.server = True
                os.write(asked, b"x")
                os.read(done, 1)
            return super().__getitem__(index)

    def serve():
        while os.read(told, 1) == b"x":
            left.append(subprocess.Popen(["sleep", "60"]))
            os.write(answer, b"y")

    (told, asked), (done, answer) = os.pipe(), os.pipe()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        plan = decided(DataLoader(Serves(), 8, num_workers=1), MemoryBudget())
        assert plan.in_flight
        assert not plan.one_core
        assert len(left) > 0
    finally:
        os.write(asked, b"z")
        thread.join()
        for program in left:
            program.kill()
            program.wait()
        for file in (told, asked, done, answer):
            os.close(file)
    assert decided(DataLoader(Remote(), 8, num_workers=1), MemoryBudget()).one_core


def test_what_a_program_computes_counts_as_the_sample_computing():
    class Decoded(Remote):
        def __getitem__(self, index):
            subprocess.run([sys.executable, "-S", "-c", "sum(range(3_000_000))"], check=True)
            return torch.full((3,), float(index))

    times = []
    assert check_determinism(Decoded(), times) == Determinism()
    assert all(cpu > 0.015 for _, cpu in times)  # of the program: this process itself takes a tenth of that
    assert in_flight(times) == 0
    assert not suit_one_core(times)


def test_one_core_alone_is_not_chosen_among():
    code = f"import os; os.sched_setaffinity(0, {{{CORES[0]}}}); from flatout.pipeline.read.one_core import usable"
    words = [sys.executable, "-c", f"{code}; print(usable())"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "False"
    assert usable()
