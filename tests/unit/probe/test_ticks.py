"""The clock of the line sampler that sees the main thread without waiting for the interpreter."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from tests import watched
from tests.watched import line_of, nap, slow_decode

from flatout.probe.system import line_sampler
from flatout.probe.system.line_sampler import Doing, LineSampler
from flatout.schema.phase import Phase

pytestmark = pytest.mark.skipif(line_sampler._ticks is None, reason="the clock in C was not compiled")


class For:
    """Not set for some seconds."""

    def __init__(self, seconds):
        self._until = time.perf_counter() + seconds

    def is_set(self):
        return time.perf_counter() > self._until


def sampled_here(work, seconds=0.4, ticking=True):
    """Sample this thread, the main one, while it does `work`."""
    sampler = LineSampler("main", Doing(where=(Phase.HOST, "lead")))
    sampler.start()
    assert sampler._ticking is ticking
    work(For(seconds))
    sampler.stop()
    return sampler, sampler.costs()


@pytest.mark.parametrize(("work", "text"), [(slow_decode, "# DECODE"), (nap, "# NAP")])
def test_the_line_the_main_thread_is_in(work, text):
    sampler, costs = sampled_here(work)
    at = next(cost for cost in costs if cost.stack[0].function == work.__name__)
    assert (costs[0].process, costs[0].phase, costs[0].part) == ("main", Phase.HOST, "lead")
    assert (at.stack[0].file, at.stack[0].line) == (watched.__file__, line_of(work, text))
    assert at.stack[1].function == "sampled_here"
    assert sum(cost.seconds for cost in costs) == pytest.approx(sampler.wall_s)
    assert 0.3 < sampler.wall_s < 1.0


def python_and_operations(stop):
    while not stop.is_set():
        for _ in range(200):
            total = 0
            for each in range(200):
                total += each * each  # PYTHON
            torch.rand(64)  # OPERATION


def test_plain_python_between_operations_is_seen():
    """A thread of Python sees nothing but the operation: it lets go of the interpreter every 30 us."""
    _, costs = sampled_here(python_and_operations)
    of = {text: line_of(python_and_operations, text) for text in ("# PYTHON", "# OPERATION")}
    seen = {text: sum(cost.seconds for cost in costs if cost.stack[0].line == line) for text, line in of.items()}
    assert seen["# PYTHON"] > seen["# OPERATION"]


def count_without_pause(stop):
    time.sleep(0.1)  # the clock starts
    kept = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        while not stop.is_set():
            for each in range(50):
                str(each)  # COUNTED
    finally:
        sys.setswitchinterval(kept)


def test_python_is_seen_while_a_look_waits_for_the_lock():
    """Nobody makes such Python let go of it, not every 5 ms either."""
    _, costs = sampled_here(count_without_pause)
    line = line_of(count_without_pause, "# COUNTED")
    assert sum(cost.samples for cost in costs if cost.stack[0].line == line) > 20


def test_what_was_before_a_call_is_not_charged_to_the_function_that_is_called():
    def nothing():
        return 1

    def free(stop):
        while not stop.is_set():
            numbers = list(range(50_000))
            del numbers  # FREED
            nothing()  # CALLED

    _, costs = sampled_here(free)
    own = [cost for cost in costs if cost.stack[0].function.endswith(("free", "nothing"))]
    seen = {cost.stack[0].line: cost.seconds for cost in own}
    assert sum(cost.seconds for cost in own if cost.stack[0].function.endswith("nothing")) < 0.05
    assert seen[line_of(free, "# FREED")] > 0.05
    assert seen.get(line_of(free, "# CALLED"), 0) < 0.05


def test_a_long_operator_is_seen_where_it_runs():
    square = torch.rand(700, 700)

    def multiply(stop):
        while not stop.is_set():
            product = square @ square  # PRODUCT
            del product
            len("")

    _, costs = sampled_here(multiply)
    assert costs[0].stack[0].line == line_of(multiply, "# PRODUCT")


def test_what_is_watched_changes_while_it_is_watched():
    doing = Doing()
    sampler = LineSampler("main", doing)
    sampler.start()
    for doing.where, doing.stage in (((Phase.INPUT, ""), "collate"), ((Phase.HOST, "tail"), "")):
        nap(For(0.1))
    sampler.stop()
    seen = {(cost.phase, cost.part, cost.stage) for cost in sampler.costs()}
    assert seen >= {(Phase.INPUT, "", "collate"), (Phase.HOST, "tail", "")}
    assert sampler.costs() == sampler.costs()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted by Linux")
def test_it_says_how_many_threads_it_has():
    time.sleep(0.1)  # what other tests started has gone
    before, sampler = set(os.listdir("/proc/self/task")), LineSampler("main", Doing())
    sampler.start()
    added, said = set(os.listdir("/proc/self/task")) - before, sampler.num_threads
    sampler.stop()
    assert len(added) == said == 2


def test_two_samplers_of_one_process_and_one_after_another():
    first, second = (LineSampler("main", Doing(where=(Phase.HOST, "lead"))) for _ in range(2))
    first.start()
    second.start()
    assert (first._ticking, second._ticking) == (True, False)
    nap(For(0.1))
    second.stop()
    first.stop()
    assert second.wall_s >= 0
    seen = first.costs()
    for _ in range(20):
        _, costs = sampled_here(nap, 0.02)
        assert costs
    assert first.costs() == seen
    first.stop()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="no signal is used")
def test_a_script_that_handles_the_signal_keeps_it():
    mine, before = [], signal.getsignal(signal.SIGURG)
    signal.signal(signal.SIGURG, lambda *_: mine.append(1))
    try:
        sampler = LineSampler("main", Doing())
        sampler.start()
        assert not sampler._ticking
        sampler.stop()
        signal.raise_signal(signal.SIGURG)
        assert mine == [1]
    finally:
        signal.signal(signal.SIGURG, before)


def test_handlers_that_a_framework_puts_back_end_nothing():
    def put_back(stop):
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        nap(stop)

    _, costs = sampled_here(put_back)
    assert any(cost.stack[0].line == line_of(nap, "# NAP") for cost in costs)


_AROUND = """
import os, signal, sys, threading, time
from flatout.probe.system.line_sampler import Doing, LineSampler
def work(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(100))
sampler = LineSampler("main", Doing())
sampler.start()
work(0.05)
"""
_HAPPENS = {
    "the script ends": "",
    "it ends at once": "os._exit(0)",
    "it exits": "sys.exit()",
    "it forks": """
