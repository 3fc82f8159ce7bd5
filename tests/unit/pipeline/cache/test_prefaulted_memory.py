"""Memory given ahead of who writes: all of it, nothing written over, no thread that stays."""

import gc
import mmap
import resource
import threading

import pytest
import torch

from flatout.pipeline.cache import prefaulted_memory
from flatout.pipeline.cache.batch_layout import Rows
from flatout.pipeline.cache.row_store import RowStore

MIB = 1024**2
NAME = "flatout-populating"


def taken():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def ended():
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(30)
    return NAME not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def several_cores(monkeypatch):
    monkeypatch.setattr(prefaulted_memory, "usable_cores", lambda: 2)


@pytest.mark.usefixtures("several_cores")
def test_memory_is_there_before_it_is_written():
    fresh = mmap.mmap(-1, 128 * MIB)  # malloc may give what others have written to, and freed
    tensor, before = torch.frombuffer(fresh, dtype=torch.uint8), taken()
    prefaulted_memory.populate(tensor)
    assert ended()
    if prefaulted_memory._advise()(tensor.data_ptr() // 4096 * 4096 + 4096, 4096, 23):
        pytest.skip("the system is older than Linux 5.14")
    assert taken() - before > 120 * MIB


@pytest.mark.usefixtures("several_cores")
def test_what_is_written_meanwhile_stays():
    tensor = torch.empty(32 * MIB, dtype=torch.int64)
    prefaulted_memory.populate(tensor)
    for start in range(0, len(tensor), MIB // 2):
        tensor[start : start + MIB // 2] = torch.arange(start, start + MIB // 2)
    assert ended()
    assert torch.equal(tensor, torch.arange(len(tensor)))


@pytest.mark.usefixtures("several_cores")
def test_it_ends_with_the_tensor(monkeypatch):
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def advise(*given):
        if given[-1] != 23 or threading.current_thread().name != NAME:
            return 0
        asked.append(given)
        begun.set()
        return 0 if go_on.wait(30) else 1

    monkeypatch.setattr(prefaulted_memory, "_advise", lambda: advise)
    tensor = torch.empty(128 * MIB, dtype=torch.uint8)
    prefaulted_memory.populate(tensor)
    assert begun.wait(30)
    del tensor
    gc.collect()
    go_on.set()
    assert ended()
    assert len(asked) == 1


@pytest.mark.usefixtures("several_cores")
def test_an_older_system_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(prefaulted_memory, "_advise", lambda: lambda *given: asked.append(given) or -1)
    tensor = torch.empty(128 * MIB, dtype=torch.uint8)
    prefaulted_memory.populate(tensor)
    assert ended()
    assert [advice for *_, advice in asked] == [15, 23]


def test_there_is_no_thread_for_little_memory(monkeypatch):
    monkeypatch.setattr(prefaulted_memory, "_advise", lambda: lambda *given: pytest.fail("asked for"))
    prefaulted_memory.populate(torch.empty(MIB, dtype=torch.uint8))
    assert ended()


class System:
    """Gives chunks of pages of 2 MiB, or of 4 KiB, in the seconds that it is told, and notes what it is asked for."""

    def __init__(self, monkeypatch, large_s, small_s=0.01, cores=1):
        self.seconds, self.size, self.now, self.asked = {14: large_s, 15: small_s}, 15, 0.0, []
        monkeypatch.setattr(prefaulted_memory, "usable_cores", lambda: cores)
        monkeypatch.setattr(prefaulted_memory, "_advise", lambda: self)
        monkeypatch.setattr(prefaulted_memory.time, "perf_counter", lambda: self.now)

    def __call__(self, start, length, advice):
        if advice in self.seconds:
            self.size = advice
            self.asked.append((advice, length // MIB))
        else:
            self.now += self.seconds[self.size]
        return 0

    def populated(self):
        tensor = torch.empty(128 * MIB, dtype=torch.uint8)
        prefaulted_memory.populate(tensor)
        assert ended()
        return self.asked


@pytest.mark.parametrize(("large_s", "chosen"), [(0.002, 14), (0.02, 15)])
def test_pages_are_of_the_size_that_comes_faster(monkeypatch, large_s, chosen):
    (*tried, rest) = System(monkeypatch, large_s).populated()
    assert tried == [(15, 4), (14, 4)]
    assert rest[0] == chosen
    assert 116 <= rest[1] <= 120


def test_large_pages_that_come_slowly_after_a_while_are_asked_for_no_more(monkeypatch):
    system = System(monkeypatch, 0.002, cores=2)
    begun = []

    def run(*given, run=prefaulted_memory._run):
        system.seconds[14] = 0.03
        begun.append(given)
        run(*given)

    monkeypatch.setattr(prefaulted_memory, "_run", run)
    *_, rest, last = system.populated()
    assert (len(begun), rest[0], last[0]) == (1, 14, 15)
    assert last[1] == rest[1]


@pytest.mark.usefixtures("several_cores")
def test_a_store_takes_its_memory_from_the_first_row_on(monkeypatch):
    asked = []
    monkeypatch.setattr(prefaulted_memory, "_advise", lambda: lambda *given: asked.append(given) or 0)
    store = RowStore([Rows((MIB,), torch.uint8, (0, 1)), Rows((), None, (0,))], 80)
    assert ended()
    assert not asked
    for place in range(2):
        store.fill(torch.tensor([place]), [torch.full((1, MIB), place, dtype=torch.uint8), [place]])
    assert ended()
    assert 19 <= [advice for *_, advice in asked].count(23) <= 20  # it begins with a large page
    part, values = store.take(torch.tensor([1, 0]))
    assert (part[:, 0].tolist(), values) == ([1, 0], [1, 0])
