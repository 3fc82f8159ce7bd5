"""What is kept of a data set, in a folder where the next process finds it.

An entry has a key of everything that the samples depend on, made before the first of them is, and once more before they
are saved: where something changed meanwhile, they are not. While samples of an entry are served, the key is made anew
from time to time, at the start of a pass and within: a file that changed is noticed then.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from flatout.pipeline.cache.disk.background_writes import BackgroundWrites
from flatout.pipeline.cache.disk.entries import load, save
from flatout.pipeline.cache.disk.kept_content import content_of, take_up
from flatout.pipeline.cache.disk.keys import Key, KeyLimits, key_of
from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.inspect.determinism import some_indices
from flatout.pipeline.inspect.repeated_proof import agree, asked_again, plain_of
from flatout.watch.dataset_state import random_states, restore_random_states
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.script_signals import any_but_signals

__all__ = ["CacheFolder", "DiskCache", "file_of"]

_MOST_BYTES = 20 * 10**9  # all entries of a folder together
_MOST_OF_FREE = 0.5
_LIMITS = KeyLimits(seconds=10.0)  # the first batch waits for the key
_LOOK_SHARE = 0.01  # of the time, for keys made anew
_PROVEN_ON = 8  # samples of what an earlier process kept
_FORM = 1  # of what `RowStore` and `RowCache` tell about themselves


class CacheFolder:
    """A folder of entries, and the thread that writes them."""

    def __init__(self, path: Path) -> None:
        """Look at nothing yet; the folder is made with the first entry."""
        self.path = path
        self.behind = BackgroundWrites()

    @property
    def max_bytes(self) -> int:
        """Return what all entries may take: 20 GB, or half of what would be free without them if that is less."""
        try:
            there = next(each for each in (self.path, *self.path.parents) if each.exists())
            taken = sum(each.stat().st_size for each in self.path.glob("*.samples"))
            return min(_MOST_BYTES, int(_MOST_OF_FREE * (shutil.disk_usage(there).free + taken)))
        except any_but_signals(OSError):
            return 0

    def make(self) -> None:
        """Make the folder, and keep it out of repositories, if it is not there.

        Raises:
            OSError: it cannot be made.
        """
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n", encoding="ascii")

    def room(self, num_bytes: int) -> torch.Tensor | None:
        """Return memory that lies in a file without a name, None where the disk has no room for it."""
        if num_bytes > self.max_bytes:
            return None
        try:
            self.make()
            return file_of(self.path, num_bytes)
        except any_but_signals(OSError, RuntimeError, ValueError):
            return None


def file_of(folder: Path, num_bytes: int) -> torch.Tensor:
    """Return a mapped file in `folder` as a tensor of bytes; its room is taken now, and given back with the tensor.

    Raises:
        OSError: the disk or the address space has no room for it.
    """
    import mmap

    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # a page that finds no room on the disk later would end the process
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        else:
            file.write(bytes(num_bytes))
            file.flush()
        return torch.frombuffer(mmap.mmap(file.fileno(), num_bytes), dtype=torch.uint8)


class DiskCache:
    """The entry of one data set and collate function in a folder; `state` says how things stand: "", nothing yet."""

    def __init__(self, folder: CacheFolder, dataset: Any, collate: Any) -> None:
        """Make the key."""
        self._folder = folder
        self._collate = collate
        self._looked_s = 0.0
        self._looked = 0.0
        self._key = self._key_of(dataset)
        self._proven = False  # the key stayed what it was while samples were made
        self.state = f"not saved: {self._key.reason}" if self._key.reason else ""

    def load(self, dataset: Any, kept_rows: RowCache) -> bool:
        """Return whether `kept_rows` now holds what an earlier process saved, and that is what `dataset` gives.

        Otherwise `kept_rows` is not to be used any more.
        """
        stored = load(self._folder.path, self._key.digest) if self._key.digest else None
        if stored is None:
            return False
        before = random_states()
        try:
            fits = take_up(kept_rows, dataset, (stored.arrays, stored.facts))
            some = some_indices(len(dataset), _PROVEN_ON)
            plain = ask_a_copy(lambda: plain_of(dataset, self._collate, some, asked_again))
            if not fits or plain.failed or not agree(plain.value, kept_rows.take, some):
                return False
        except any_but_signals():  # what the data set raises, it raises again where it is asked for
            return False
        finally:
            restore_random_states(before)
        self._proven, self.state = True, f"from {self._folder.path}"
        return True

    def save(self, dataset: Any, kept_rows: RowCache) -> None:
        """Save what is kept, all of which is there, behind the training's back."""
        key = self._key_of(dataset)
        if key != self._key:
            self.state = f"not saved: {key.reason or f'{type(dataset).__name__} has changed since the first pass'}"
            return
        folder, behind = self._folder, self._folder.behind
        self._proven, self.state = True, f"being saved in {folder.path}"

        def work() -> None:
            try:
                folder.make()
                arrays, facts = content_of(kept_rows, behind.pause)
                reason = save(folder.path, key.digest, arrays, facts, max_bytes=folder.max_bytes, pace=behind.stop)
            except any_but_signals() as error:
                reason = f"{type(error).__name__}: {error}"
            self.state = f"not saved: {reason}" if reason else f"saved in {folder.path}"

        behind.do(work)

    def changed(self, dataset: Any) -> bool:
        """Return whether what is served is no longer what the data set would give; looks from time to time only."""
        if not self._proven or time.monotonic() - self._looked < self._looked_s / _LOOK_SHARE:
            return False
        return self._key_of(dataset) != self._key

    def _key_of(self, dataset: Any) -> Key:
        states, start = random_states(), time.monotonic()
        try:
            return key_of(dataset, self._collate, _FORM, sys.byteorder, limits=_LIMITS)
        finally:
            restore_random_states(states)
            self._looked = time.monotonic()
            self._looked_s = self._looked - start
