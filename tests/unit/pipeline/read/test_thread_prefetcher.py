"""Samples that wait for something are asked for by many threads, and come out as the plain loader's do.

Modules: flatout.pipeline.serve.prefetched.
"""

import contextlib
import gc
import itertools
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from tests.unit.pipeline import unseen
from tests.unit.pipeline.programs import Images, Program
from tests.unit.pipeline.test_equality import agree
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from flatout.pipeline import compile_loader
from flatout.pipeline.device.begun_batches import BegunBatches
from flatout.pipeline.inspect import concurrent_requests, determinism
from flatout.pipeline.inspect.determinism import Determinism, check_determinism
from flatout.pipeline.read.thread_prefetcher import ThreadPrefetcher, in_flight
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow


class Remote(Dataset):
    """A sample is a wait; opens something of its own at the first access."""

    def __init__(self, length=40, wait_s=0.003):
        self.length, self.wait_s, self.opened = length, wait_s, None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index >= self.length:
            raise IndexError(index)
        time.sleep(self.wait_s)
        return torch.full((3,), float(index)), f"object {index}"


class Fails(Remote):
    def __getitem__(self, index):
        if index == 17:
            raise OSError("object 17 is gone")
        return super().__getitem__(index)


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("flatout-samples")]


def wait_for_the_end_of_threads():
    end = time.monotonic() + 5
    while alive() and time.monotonic() < end:
        time.sleep(0.01)
    return not alive()


def test_what_waits_is_told_from_what_computes():
    found = []
    for dataset in (Remote(), [torch.zeros(2)] * 5):
        times = []
        assert check_determinism(dataset, times) == Determinism()
        assert len(times) == 4
        found.append(in_flight(times) > 0)
    assert found == [True, False]


def elsewhere():
    return threading.current_thread() is not threading.main_thread()


class Refuses(Remote):
    """Is not to be asked by several threads."""

    def __getitem__(self, index):
        if elsewhere():
            raise RuntimeError("made in another thread")
        return super().__getitem__(index)


class Moves(Remote):
    """A sample is another one each time in another thread: as of a file whose place threads share."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return (sample[0] + time.perf_counter(), sample[1]) if elsewhere() else sample


class Draws(Remote):
    """A sample is drawn in another thread alone, by a name that only a call shows."""

    name = "ra" + "nd"

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return (sample[0], getattr(torch, self.name)(3)) if elsewhere() else sample


@pytest.fixture
def asked(monkeypatch):
    """What other threads were asked for in an examination."""
    noted, init = [], concurrent_requests.ConcurrentRequests.__init__

    def note(self, copies, indices):
        noted.extend(indices)
        init(self, copies, indices)

    monkeypatch.setattr(concurrent_requests.ConcurrentRequests, "__init__", note)
    return noted


def test_samples_that_wait_are_examined_at_once(asked):
    times, samples = [], []
    assert check_determinism(Remote(wait_s=0.02), times, samples) == Determinism()
    assert asked == [13, 26, 39]  # the first is asked for here
    assert len(times) == 4
    assert samples[0][1] == "object 39"


@pytest.mark.parametrize("kind", [Refuses, Moves, Draws])
@pytest.mark.few(1)
def test_what_threads_cannot_answer_is_asked_for_one_after_the_other(asked, kind):
    times, states = [], torch.get_rng_state()
    assert check_determinism(kind(wait_s=0.02), times) == Determinism()
    assert asked
    assert len(times) == 5
    assert in_flight(times) == 0  # nor do threads ask for samples in the passes
    assert torch.equal(torch.get_rng_state(), states)
    loader = DataLoader(kind(wait_s=0.02), batch_size=4)
    plain, compiled = list(loader), compile_loader(loader)
    assert all(same(list(compiled), plain) for _ in range(2))


def test_what_opens_at_the_first_access_is_asked_for_by_threads_all_the_same(asked):
    class Opens(Remote):
        def __getitem__(self, index):
            self.opened = self.opened or "a connection"
            return super().__getitem__(index)

    times = []
    assert check_determinism(Opens(wait_s=0.02), times) == Determinism()
    assert asked
    assert len(times) == 4
    assert in_flight(times) > 0


def test_what_names_a_draw_is_examined_one_after_the_other(asked):
    class Names(Remote):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return torch.rand(3) if index > self.length else sample

    assert check_determinism(Names()) == Determinism()
    assert not asked


def test_what_computes_is_examined_one_after_the_other(asked):
    assert check_determinism([torch.zeros(2)] * 40) == Determinism()
    assert not asked


@pytest.mark.alone
@pytest.mark.parametrize("late", [0, 1])
def test_one_of_two_calls_that_a_busy_core_kept_waiting_is_no_wait(asked, monkeypatch, late):
    ready, disturbed = determinism._timed, itertools.count(late)

    def timed(dataset, index):  # as where the core is taken away in every second call
        sample, (took_s, cpu_s) = ready(dataset, index)
        return sample, (took_s + 0.02 * (next(disturbed) % 2), cpu_s)

    monkeypatch.setattr(determinism, "_timed", timed)

    times = []
    assert check_determinism([torch.zeros(2)] * 40, times) == Determinism()
    assert not asked
    assert in_flight(times) == 0


def test_a_time_limit_ends_an_examination_whose_sample_never_comes():
    class Hangs(Remote):
        def __getitem__(self, index):
            if index:
                time.sleep(60)
            return super().__getitem__(index)

    def too_long(*_):
        raise TimeoutError("too long")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    start = time.monotonic()
    try:
        with pytest.raises(TimeoutError, match="too long"):
            check_determinism(Hangs())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 10


def test_what_waits_for_another_thread_that_computes_does_not_wait_for_a_disk():
    """Where a thread holds the interpreter's lock, each call of torch comes back 5 ms late: 6 of 20 looked so."""
    ended = threading.Event()

    def compute():
        while not ended.is_set():
            sum(range(1000))

    thread, found = threading.Thread(target=compute), []
    thread.start()
    try:
        for _ in range(20):
            times = []
            assert check_determinism(Images(48, form="dict"), times) == Determinism()
            found.append(in_flight(times))
    finally:
        ended.set()
        thread.join()
    assert found == [0] * 20


