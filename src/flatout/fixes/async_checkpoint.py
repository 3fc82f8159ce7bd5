"""Save checkpoints in the background: the training waits for a copy in memory, not for the disk.

## What it does
`torch.save` to a path pickles the object and copies its tensors at once; one background thread then writes the file,
beside its place, and puts it there whole. Files are written in the order in which they were saved. Whatever the
script does with such a file meanwhile (load, open, list, rename, remove, ask for its size, start another program) waits
until it is there, and the end of the process waits too. The file is the one that `torch.save` would have written, byte
for byte, with mode, owner and group of the moment of saving. Saving to an open file or another object is left alone.

## Why it helps
Copying memory takes a fraction of what checksums and writing take: for 200 MB of weights 0.12 s instead of 0.95 s
(torch 2.13, 2 cores of a shared x86-64 machine, n=1). The rest happens while the training goes on.

## How equal
BITWISE: training computes the same numbers; the file holds what the object was when it was saved.

## When it is wrong
A process that ends where Python sees nothing of it (SIGKILL from outside, a crash) loses the files that were still to
be written, and leaves a folder `.NAME.` with 12 hex digits beside them; those that they replace are still whole. All
other ends wait: `os._exit` with any status, signals that nobody handles, `os.abort`, `os.execv`. Something outside the
process that looks for the file without being started by it may see it later than it would have; so the fix leaves
`torch.save` alone in a process of `multiprocessing`, and while such processes run that are no workers of a loader.
Native code that opens the path by itself is not held back. A disk that takes no file of that size raises where the
script saves; one that fills up later (a quota, another program) shows at the next save, at the next access, or at the
end of the process with exit status 1. A script that renames its file right after saving waits there, and nothing is
gained. It holds a copy of what is saved in memory (a third of what is free at most, else the file is written at once),
and is left out where several ranks train, since another rank may read the file.
"""

import atexit
import contextlib
import os
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.accesses import hold_back
from flatout.fixes.background import Background, Writing
from flatout.fixes.edit import Unwritten
from flatout.fixes.endings import write_before_end
from flatout.fixes.fix import Fix
from flatout.fixes.replacing import made_alike, replaceable
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.site import Site

__all__ = ["FIX"]

_SHARE_OF_MEMORY = 3
_RECORD_BYTES, _FILE_BYTES = 512, 64 * 1024  # at most, of what a file holds besides the content of its records


class _TooLargeError(Exception):
    """What is saved does not fit into memory a second time."""


class _Snapshot:
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
        asked = (getattr(serialization, name, None) for name in ("get_crc32_options", "_get_storage_alignment"))
        self._options = tuple(each() for each in asked if each is not None)

    def write_record(self, name: str, data: Any, size: int) -> None:
        """Keep one record."""
        self.num_bytes += size
        if self.num_bytes > self._limit:
            raise _TooLargeError
        self._records.append(("write_record", (name, data if isinstance(data, str | bytes) else data.clone(), size)))

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
        from torch import _C

        with contextlib.nullcontext(path) if self._by_name else open(path, "wb") as file:
            writer = _C.PyTorchFileWriter(file, *self._options)
            for method, arguments in self._records:
                getattr(writer, method)(*arguments)
            writer.write_end_of_file()