for _ in range(20):
    if not (pid := os.fork()):
        work(0.01)
        sys.exit()
    assert os.waitpid(pid, 0)[1] == 0
""",
    "a fork of it is watched, too": """
for _ in range(20):
    if not (pid := os.fork()):
        again = LineSampler("worker", Doing(stage="sample"))
        again.start()
        work(0.03)
        again.stop()
        os._exit(not again.costs())
    assert os.waitpid(pid, 0)[1] == 0
""",
    "another thread stops it": """
threading.Thread(target=lambda: (sampler.stop(), sampler.costs())).start()
work(0.1)
""",
    "it starts and stops": """
for _ in range(200):
    sampler.stop()
    sampler = LineSampler("main", Doing())
    sampler.start()
    work(0.0005)
""",
    "two threads stop it at once": """
for _ in range(200):
    stop = threading.Thread(target=sampler.stop)
    stop.start()
    sampler.stop()
    stop.join()
    sampler = LineSampler("main", Doing())
    sampler.start()
""",
    "an event loop begins to be told of signals": """
import asyncio
async def train():
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 10
    loop.add_signal_handler(signal.SIGUSR1, print)
    work(0.5)
asyncio.run(train())
sampler.stop()
assert sampler.costs()
assert signal.set_wakeup_fd.__name__ == "set_wakeup_fd"
""",
    "finalizers run in the main thread": """
import gc
where = []
class Ring:
    def __init__(self):
        self.itself = self
    def __del__(self):
        where.append(threading.get_ident())
def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        time.sleep(0.002)
gc.set_threshold(20)
for _ in range(200):
    Ring()
    deep(30)
gc.collect()
assert set(where) == {threading.get_ident()} and len(where) == 200
""",
    "a handler of the script's ends a loop": """
signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    work(5)
except ZeroDivisionError:
    sys.exit()
sys.exit("the handler did not end it")
""",
    "no thread is left": """
sampler.stop()
if sys.platform == "linux":
    until = time.perf_counter() + 1  # the system takes a moment to forget it
    while len(os.listdir("/proc/self/task")) > 1:
        assert time.perf_counter() < until
""",
}


@pytest.mark.parametrize("happens", _HAPPENS)
@pytest.mark.few(5)
@pytest.mark.slow
def test_what_may_happen_to_a_process_that_is_watched(happens):
    body = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", _AROUND + _HAPPENS[happens]]
    done = subprocess.run(body, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_clock_in_c(monkeypatch):
    monkeypatch.setattr(line_sampler, "_ticks", None)
    _, costs = sampled_here(nap, ticking=False)
    assert any(cost.stack[0].line == line_of(nap, "# NAP") for cost in costs)