@pytest.mark.parametrize(
    ("took_s", "cpu_s", "number"),
    [
        (0.005, 200e-6, 179),
        (0.02, 1.11e-3, 145),
        (0.001, 10e-6, 64),
        (0.1, 10e-6, 256),
        (0.005, 0.003, 0),
        (0.0003, 0.0, 0),
    ],
)
def test_as_many_are_in_flight_as_one_core_can_handle(took_s, cpu_s, number):
    assert in_flight([(took_s, cpu_s)] * 4) == number
    assert in_flight([]) == 0


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_waiting_samples_come_in_order_and_are_kept(shuffle, drop_last):
    program = Program(Remote(), {"batch_size": 7, "shuffle": shuffle, "drop_last": drop_last})
    assert "samples kept" in agree(program, passes=4).explain()


def noisy(samples):
    numbers, names = default_collate(samples)
    return numbers + torch.rand(1), names


def noisy_in_pairs(samples):
    numbers, names = default_collate(samples)
    return (numbers + torch.rand(1) if len(samples) == 2 else numbers), names


@pytest.mark.parametrize("collate", [noisy, noisy_in_pairs])
@pytest.mark.parametrize("wait_s", [0.003, 0.0])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.few(3)
def test_trying_a_collate_function_that_draws_leaves_the_streams_where_they_stood(collate, wait_s, workers):
    options = {"batch_size": 4, "shuffle": True, "collate_fn": collate, "num_workers": workers}
    told = agree(Program(Remote(wait_s=wait_s), options)).explain()
    assert ("left as it is" if workers else "before they are collated") in told


def test_what_waits_is_asked_for_once_more_than_the_script_would(monkeypatch):
    asked, sleep = [], time.sleep
    monkeypatch.setattr(time, "sleep", lambda wait_s: asked.append(wait_s) or sleep(wait_s))
    list(compile_loader(DataLoader(Remote(), batch_size=8)))
    assert len(asked) == 40 + 1  # once more, of the first batch; what is looked at before, is in a copy of the process


class OneBuffer(Remote):
    """Gives the same memory each time, filled anew."""

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros(3, np.float32)

    def __getitem__(self, index):
        time.sleep(self.wait_s)
        self.buffer[:] = index
        return self.buffer