class _Saves:
    """`torch.save` with the file written later."""

    def __init__(self, site: "Site", background: Background) -> None:
        self._site = site
        self._background = background

    def make(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import inspect

        signature = inspect.signature(original)

        def save(*args: Any, **kwargs: Any) -> Any:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return original(*args, **kwargs)
            given.apply_defaults()
            if not self._save(given.arguments):
                self._background.wait()  # files are written in order
                return original(*args, **kwargs)

        return save

    def _save(self, given: dict[str, Any]) -> bool:
        """Take the snapshot and have it written; return False where torch must do it at once.

        Raises:
            BaseException: what saving the object raises; the file then holds as much as torch would have left of it.
        """
        path = given["f"]
        if not isinstance(path, str | os.PathLike) or self._background.forked or _seen_by_others():
            return False
        self._background.raise_error()
        with self._background.quietly():
            target = os.path.realpath(os.fspath(path))
            if not given.get("_use_new_zipfile_serialization", True) or not replaceable(target):
                return False
            snapshot = _Snapshot(_free_memory() // _SHARE_OF_MEMORY, by_name=os.fspath(path).isascii())
            error = _fill(snapshot, given)
            if isinstance(error, _TooLargeError) or not self._has_room(os.path.dirname(target), snapshot.file_bytes):
                return False
            if not self._background.put(partial(self._prepared, os.fspath(path), target, snapshot)):
                return False
        self._site.hit("torch.save")
        if error is not None:
            raise error
        return True

    def _has_room(self, folder: str, num_bytes: int) -> bool:
        """Return whether the disk takes a file of that size after those before it; else torch raises at once."""
        import resource

        largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if largest != resource.RLIM_INFINITY and num_bytes > largest:
            return False
        try:
            disk = os.statvfs(folder)
        except OSError:
            return False
        waiting = sum(each.num_bytes for each in list(self._background.pending))
        return not disk.f_blocks or num_bytes + waiting <= disk.f_bavail * disk.f_frsize

    def _prepared(self, path: str, target: str, snapshot: _Snapshot) -> Writing | None:
        """Make the file that takes the content, as torch would make it now; None where it cannot be like the old."""
        folder = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.urandom(6).hex()}")
        made = os.path.join(folder, os.path.basename(path))
        self._background.unfinished = folder
        try:
            os.mkdir(folder, 0o700)
            os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            if os.path.exists(target) and not made_alike(made, target):
                return None
        except OSError:
            return None
        return Writing(target, made, snapshot.write, snapshot.file_bytes, time.time_ns())


def _fill(snapshot: _Snapshot, given: dict[str, Any]) -> BaseException | None:
    """Have torch write into the snapshot; return what that raised."""
    from torch.serialization import _check_dill_version, _save

    _check_dill_version(given["pickle_module"])
    try:
        _save(
            given["obj"],
            snapshot,
            given["pickle_module"],
            given["pickle_protocol"],
            given["_disable_byteorder_record"],
        )
    except BaseException as error:
        return error
    return None


_loading: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Workers of loaders: they read no checkpoints."""


def _noting_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(process: Any) -> Any:
        if getattr(getattr(process, "_target", None), "__name__", "") == "_worker_loop":
            _loading.add(process)
        return original(process)

    return start


def _seen_by_others() -> bool:
    """Return whether processes of this training, workers of loaders left out, may look for the file at any moment."""
    import multiprocessing

    others = (each for each in multiprocessing.active_children() if each not in _loading)
    return multiprocessing.parent_process() is not None or any(others)


def _free_memory() -> int:
    """Return the bytes that this process may still take."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as now:
            free = min(free, int(most.read()) - int(now.read()))
    except (OSError, ValueError):  # no such limit
        pass
    return max(free, 0)


def patch(site: "Site") -> None:
    """Write what `torch.save` saves in the background."""
    if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
        raise RuntimeError("several ranks train: another one may read a file before it is written")
    background = Background()
    leave_at_once = os._exit

    def at_exit() -> None:
        if background.failed_at_end():
            sys.stdout.flush()
            leave_at_once(1)

    hold_back(site, background)
    site.wrap("torch:save", _Saves(site, background).make)
    site.wrap("multiprocessing.process:BaseProcess.start", _noting_workers)
    write_before_end(site, background)
    atexit.register(at_exit)
    site.switch(lambda: None, background.settle)


def choices(run: Run) -> tuple[dict[str, object], ...]:
    """Offer it where one process trains and saves."""
    return ({},) if run.seams.get("torch:save") and run.header.world_size == 1 else ()


FIX = Fix(
    name="async-checkpoint",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.CHECKPOINT,),
    patch=patch,
    choices=choices,
    addresses=("EP003",),
    switchable=True,
    edit=(Unwritten(reason="the thread that writes, and what waits for it, is no line of a script"),),
)
