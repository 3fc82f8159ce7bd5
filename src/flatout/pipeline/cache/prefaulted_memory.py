"""Memory that the system is asked for in large pages where those come faster, by a thread ahead of who writes to it.

A system gives fresh memory page by page, at the first write to each, and whoever writes waits for that: 150 KB of it
take 76 us in pages of 4 KiB and 10 in pages of 2 MiB (one core of an AMD EPYC under KVM, n=9,600). NumPy asks for large
pages, too; but a virtual machine may first have to be given those by its host: 1.5 GB took 1.8 to 3.3 s then (n=4),
0.13 to 0.16 once it had them (n=7). So both kinds are tried. Another core can take what remains meanwhile.
"""

import ctypes
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable

import torch

from flatout.machine import usable_cores

__all__ = ["populate"]

_MIN_BYTES = 64 * 1024**2  # less is written before a thread has begun
_CHUNK_BYTES = 4 * 1024**2  # for as long as that takes, nobody else changes what memory the process has
_PAGE_BYTES, _LARGE_BYTES = 4096, 2 * 1024**2
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE in linux/mman.h, since Linux 5.14: contents stay as they are
_LARGE, _SMALL = 14, 15  # MADV_HUGEPAGE, MADV_NOHUGEPAGE
_TRIED = (_SMALL, _LARGE)
_SLOW = 2.0  # times as long as small pages took

_Advise = Callable[[int, int, int], int]


def populate(tensor: torch.Tensor) -> None:
    """Have the pages of `tensor` be of the size that comes faster, and given from now on where another core is there.

    A thread of its own has them given; it ends with its work, or when the tensor is gone.
    """
    advise = _advise()
    if tensor.nbytes < _MIN_BYTES or tensor.device.type != "cpu" or advise is None:
        return
    start = -(-tensor.data_ptr() // _LARGE_BYTES) * _LARGE_BYTES
    end = (tensor.data_ptr() + tensor.nbytes) // _PAGE_BYTES * _PAGE_BYTES
    small_s = _chosen(advise, start, end)
    if small_s is not None and usable_cores() > 1:
        given = weakref.ref(tensor), advise, start + len(_TRIED) * _CHUNK_BYTES, end, small_s
        threading.Thread(target=_run, args=given, name="flatout-populating", daemon=True).start()


def _chosen(advise: _Advise, start: int, end: int) -> float | None:
    """Take some pages of either size, and have the rest be of the faster one.

    Return the seconds of a chunk in small pages; None where the system does not give pages on request.
    """
    took_s = []
    for place, size in enumerate(_TRIED):
        chunk = start + place * _CHUNK_BYTES
        advise(chunk, _CHUNK_BYTES, size)  # a system without large pages refuses, and both take as long
        begun = time.perf_counter()
        if advise(chunk, _CHUNK_BYTES, _POPULATE_WRITE):
            return None  # also where there is no more memory: then writing takes it, or fails
        took_s.append(time.perf_counter() - begun)
    rest = start + len(_TRIED) * _CHUNK_BYTES
    advise(rest, end - rest, _LARGE if took_s[1] < took_s[0] else _SMALL)
    return took_s[0]


def _run(whole: "weakref.ref[torch.Tensor]", advise: _Advise, start: int, end: int, small_s: float) -> None:
    for place in range(start, end, _CHUNK_BYTES):
        alive = whole()  # its memory is not given back meanwhile
        begun = time.perf_counter()
        if alive is None or advise(place, min(_CHUNK_BYTES, end - place), _POPULATE_WRITE):
            return
        if time.perf_counter() - begun > _SLOW * small_s:  # no large pages are left that come fast
            advise(place, end - place, _SMALL)
        del alive


@functools.cache
def _advise() -> "ctypes._NamedFuncPointer | None":
    """Return `madvise` of the C library, which is called without the interpreter's lock; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes, advise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return advise
