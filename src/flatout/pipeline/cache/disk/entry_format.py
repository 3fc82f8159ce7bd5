"""One entry on disk: a page that says what it is, the arrays, and a header in JSON, each byte under a checksum.

```
page    4096 bytes: magic, version, where the header lies; its last 16 bytes are a digest of page and header
arrays  each from a multiple of 4096 on, zeros up to the next one
header  JSON: key, facts, byte order; of each array name, dtype, shape, strides, CRC-32 of every 4 MiB
```
Nothing here is executed or unpickled: a file that someone else wrote can at worst be refused.
"""

import concurrent.futures
import ctypes
import hashlib
import json
import math
import os
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from flatout.machine import usable_cores

__all__ = ["VERSION", "BadEntry", "EntryPlan", "StoredArray", "lay_out", "read", "write"]

VERSION = 1

_MAGIC = b"flatout samples\n"
_PAGE = 4096
_START = struct.Struct("<16sQQQ")  # magic, version, where the header begins, where the file ends
_DIGEST_BYTES = 16
_BLOCK = 4 * 1024 * 1024
_LARGEST_HEADER = 256 * 1024 * 1024
_MOST_THREADS = 8
_DTYPES = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
_BY_NAME = {name: one for name, one in _DTYPES.items() if not name.startswith(("q", "bits"))}


class BadEntry(Exception):
    """The file is not a whole entry of this version under this key."""


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array and where it lies in the file."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    checksums: tuple[int, ...] = ()

    @property
    def num_items(self) -> int:
        """Return the number of its elements."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """Return where the next array begins."""
        return self.offset + _up_to_page(self.num_items * self.dtype.itemsize)

    @property
    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield where each of its blocks begins in the file, and its bytes."""
        for start in range(self.offset, self.end, _BLOCK):
            yield start, min(_BLOCK, self.end - start)


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """What is to be written, laid out: flat views of the arrays' memory, and the bytes of the whole file."""

    key: str
    facts: Mapping[str, object]
    arrays: tuple[StoredArray, ...]
    memory: tuple[torch.Tensor, ...]
    header_bytes: int

    @property
    def num_bytes(self) -> int:
        """Return the size of the file."""
        return _end(self.arrays) + self.header_bytes


