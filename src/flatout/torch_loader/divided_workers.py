"""Workers of one loader, divided among the ranks that iterate over it: each batch is made once, and read by the others.

A worker makes the batches that fall to it with a random stream of its own. So a rank that runs some of the workers, and
gets the batches of the others, has every batch of one process to the last bit, whatever its samples draw. In place of
another rank's worker a rank has a process that waits for the batches and hands them on.
"""

import contextlib
import ctypes
import errno
import multiprocessing
import os
import pickle
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["DividedWorkers", "decoded", "encoded"]

_MAP = 0  # torch's number of data sets that are asked by index
_ALIGNED = 64
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.ENOMEM))
_SHORTEST_S, _LONGEST_S = 2e-4, 5e-3  # from one look for a batch to the next

_Loop = Callable[..., Any]


class DividedWorkers:
    """The loaders of one rank among `parts`, which hand batches to each other through files in `folders`."""

    def __init__(self, folders: Sequence[str], part: int, parts: int, *, off: Callable[[], str] = str) -> None:
        """Take the folders, the fastest one first: the next is used where there is no room.

        `off()`: why workers are divided no more, as where the script distributes itself; "" while they are.
        """
        self._folders = [Path(folder) for folder in folders]
        self._part, self._parts = part, parts
        self._off = off
        self._passes = 0
        self._pid = os.getpid()

    def iterator_made(self, original: _Loop, made: Callable[[bool], None]) -> _Loop:
        """Return what is called in place of the constructor of torch's iterator with workers.

        `made` is told of each whether its workers are divided: those that are forked from this process.
        """

        def init(iterator: Any, loader: Any) -> None:
            self._passes += 1
            original(iterator, loader)
            weakref.finalize(iterator, self._remove, self._passes).atexit = False
            made(not self._off() and getattr(iterator, "_dataset_kind", None) == _MAP and _are_forked(loader))

        return init

    def worker_loop(self, original: _Loop) -> _Loop:
        """Return what a worker runs: torch's own loop, with batches of its own, or with those of another rank."""

        def loop(kind: Any, dataset: Any, index_queue: Any, data_queue: Any, done: Any, auto: Any, *rest: Any) -> None:
            if kind != _MAP or len(rest) < 5 or not isinstance(rest[4], int) or self._off():
                original(kind, dataset, index_queue, data_queue, done, auto, *rest)
                return
            collate, drop_last, seed, init_fn, worker, *others = rest
            asked = _Asked(index_queue)
            if worker % self._parts == self._part:
                told = _Told(data_queue, lambda number, batch: self._publish(self._name(asked, number), batch, done))
                original(kind, dataset, asked, told, done, auto, collate, drop_last, seed, init_fn, worker, *others)
                return

            def receive(_: Any) -> Any:
                return self._received(self._name(asked, asked.number), done)

            original(kind, _Elsewhere(dataset), asked, data_queue, done, auto, receive, drop_last, seed, None, worker,
                     *others)  # fmt: skip

        return loop

    # -- batches ------------------------------------------------------------------------------------------------

    def _name(self, asked: "_Asked", number: int) -> str:
        return f"{self._passes}-{asked.epochs}-{number}"

    def _publish(self, name: str, batch: Any, done: Any) -> None:
        """Write a batch once, under a name for each of the other ranks."""
        pieces, parent = encoded(batch), os.getppid()
        while not done.is_set() and os.getppid() == parent:
            for folder in self._folders:
                written = folder / f"{name}.{os.getpid()}"
                try:
                    with written.open("wb") as file:
                        file.writelines(pieces)
                    for part in range(self._parts):
                        if part != self._part:
                            os.link(written, folder / f"{name}.part-{part}")
                    return
                except OSError as error:
                    if error.errno not in _NO_ROOM and not done.is_set():
                        raise
                finally:
                    with contextlib.suppress(OSError):
                        written.unlink()
            time.sleep(_LONGEST_S)  # until others have read what lies there

    def _received(self, name: str, done: Any) -> Any:
        """Wait for a batch that another rank makes, and return it; None where the iterator ends before."""
        pause, parent = _SHORTEST_S, os.getppid()
        while True:
            for folder in self._folders:
                place = folder / f"{name}.part-{self._part}"
                try:
                    content = bytearray(place.read_bytes())
                except OSError:
                    continue
                place.unlink(missing_ok=True)
                return decoded(content)
            if done.is_set() or os.getppid() != parent:
                return None
            time.sleep(pause)
            pause = min(_LONGEST_S, 1.3 * pause)

    def _remove(self, number: int) -> None:
        """Remove what nobody has read of a pass that was left early."""
        if os.getpid() != self._pid:
            return
        for folder in self._folders:
            for left in folder.glob(f"{number}-*.part-{self._part}"):
                left.unlink(missing_ok=True)