def test_one_buffer_for_all_samples_is_noticed():
    for _ in range(3):
        assert "left as it is" in agree(Program(OneBuffer(), {"batch_size": 1}, draws=False)).explain()


def two_at_least(samples):
    assert len(samples) > 1
    return default_collate(samples)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_that_wants_two_samples_is_not_given_one(workers):
    told = agree(Program(Remote(), {"batch_size": 4, "collate_fn": two_at_least, "num_workers": workers})).explain()
    assert f"{0 if workers else 40} samples kept" in told


def test_samples_that_there_is_no_room_for_are_asked_for_in_every_pass():
    loader = compile_loader(DataLoader(Remote(), batch_size=8), max_bytes=100)
    for _ in range(2):
        seen = [name for _, names in loader for name in names]
        assert seen == [f"object {index}" for index in range(40)]


def test_many_wait_at_a_time():
    waiting = unseen.tally()

    class Watched(Remote):
        def __getitem__(self, index):
            unseen.enter(waiting)
            try:
                return super().__getitem__(index)
            finally:
                unseen.leave(waiting)

    list(compile_loader(DataLoader(Watched(200, 0.02), batch_size=10)))
    assert unseen.counted(waiting, 2)[0][1] > 20


def test_a_thread_computes_on_as_many_as_it_was_told_whatever_others_set_meanwhile(two_threads):
    """torch gives a thread its number at its first operation: whichever was set last, anywhere in the process."""
    begun, changed = threading.Event(), threading.Event()

    def reader():
        begun.set()
        changed.wait(10)
        return lambda index: torch.get_num_threads()

    prefetch = ThreadPrefetcher(reader, 1, 2)
    try:
        prefetch.ask([0])
        begun.wait(10)
        torch.set_num_threads(1)  # as a batch that is made on one thread has it
        changed.set()
        assert prefetch.take([0]) == [2]
    finally:
        prefetch.end()
        torch.set_num_threads(2)


def test_a_pass_that_is_left_early_leaves_no_threads():
    loader = compile_loader(DataLoader(Remote(), batch_size=4))
    for _ in loader:
        break
    gc.collect()
    assert wait_for_the_end_of_threads()


class Backwards(Sampler):
    """A sampler of a script's own: nobody may draw from it early."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length - 1, -1, -1))

    def __len__(self):
        return self.length


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_threads_end_with_a_pass_in_an_order_of_the_scripts_own():
    held = iter(compile_loader(DataLoader(Remote(), batch_size=4, sampler=Backwards(40))))
    assert sum(len(names) for _, names in held) == 40
    assert wait_for_the_end_of_threads()


@pytest.mark.usefixtures("no_collection")
def test_what_begins_batches_early_is_gone_after_its_end():
    ahead = BegunBatches(iter([0, 1]).__next__, lambda: True)
    with contextlib.suppress(StopIteration):
        while True:
            ahead.next()
    gone = weakref.ref(ahead)
    del ahead
    assert gone() is None


def test_an_error_comes_at_its_batch():
    loader = compile_loader(DataLoader(Fails(), batch_size=4))
    seen = []
    with pytest.raises(OSError, match="object 17 is gone"):
        seen.extend(len(names) for _, names in loader)
    assert seen == [4, 4, 4, 4]
    del loader
    gc.collect()
    assert wait_for_the_end_of_threads()


def test_what_one_sample_raises_is_raised_where_it_is_waited_for_and_the_others_come():
    def reader():
        def one(index):
            if index == 5:
                raise KeyError(index)
            return -index

        return one

    prefetch = ThreadPrefetcher(reader, 4)
    assert prefetch.take([3, 1, 3]) == [-3, -1, -3]
    with pytest.raises(KeyError, match="5"):
        prefetch.take([4, 5, 6])
    assert prefetch.take([6, 4]) == [-6, -4]
    prefetch.end()
    with pytest.raises(RuntimeError, match="after the end"):
        prefetch.take([7])


def test_a_script_that_leaves_a_pass_open_ends_at_once():
    code = """
import itertools, time, torch
from flatout.pipeline.read.thread_prefetcher import ThreadPrefetcher

def reader():
    def one(index):
        time.sleep(0.01)
        return index
    return one