def _up_to_page(num_bytes: int) -> int:
    return -(-num_bytes // _PAGE) * _PAGE


def _end(arrays: Sequence[StoredArray]) -> int:
    return arrays[-1].end if arrays else _PAGE


# -- writing ----------------------------------------------------------------------------------------------------


def lay_out(key: str, arrays: Mapping[str, torch.Tensor], facts: Mapping[str, object]) -> EntryPlan:
    """Return where everything goes; nothing is written.

    Raises:
        ValueError: an array is of a kind that is not stored, or `facts` are not what JSON holds.
    """
    placed: list[StoredArray] = []
    memory = []
    for name, tensor in arrays.items():
        flat, stride = _flat(name, tensor)
        one = StoredArray(name, tensor.dtype, tuple(tensor.shape), stride, _end(placed))
        placed.append(replace(one, checksums=(2**32 - 1,) * sum(1 for _ in one.blocks)))
        memory.append(flat)
    try:
        header_bytes = len(_header(key, facts, placed))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the facts are not what JSON holds ({error})") from None
    if header_bytes > _LARGEST_HEADER:
        raise ValueError(f"the facts take {header_bytes} bytes")
    return EntryPlan(key, facts, tuple(placed), tuple(memory), header_bytes)


def _flat(name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return the elements of `tensor` in the order they lie in memory, and the strides that give its order back."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ValueError(f"array {name!r} is {tensor.layout} on {tensor.device}, no plain array")
    if _dtype_name(tensor.dtype) not in _BY_NAME:
        raise ValueError(f"array {name!r} holds {tensor.dtype}")
    plain = tensor.detach().as_subclass(torch.Tensor).cpu().resolve_conj().resolve_neg()
    if not _is_dense(plain.shape, plain.stride()):
        plain = plain.contiguous()
    return plain.as_strided((plain.numel(),), (1,), plain.storage_offset()), tuple(plain.stride())


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether the elements fill one stretch of memory, in whatever order of the axes."""
    reach = 1
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size != 1):
        if step != reach:
            return math.prod(shape) == 0
        reach *= size
    return True


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _header(key: str, facts: Mapping[str, object], arrays: Sequence[StoredArray]) -> bytes:
    told = [
        {"name": a.name, "dtype": _dtype_name(a.dtype), "shape": a.shape, "stride": a.stride, "crc32": a.checksums}
        for a in arrays
    ]
    whole = {"key": key, "byteorder": sys.byteorder, "facts": dict(facts), "arrays": told}
    return json.dumps(whole, separators=(",", ":")).encode("ascii")


def write(plan: EntryPlan, file: int, pace: Callable[[], None] | None = None) -> None:
    """Write everything into the empty `file`, and wait until the disk has it.

    `pace` is called before each block of 4 MiB: it may wait, or raise; blocks are then written by this thread alone.

    Raises:
        OSError: as the disk says.
    """
    os.ftruncate(file, plan.num_bytes)
    arrays = []
    for array, flat in zip(plan.arrays, plan.memory, strict=True):
        put = _writer(file, array, flat)
        checksums = _on_threads(put, list(array.blocks)) if pace is None else _paced(put, array, pace)
        arrays.append(replace(array, checksums=tuple(checksums)))
    header = _header(plan.key, plan.facts, arrays).ljust(plan.header_bytes)
    begin = _end(arrays)
    page = _START.pack(_MAGIC, VERSION, begin, plan.num_bytes).ljust(_PAGE - _DIGEST_BYTES, b"\0")
    _pwrite(file, memoryview(header), begin)
    _pwrite(file, memoryview(page + _digest(page, header)), 0)
    os.fsync(file)


def _writer(file: int, array: StoredArray, flat: torch.Tensor) -> Callable[[tuple[int, int]], int]:
    num_bytes = flat.numel() * flat.element_size()
    memory = memoryview((ctypes.c_ubyte * num_bytes).from_address(flat.data_ptr())) if num_bytes else memoryview(b"")

    def one(block: tuple[int, int]) -> int:
        start, length = block
        piece = memory[start - array.offset : start - array.offset + length]
        _pwrite(file, piece, start)
        return zlib.crc32(bytes(length - len(piece)), zlib.crc32(piece))

    return one


def _paced(put: Callable[[tuple[int, int]], int], array: StoredArray, pace: Callable[[], None]) -> list[int]:
    made = []
    for block in array.blocks:
        pace()
        made.append(put(block))
    return made


def _pwrite(file: int, piece: memoryview, offset: int) -> None:
    while len(piece):
        written = os.pwrite(file, piece, offset)
        piece, offset = piece[written:], offset + written


def _digest(page: bytes, header: bytes) -> bytes:
    return hashlib.blake2b(page + header, digest_size=_DIGEST_BYTES).digest()


# -- reading ----------------------------------------------------------------------------------------------------


def read(file: int, key: str) -> tuple[tuple[StoredArray, ...], dict[str, object]]:
    """Return where the arrays of `file` lie, and its facts, after every byte of it was read and checked.

    Raises:
        BadEntry: it is not a whole entry of this version under `key`.
        OSError: as the disk says.
    """
    page = _pread(file, _PAGE, 0)
    magic, version, begin, end = _START.unpack_from(page)
    if magic != _MAGIC or version != VERSION or end != os.fstat(file).st_size:
        raise BadEntry
    if not _PAGE <= begin <= end or end - begin > _LARGEST_HEADER:
        raise BadEntry
    header = _pread(file, end - begin, begin)
    if _digest(page[:-_DIGEST_BYTES], header) != page[-_DIGEST_BYTES:]:
        raise BadEntry
    try:
        arrays, facts = _understood(json.loads(header), key)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadEntry from error
    if _end(arrays) != begin:
        raise BadEntry
    _check(file, arrays)
    return arrays, facts


def _understood(header: Any, key: str) -> tuple[tuple[StoredArray, ...], dict[str, object]]:
    if header["key"] != key or header["byteorder"] != sys.byteorder or type(header["facts"]) is not dict:
        raise BadEntry
    arrays: list[StoredArray] = []
    for told in header["arrays"]:
        shape, stride, checksums = (tuple(map(_number, told[name])) for name in ("shape", "stride", "crc32"))
        array = StoredArray(str(told["name"]), _BY_NAME[told["dtype"]], shape, stride, _end(arrays), checksums)
        if not _is_dense(shape, stride) or len(checksums) != sum(1 for _ in array.blocks):
            raise BadEntry
        arrays.append(array)
    return tuple(arrays), header["facts"]


def _number(told: object) -> int:
    if type(told) is not int or not 0 <= told < 2**62:
        raise BadEntry
    return told


def _check(file: int, arrays: Sequence[StoredArray]) -> None:
    """Read all arrays and compare the checksums; through `pread`: a disk's failure is an error here, not a signal."""
    own = threading.local()

    def good(block: tuple[int, int, int]) -> bool:
        start, length, checksum = block
        if not hasattr(own, "room"):
            own.room = memoryview(bytearray(_BLOCK))
        return zlib.crc32(_fill(file, own.room[:length], start)) == checksum

    blocks = [(*b, c) for array in arrays for b, c in zip(array.blocks, array.checksums, strict=True)]
    if not all(_on_threads(good, blocks)):
        raise BadEntry


def _pread(file: int, length: int, offset: int) -> bytes:
    return bytes(_fill(file, memoryview(bytearray(length)), offset))


def _fill(file: int, room: memoryview, offset: int) -> memoryview:
    done = 0
    while done < len(room):
        num_bytes = os.preadv(file, [room[done:]], offset + done)
        if not num_bytes:
            raise BadEntry
        done += num_bytes
    return room


def _on_threads(work: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    """Return what `work` gives for each block; reading, writing and checksums all run without the interpreter lock."""
    cores = usable_cores()
    threads = min(cores, _MOST_THREADS, len(blocks))
    if threads <= 1:
        return [work(block) for block in blocks]
    with concurrent.futures.ThreadPoolExecutor(threads, "flatout-disk") as pool:
        return list(pool.map(work, blocks))
