"""Pages that were written since they were last asked about, where the kernel tells."""

import mmap

import numpy as np
import pytest

from flatout.watch.memory import written_pages as module
from flatout.watch.memory.layouts import compiled
from flatout.watch.memory.written_pages import PAGE, WrittenPages, written_pages


def test_the_variable_switches_it_off(monkeypatch):
    monkeypatch.setenv("FLATOUT_NO_WRITTEN_PAGES", "1")
    assert written_pages() is None


def test_a_process_has_one(monkeypatch):
    assert written_pages() is written_pages()


@pytest.mark.parametrize("change", [("machine", "riscv64"), ("page", 16384)])
def test_an_unknown_machine_has_none(monkeypatch, change):
    kind, value = change
    if kind == "machine":
        monkeypatch.setattr(module.platform, "machine", lambda: value)
    else:
        monkeypatch.setattr(module.os, "sysconf", lambda _: value)
    with pytest.raises(OSError, match="no known way"):
        WrittenPages()


def test_a_page_that_is_written_shows_and_one_that_is_read_does_not():
    pages = written_pages()
    if pages is None:
        pytest.skip("this kernel does not tell of written pages")
    with mmap.mmap(-1, 4 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        numbers = np.frombuffer(memory, np.uint8)
        start = numbers.__array_interface__["data"][0]
        pages.protect(start, 4 * PAGE)
        large = start.to_bytes(8, "little") + (4 * PAGE).to_bytes(8, "little")
        owner = id(memory).to_bytes(8, "little")
        watch = compiled.Watch(b"", b"", large, owner, large, pages.pagemap)
        assert numbers[2 * PAGE] == 0
        assert watch.look() is None
        del numbers
        memory[2 * PAGE] = 7
        assert watch.look() == id(memory)
        del watch