early = ThreadPrefetcher(reader, 16)
walked = early.follow(itertools.repeat(torch.arange(64)), True, wanted=lambda indices: indices)
print(sum(early.take(next(walked).tolist())), flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2016\n", "")


def test_many_passes_one_after_the_other_give_every_sample():
    """Who waits and who has made what is waited for may come to the lock in any order."""
    for _ in range(30):
        prefetch = ThreadPrefetcher(lambda: lambda index: 2 * index, 8)
        batches = torch.randperm(400).split(5)
        seen = [prefetch.take(each.tolist()) for each in prefetch.follow(iter(batches), True, wanted=lambda each: each)]
        assert seen == [(2 * each).tolist() for each in batches]


@pytest.mark.parametrize("number", [1, 7, 64])
def test_no_sample_is_missed_whichever_thread_is_the_last(number):
    """Made before, while and after somebody begins to wait for them."""
    waits = [0.0, 0.0, 1e-4, 1e-3]

    def reader():
        def read(index):
            time.sleep(waits[index % 4]) if waits[index % 4] else None
            return index * index

        return read

    prefetch = ThreadPrefetcher(reader, 16)
    order = torch.randperm(64 * 40, generator=torch.Generator().manual_seed(number)).tolist()
    batches = [order[start : start + number] for start in range(0, min(len(order), 200 * number), number)]
    found = []
    waiting = threading.Thread(target=lambda: found.extend(prefetch.take(batch) for batch in batches), daemon=True)
    waiting.start()
    waiting.join(60)
    prefetch.end()
    assert found == [[index * index for index in batch] for batch in batches]


@contextlib.contextmanager
def calls_of_torch():
    """Note the names of torch's compiled functions that this thread calls; nothing that torch could see is set."""
    names = []

    def noted(frame, event, called):
        of = getattr(called, "__self__", None)
        if event == "c_call" and (torch.is_tensor(of) or of is torch.stack.__self__):
            names.append(called.__name__)

    sys.setprofile(noted)
    try:
        yield names
    finally:
        sys.setprofile(None)


LOOKS = {"numpy", "tolist", "dim", "numel", "is_contiguous", "reshape", "stride"}


def test_a_batch_of_samples_that_wait_gives_the_interpreter_s_lock_up_but_for_stacking():
    """Each call into torch but the looks gives it up, and 64 threads and more wait for it."""
    compiled = compile_loader(DataLoader(Remote(96), batch_size=8))
    walked = iter(compiled)
    next(walked)
    with calls_of_torch() as names:
        for _ in range(4):
            next(walked)
    assert sorted(set(names) - LOOKS) == ["stack"], names
    assert names.count("stack") == 4


def slow_to_start(monkeypatch, fails_at=None):
    """Let a thread run some time after it was started, as beside a busy core; return the names of who starts whom."""
    plain, started = threading.Thread.start, {}

    def start(self):
        if self.name.startswith("flatout-samples"):
            if len(started) == fails_at:
                raise RuntimeError("can't start new thread")
            started[self.name] = threading.current_thread().name
            time.sleep(0.02)
        plain(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    return started


def test_threads_start_each_other(monkeypatch):
    started = slow_to_start(monkeypatch)
    prefetch = ThreadPrefetcher(lambda: lambda index: time.sleep(0.05) or index, 64)
    assert prefetch.take(range(128)) == list(range(128))
    prefetch.end()
    assert wait_for_the_end_of_threads()
    assert len(started) == 64
    starting = list(started.values())
    assert max(starting.count(name) for name in starting) == 2


@pytest.mark.parametrize("fails_at", [1, 5])
def test_as_many_threads_as_the_system_gives_do_the_work(monkeypatch, fails_at):
    started = slow_to_start(monkeypatch, fails_at)
    prefetch = ThreadPrefetcher(lambda: lambda index: index, 16)
    assert prefetch.take(range(40)) == list(range(40))
    prefetch.end()
    assert wait_for_the_end_of_threads()
    assert len(started) == fails_at


def test_where_the_system_gives_no_thread_it_is_said(monkeypatch):
    slow_to_start(monkeypatch, fails_at=0)
    with pytest.raises(RuntimeError, match="start new thread"):
        ThreadPrefetcher(lambda: lambda index: index, 16).take([1, 2])
