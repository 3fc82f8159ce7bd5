"""Memory that a thread has given by the system before it is written to.

A system gives fresh memory page by page, at the first write to each, and whoever writes waits for that: keeping 32
images of 150 KB takes 3.0 ms in fresh memory, most of which is this (one core of an AMD EPYC, torch 2.13, mean of 125).
Another core can do it meanwhile.
"""

import ctypes
import functools
import sys
import threading
import weakref

import torch

from flatout.machine import usable_cores

__all__ = ["populate"]

_MIN_BYTES = 64 * 1024**2  # less is written before a thread has begun
_CHUNK_BYTES = 4 * 1024**2  # for as long as that takes, nobody else changes what memory the process has
_PAGE_BYTES = 4096
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE in linux/mman.h, since Linux 5.14: contents stay as they are


def populate(tensor: torch.Tensor) -> None:
    """Have all pages of `tensor` given by the system from now on, on a thread of its own, where another core is there.

    The thread ends with its work, or when the tensor is gone.
    """
    if tensor.nbytes < _MIN_BYTES or tensor.device.type != "cpu" or usable_cores() < 2 or _advise() is None:
        return
    start = -(-tensor.data_ptr() // _PAGE_BYTES) * _PAGE_BYTES
    end = (tensor.data_ptr() + tensor.nbytes) // _PAGE_BYTES * _PAGE_BYTES
    given = weakref.ref(tensor), start, end
    threading.Thread(target=_run, args=given, name="flatout-populating", daemon=True).start()


def _run(whole: "weakref.ref[torch.Tensor]", start: int, end: int) -> None:
    advise = _advise()
    for place in range(start, end, _CHUNK_BYTES):
        alive = whole()  # its memory is not given back meanwhile
        if alive is None or advise is None or advise(place, min(_CHUNK_BYTES, end - place), _POPULATE_WRITE):
            return  # also on an older system, and where there is no more memory: then writing takes it, or fails
        del alive


@functools.cache
def _advise() -> "ctypes._NamedFuncPointer | None":
    """Return `madvise` of the C library, which is called without the interpreter's lock; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes, advise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return advise
