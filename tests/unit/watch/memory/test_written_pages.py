"""Pages that were written since they were last asked about, where the kernel tells."""

import ctypes
import mmap
import struct

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


@pytest.mark.skipif(written_pages() is None, reason="this kernel does not tell of written pages")
def test_a_write_is_seen_on_a_page_that_the_watch_has_written_to_itself():
    """A look takes notes after the kernel has protected the pages again, and may lift the protection of one by that."""
    pages, size = written_pages(), compiled.Watch.__basicsize__
    places = [bytearray(size - 1) for _ in range(400)]  # of the watch's own size, so that Python puts them beside it
    starts = [ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in places]
    ranges = b"".join(struct.pack("QQ", start, 16) for start in starts)
    owners = b"".join(struct.pack("Q", start) for start in starts)
    covered = sorted({start & -PAGE for start in starts})
    for page in covered:
        pages.protect(page, PAGE)
    intervals = b"".join(struct.pack("QQ", page, PAGE) for page in covered)
    del places[200]
    watch = compiled.Watch(b"", b"", ranges[: 200 * 16], owners[: 200 * 8], intervals, pages.pagemap)
    beside = [number for number in range(200) if starts[number] & -PAGE == id(watch) & -PAGE]
    if not beside:
        pytest.skip("Python has put the watch elsewhere")
    assert watch.look() is None
    places[beside[0]][0] = 1
    assert watch.look() == starts[beside[0]]
