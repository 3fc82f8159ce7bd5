"""Memory given ahead of who writes: all of it, nothing written over, no thread that stays."""

import gc
import mmap
import resource
import threading

import pytest
import torch

from flatout.pipeline import populated
from flatout.pipeline.layout import Rows
from flatout.pipeline.store import Store

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
    monkeypatch.setattr(populated, "usable_cores", lambda: 2)


@pytest.mark.usefixtures("several_cores")
def test_memory_is_there_before_it_is_written():
    fresh = mmap.mmap(-1, 128 * MIB)  # malloc may give what others have written to, and freed
    tensor, before = torch.frombuffer(fresh, dtype=torch.uint8), taken()
    populated.populate(tensor)
    assert ended()
    if populated._advise()(tensor.data_ptr() // 4096 * 4096 + 4096, 4096, 23):
        pytest.skip("the system is older than Linux 5.14")
    assert taken() - before > 120 * MIB


@pytest.mark.usefixtures("several_cores")
def test_what_is_written_meanwhile_stays():
    tensor = torch.empty(32 * MIB, dtype=torch.int64)
    populated.populate(tensor)
    for start in range(0, len(tensor), MIB // 2):
        tensor[start : start + MIB // 2] = torch.arange(start, start + MIB // 2)
    assert ended()
    assert torch.equal(tensor, torch.arange(len(tensor)))


@pytest.mark.usefixtures("several_cores")
def test_it_ends_with_the_tensor(monkeypatch):
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def advise(*given):
        asked.append(given)
        begun.set()
        return 0 if go_on.wait(30) else 1

    monkeypatch.setattr(populated, "_advise", lambda: advise)
    tensor = torch.empty(128 * MIB, dtype=torch.uint8)
    populated.populate(tensor)
    assert begun.wait(30)
    del tensor
    gc.collect()
    go_on.set()
    assert ended()
    assert len(asked) == 1


@pytest.mark.usefixtures("several_cores")
def test_an_older_system_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(populated, "_advise", lambda: lambda *given: asked.append(given) or -1)
    tensor = torch.empty(128 * MIB, dtype=torch.uint8)
    populated.populate(tensor)
    assert ended()
    assert len(asked) == 1


@pytest.mark.parametrize(("cores", "mebibytes"), [(1, 128), (2, 1)])
def test_there_is_no_thread_for_one_core_or_little_memory(monkeypatch, cores, mebibytes):
    monkeypatch.setattr(populated, "usable_cores", lambda: cores)
    monkeypatch.setattr(populated, "_advise", lambda: pytest.fail("asked for"))
    tensor = torch.empty(mebibytes * MIB, dtype=torch.uint8)
    populated.populate(tensor)
    assert ended()


@pytest.mark.usefixtures("several_cores")
def test_a_store_takes_its_memory_from_the_first_row_on(monkeypatch):
    asked = []
    monkeypatch.setattr(populated, "_advise", lambda: lambda *given: asked.append(given) or 0)
    store = Store([Rows((MIB,), torch.uint8, (0, 1)), Rows((), None, (0,))], 80)
    assert ended()
    assert not asked
    for place in range(2):
        store.fill(torch.tensor([place]), [torch.full((1, MIB), place, dtype=torch.uint8), [place]])
    assert ended()
    assert len(asked) == 20
    part, values = store.take(torch.tensor([1, 0]))
    assert (part[:, 0].tolist(), values) == ([1, 0], [1, 0])
