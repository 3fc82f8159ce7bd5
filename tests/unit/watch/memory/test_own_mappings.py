"""Memory of files, and memory that is shared with other processes, is told from the process's own."""

import errno
import mmap

import numpy as np
import pytest
import torch

from flatout.watch.memory import own_mappings
from flatout.watch.memory.own_mappings import is_own_memory
from flatout.watch.memory.written_pages import written_pages

SIZE = 64 * mmap.PAGESIZE


def of_file(folder):
    (folder / "numbers").write_bytes(bytes(SIZE))
    return torch.from_file(str(folder / "numbers"), size=SIZE, dtype=torch.uint8)


MADE = [
    (lambda folder: torch.zeros(SIZE, dtype=torch.uint8), True),
    (lambda folder: torch.from_numpy(np.zeros(SIZE, np.uint8)), True),
    (lambda folder: torch.zeros(SIZE, dtype=torch.uint8).share_memory_(), False),
    (lambda folder: torch.frombuffer(mmap.mmap(-1, SIZE), dtype=torch.uint8), False),
    (of_file, False),
]


@pytest.mark.parametrize("old_kernel", [False, True])
@pytest.mark.parametrize(("make", "own"), MADE)
def test_memory_of_others_is_told(make, own, old_kernel, tmp_path, monkeypatch):
    def refused(*given):
        raise OSError(errno.ENOTTY, "no such request")

    if old_kernel:
        monkeypatch.setattr(own_mappings.fcntl, "ioctl", refused)
    numbers = make(tmp_path)
    with open("/proc/self/maps", "rb", buffering=0) as maps:
        assert is_own_memory(maps.fileno(), numbers.data_ptr(), SIZE) == own
        assert is_own_memory(maps.fileno(), numbers.data_ptr() + SIZE // 2, 1) == own


def test_pages_of_others_are_not_watched(tmp_path):
    pages = written_pages()
    if pages is None:
        pytest.skip("this kernel does not tell of written pages")
    for make, own in MADE:
        numbers = make(tmp_path)
        start = -(-numbers.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        if own:
            pages.protect(start, mmap.PAGESIZE)
        else:
            with pytest.raises(OSError, match="shared with other processes"):
                pages.protect(start, mmap.PAGESIZE)