def _are_forked(loader: Any) -> bool:
    """Return whether workers are copies of this process: others do not know that there are ranks."""
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method()
    return bool(method == "fork")


class _Asked:
    """A worker's queue of indices, which remembers what was asked last."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.number = self.epochs = 0

    def get(self, *args: Any, **kwargs: Any) -> Any:
        found = self._queue.get(*args, **kwargs)
        if isinstance(found, tuple) and found and isinstance(found[0], int):
            self.number = found[0]
        elif found is not None:  # persistent workers begin another epoch
            self.epochs += 1
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Told:
    """A worker's queue of batches, which tells the others of each."""

    def __init__(self, queue: Any, tell: Callable[[int, Any], None]) -> None:
        self._queue, self._tell = queue, tell

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(item, tuple) and item and isinstance(item[0], int):
            self._tell(*item)
        self._queue.put(item, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Elsewhere(torch.utils.data.Dataset[None]):
    """A data set whose samples are made by another rank."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset  # as `get_worker_info` has it, for who asks

    def __getitem__(self, index: Any) -> None:
        return None

    def __getitems__(self, indices: Any) -> list[None]:
        return []


class _Raw(NamedTuple):
    """A tensor whose values lie behind what is pickled."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    at: int


def encoded(batch: Any) -> list[Any]:
    """Return a batch as pieces of bytes: its tensors as they lie in memory, all else pickled.

    They are good for as long as the batch is.
    """
    leaves, structure = tree_flatten(batch)
    raw: list[Any] = []
    at = 0
    for number, leaf in enumerate(leaves):
        if type(leaf) is torch.Tensor and leaf.numel() and leaf.is_contiguous() and _is_plain(leaf):
            length = leaf.numel() * leaf.element_size()
            leaves[number] = _Raw(leaf.dtype, tuple(leaf.shape), at)
            raw += [(ctypes.c_char * length).from_address(leaf.data_ptr()), bytes(-length % _ALIGNED)]
            at += length + len(raw[-1])
    header = pickle.dumps(tree_unflatten(leaves, structure), protocol=5)
    return [len(header).to_bytes(8, "little"), header, bytes(-(len(header) + 8) % _ALIGNED), *raw]


def decoded(content: bytearray) -> Any:
    """Return the batch of which `content` is what `encoded` gave, in memory of its own."""
    length = int.from_bytes(content[:8], "little")
    begin = 8 + length + -(8 + length) % _ALIGNED

    def filled(leaf: Any) -> Any:
        if not isinstance(leaf, _Raw):
            return leaf
        count = torch.Size(leaf.shape).numel()
        return torch.frombuffer(content, dtype=leaf.dtype, count=count, offset=begin + leaf.at).view(leaf.shape)

    told = pickle.loads(memoryview(content)[8 : 8 + length])
    return tree_map(filled, told, is_leaf=lambda one: isinstance(one, _Raw))


def _is_plain(tensor: torch.Tensor) -> bool:
    ordinary = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return ordinary and not tensor.is_conj() and not tensor.is_neg()
