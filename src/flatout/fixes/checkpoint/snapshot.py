"""The records of a file that torch saves, copied at the moment of saving, to be written later by any process.

Tensors are copied into memory that does not belong to this process alone (a `memfd`): another process that holds it can
write the same file when this one is gone. Where the system has none, they are cloned as tensors.
"""

import base64
import contextlib
import ctypes
import json
import mmap
import os
from collections.abc import Sequence
from typing import Any

__all__ = ["SavedMemory", "Snapshot", "TooLargeError", "write_described"]

_RECORD_BYTES, _FILE_BYTES = 512, 64 * 1024  # at most, of what a file holds besides the content of its records
_ALIGNED = 64  # bytes, of where a record begins in memory


class TooLargeError(Exception):
    """What is saved does not fit into memory a second time."""


class SavedMemory:
    """Memory that other processes may hold, too: it grows as it is written, and is gone when all have let go of it."""

    def __init__(self, file: int) -> None:
        """Take over a file descriptor."""
        self.file = file
        self.num_bytes = 0

    @classmethod
    def make(cls) -> "SavedMemory | None":
        """Return new memory, None where the system gives none."""
        try:
            return cls(os.memfd_create("flatout-checkpoint", os.MFD_CLOEXEC))
        except (OSError, AttributeError):
            return None

    def append(self, data: Any) -> int:
        """Copy bytes, or what a storage holds, behind what is there; return where they begin.

        Raises:
            TooLargeError: there is no memory for them.
        """
        start = -(-self.num_bytes // _ALIGNED) * _ALIGNED
        left, at = _view(data), start
        while left.nbytes:
            try:
                written = os.pwrite(self.file, left, at)
            except OSError as error:
                raise TooLargeError from error
            left, at = left[written:], at + written
        self.num_bytes = at
        return start

    def storages(self, places: Sequence[tuple[int, int]]) -> list[Any]:
        """Return storages that lie in this memory, without copying it; `places`: where each begins, and its bytes."""
        import torch

        whole = mmap.mmap(self.file, 0) if self.num_bytes else b""
        return [
            torch.frombuffer(whole, dtype=torch.uint8, offset=at, count=size).untyped_storage()
            if size
            else torch.UntypedStorage(0)
            for at, size in places
        ]

    def release(self) -> None:
        """Give the memory back, whoever else holds it."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, 0)
        with contextlib.suppress(OSError):
            os.close(self.file)
        self.file = -1


def _view(data: Any) -> memoryview:
    """Return the bytes of a storage of the CPU, or of bytes."""
    if isinstance(data, bytes):
        return memoryview(data)
    size = data.nbytes()
    return memoryview((ctypes.c_char * size).from_address(data.data_ptr())).cast("B") if size else memoryview(b"")


class Snapshot:
    """Takes the records of a file in place of torch's writer, tensors copied, to write them later."""

    def __init__(self, limit: int, *, by_name: bool = True) -> None:
        """Keep records of `limit` bytes at most, and torch's options for files as they are now.

        Torch puts the name of a file into it where the path that it is given is ASCII (`by_name`), else none.
        """
        from torch import serialization

        self._by_name = by_name
        self.num_bytes = 0
        self._limit = limit
        self._records: list[tuple[str, tuple[Any, ...]]] = []
        self._places: dict[int, tuple[int, int]] = {}  # of those records whose storage lies in memory
        asked = (getattr(serialization, name, None) for name in ("get_crc32_options", "_get_storage_alignment"))
        self._options = tuple(each() for each in asked if each is not None)
        self.memory = SavedMemory.make()

    def write_record(self, name: str, data: Any, size: int) -> None:
        """Keep one record."""
        self.num_bytes += size
        if self.num_bytes > self._limit:
            raise TooLargeError
        if not isinstance(data, str | bytes):
            data = self._kept(data)
        self._records.append(("write_record", (name, data, size)))

    def write_record_metadata(self, name: str, size: int) -> None:
        """Keep one record without content."""
        self._records.append(("write_record_metadata", (name, size)))
        self.num_bytes += size

    @property
    def file_bytes(self) -> int:
        """Return the most that the file takes."""
        return self.num_bytes + _RECORD_BYTES * len(self._records) + _FILE_BYTES

    def write(self, path: str) -> None:
        """Write the file."""
        _write_records(path, self._filled(), self._options, by_name=self._by_name)

    def described(self) -> int | None:
        """Put what `write_described` needs behind the storages; return where. None: another process cannot write it."""
        if self.memory is None or any(
            not isinstance(arguments[1], str | bytes | int | None) and number not in self._places
            for number, (_, arguments) in enumerate(self._records)
        ):
            return None
        records = [(method, [_in_text(each) for each in arguments]) for method, arguments in self._records]
        told = {
            "records": records,
            "places": [*self._places.items()],
            "options": self._options,
            "by_name": self._by_name,
        }
        return self.memory.append(json.dumps(told).encode())

    def release(self) -> None:
        """Give the memory back."""
        self._records.clear()
        if self.memory is not None:
            self.memory.release()

    def _kept(self, data: Any) -> Any:
        """Copy a storage into memory, or clone it where it is no plain one of the CPU."""
        import torch

        plain = isinstance(data, torch.UntypedStorage) and data.device.type == "cpu"
        if self.memory is None or not plain:
            return data.clone()
        self._places[len(self._records)] = self.memory.append(data), data.nbytes()
        return None

    def _filled(self) -> list[tuple[str, tuple[Any, ...]]]:
        return _filled(self._records, self._places, self.memory)


def _filled(
    records: Sequence[tuple[str, tuple[Any, ...]]], places: dict[int, tuple[int, int]], memory: SavedMemory | None
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the records with their storages."""
    filled = list(records)
    if memory is not None and places:
        for number, storage in zip(places, memory.storages(list(places.values())), strict=True):
            method, (name, _, size) = filled[number]
            filled[number] = method, (name, storage, size)
    return filled


def write_described(memory: SavedMemory, start: int, path: str) -> None:
    """Write the file whose description begins at `start` of `memory`, in any process."""
    length = os.fstat(memory.file).st_size - start
    told = json.loads(_read(memory.file, start, length))
    memory.num_bytes = start + length
    records = [(method, tuple(map(_of_text, arguments))) for method, arguments in told["records"]]
    places = {number: (at, size) for number, (at, size) in told["places"]}
    _write_records(path, _filled(records, places, memory), tuple(told["options"]), by_name=told["by_name"])


def _in_text(argument: Any) -> Any:
    """Return an argument of a record in a form that JSON has."""
    return {"bytes": base64.b64encode(argument).decode("ascii")} if isinstance(argument, bytes) else argument


def _of_text(argument: Any) -> Any:
    return base64.b64decode(argument["bytes"]) if isinstance(argument, dict) else argument


def _read(file: int, start: int, length: int) -> bytes:
    read = bytearray()
    while len(read) < length and (more := os.pread(file, length - len(read), start + len(read))):
        read += more
    return bytes(read)


def _write_records(
    path: str, records: Sequence[tuple[str, tuple[Any, ...]]], options: tuple[Any, ...], *, by_name: bool
) -> None:
    """Write a file of these records by torch's own writer."""
    from torch import _C

    with contextlib.nullcontext(path) if by_name else open(path, "wb") as file:
        writer = _C.PyTorchFileWriter(file, *options)
        for method, arguments in records:
            getattr(writer, method)(*arguments)
        writer.write_end_of_file()
