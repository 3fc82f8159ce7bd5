"""Numbers that are appended to: in memory, or in a file without a name."""

import ctypes
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from flatout.pipeline.cache.prefaulted_memory import populate
from flatout.watch.script_signals import any_but_signals

__all__ = ["GrowingArray"]


class GrowingArray:
    """Numbers that are appended to, and become one array."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Begin with none, in memory."""
        self.dtype, self.num_items = dtype, 0
        self._pieces: list[tuple[torch.Tensor, Any]] = []  # each with what has to live as long
        self._reserved: torch.Tensor | None = None
        self._file: Any = None

    def reserve(self, num_items: int) -> bool:
        """Take memory for so many, before there are any, and return whether there is; more may come all the same."""
        try:
            self._reserved = torch.empty(num_items, dtype=self.dtype, device="cpu")
        except any_but_signals(RuntimeError):  # the system has not so much
            return False
        populate(self._reserved)
        return True

    def room(self, num_items: int) -> torch.Tensor:
        """Return memory for the next items, which are to be written there and then to be added."""
        reserved, start = self._reserved, self.num_items
        if reserved is not None and start + num_items <= len(reserved):
            return reserved[start : start + num_items]
        return torch.empty(num_items, dtype=self.dtype, device="cpu")

    def add(self, piece: torch.Tensor, held: Any) -> None:
        """Append a piece; `held` is what it lies in, None for memory of its own."""
        self.num_items += len(piece)
        reserved = self._reserved
        if (
            reserved is not None
            and len(piece)
            and piece.data_ptr() == reserved[self.num_items - len(piece) :].data_ptr()
        ):
            return  # it lies there already
        if self._file is None and self._reserved is not None:
            self._pieces, self._reserved = [(self._reserved[: self.num_items - len(piece)], None)], None
        if self._file is None:
            self._pieces.append((piece, held))
        else:
            self._write(piece)

    def to_file(self, folder: Path) -> None:
        """Go on in a file of `folder` that has no name.

        Raises:
            OSError: the disk has no room.
        """
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        for piece, _ in self._taken():
            self._write(piece)

    def whole(self) -> torch.Tensor:
        """Return all of it, once; what it was made of is let go."""
        if self._file is None:
            return _joined(self._taken(), self.num_items, self.dtype)
        with self._file:
            return self._mapped()

    def pieces(self, num_items: int) -> Iterator[torch.Tensor]:
        """Yield what there is by now, so many items at a time at most."""
        reserved = [] if self._reserved is None else [self._reserved[: self.num_items]]
        there = [*reserved, *(piece for piece, _ in self._pieces)] if self._file is None else [self._mapped()]
        for piece in there:
            yield from piece.split(num_items) if len(piece) else ()

    def _taken(self) -> list[tuple[torch.Tensor, Any]]:
        """Return all pieces, which are not held here any more."""
        pieces, reserved = self._pieces, self._reserved
        self._pieces, self._reserved = [], None
        return pieces if reserved is None else [(reserved[: self.num_items], None)]

    def _mapped(self) -> torch.Tensor:
        if not self.num_items:
            return torch.empty(0, dtype=self.dtype, device="cpu")
        return torch.frombuffer(mmap.mmap(self._file.fileno(), self.num_items * self.dtype.itemsize), dtype=self.dtype)

    def _write(self, piece: torch.Tensor) -> None:
        whole = piece.contiguous()
        memory = (ctypes.c_ubyte * whole.nbytes).from_address(whole.data_ptr()) if whole.nbytes else b""
        left = memoryview(memory).cast("B")
        while len(left):
            left = left[os.write(self._file.fileno(), left) :]


def _joined(pieces: list[tuple[torch.Tensor, Any]], num_items: int, dtype: torch.dtype) -> torch.Tensor:
    """Return one array of pieces, which are let go one by one."""
    if len(pieces) == 1 and pieces[0][1] is None:
        return pieces[0][0]
    made, start = torch.empty(num_items, dtype=dtype, device="cpu"), 0
    pieces.reverse()
    while pieces:
        piece, _ = pieces.pop()
        made[start : start + len(piece)] = piece
        start += len(piece)
    return made
