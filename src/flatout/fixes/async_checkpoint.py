"""Save checkpoints in the background: the training waits for a copy in memory, not for the disk.

## What it does

`torch.save` to a path pickles the object and copies its tensors at once. One background thread then writes the file
beside its final place and moves it there when it is complete. Files are written in the order in which they were saved.
Whatever the script does with such a file meanwhile (load, open, list, rename, remove, ask for its size, start another
program) waits until it is in place, and so does the end of the process. The file is byte for byte the one that
`torch.save` would have written, with mode, owner and group of the moment of saving. Saving to an open file or another
object is left alone.

On Linux the copy lies in memory that a second, small process holds as well. It is started at the first save and stays
idle. Where the training ends in a way that it cannot notice itself (SIGKILL, a crash, `_exit` of the C library, a limit
of processor time), this process writes the remaining files and says so on standard error; `flatout run` waits for it.

## Why it helps

Copying memory takes a fraction of the time of checksums and writing: for 200 MB of weights 0.12 s instead of 0.95 s
(torch 2.13, 2 cores of a shared x86-64 machine, n=1). Beside other programs that filled all cores, `torch.save` of 200
MB returned 2.2x as fast under the fix, after 0.54 s instead of 1.41 s (medians of n=8 pairs, 1.4x to 5.7x; 2 cores of
an Intel Xeon under KVM). The rest happens while the training goes on. The second process makes the first save 6 to 15
ms longer (n=6 processes each, on the first machine under load).

## How equal

BITWISE: training computes the same numbers; the file holds what the object was when it was saved.

## When it is wrong

After an end that Python does not notice (SIGKILL, a crash), files appear some seconds later: the second process imports
torch first. A launcher that restarts the training at once, without `flatout run`, may still find the previous
checkpoint. A checkpoint that is not written yet is lost if the second process ends, too (the machine stops, a batch
system or a container ends with all its processes, somebody kills every Python), if it could not be started, and on
systems other than Linux. A folder `.NAME.` with 12 hex digits is then left beside them, and the files that they were to
replace are whole. All other ends wait: `os._exit` with any status, signals that nobody handles, `os.abort`, `os.execv`.

Something outside the process that looks for the file without being started by it may see it later than before. The fix
therefore leaves `torch.save` alone in a process of `multiprocessing`, and while such processes other than loader
workers run. A replaced file gets another inode, as by a rename; a file with a second name, or one that is open here, is
left to torch. Native code that opens the path by itself does not wait (`torch.jit.save` does): it reads the previous
file, and what it writes there stays, with a line on standard error. A file too large for the disk raises where the
script saves; a disk that fills up later (a quota, another program) shows at the next save, at the next access, or at
the end of the process with exit status 1. There is no gain for scripts that save to a temporary name and rename it at
once: the rename waits until the file is written. The fix holds a copy of what is saved in memory (at most a third of
what is free, else the file is written at once), and is left out where several ranks train, since another rank may read
the file.
"""

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from flatout.fixes.checkpoint.background_writer import BackgroundWriter, PendingWrite, content_of
from flatout.fixes.checkpoint.file_accesses import hold_back
from flatout.fixes.checkpoint.file_replacement import made_alike, replaceable
from flatout.fixes.checkpoint.process_endings import write_before_end
from flatout.fixes.checkpoint.rescuer import Rescuer
from flatout.fixes.checkpoint.snapshot import Snapshot, TooLargeError
from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.order import ORDER_VARIABLE
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX"]

_SHARE_OF_MEMORY = 3


class _Saves:
    """`torch.save` with the file written later."""

    def __init__(self, site: "Site", background: BackgroundWriter) -> None:
        self._site = site
        self._background = background
        order = os.environ.get(ORDER_VARIABLE, "")
        self._rescuer = Rescuer(os.path.dirname(order) if site.purpose == "run" else "")

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
        if not isinstance(path, str | os.PathLike):
            self._site.stand_back(f"torch.save writes to an object, not to a path ({type(path).__name__})")
            return False
        if self._background.forked or _seen_by_others():
            self._site.stand_back("other processes of the training may look for the file at any moment")
            return False
        self._background.raise_error()
        with self._background.threads.quietly():
            target = os.path.realpath(os.fspath(path))
            if not given.get("_use_new_zipfile_serialization", True) or not replaceable(target):
                self._site.stand_back(f"{os.path.basename(target)} has the old format, is open, or is no plain file")
                return False
            snapshot = Snapshot(_free_memory() // _SHARE_OF_MEMORY, by_name=os.fspath(path).isascii())
            error = _fill(snapshot, given)
            fits = not isinstance(error, TooLargeError) and self._has_room(os.path.dirname(target), snapshot.file_bytes)
            if not fits or not self._background.put(partial(self._prepared, os.fspath(path), target, snapshot)):
                snapshot.release()
                self._site.stand_back(f"memory or disk has no room for a copy of {os.path.basename(target)}")
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

    def _prepared(self, path: str, target: str, snapshot: Snapshot) -> PendingWrite | None:
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
        saved_ns = time.time_ns()
        number = self._held_for(target, made, saved_ns, snapshot)
        written = partial(self._written, number, snapshot)
        return PendingWrite(target, made, snapshot.write, snapshot.file_bytes, saved_ns, written, content_of(target))

    def _held_for(self, target: str, made: str, saved_ns: int, snapshot: Snapshot) -> int:
        """Hand the file to the process that writes it when this one is gone; return its number there."""
        try:
            start = snapshot.described()
        except TooLargeError:
            return 0
        if start is None or snapshot.memory is None:
            return 0
        told = {"target": target, "made": made, "saved_ns": saved_ns, "start": start}
        return self._rescuer.hold(told, snapshot.memory.file)

    def _written(self, number: int, snapshot: Snapshot) -> None:
        self._rescuer.let_go(number)
        snapshot.release()


def _fill(snapshot: Snapshot, given: dict[str, Any]) -> BaseException | None:
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

    try:
        free = int(psutil.virtual_memory().available)
    except (OSError, psutil.Error):  # no /proc any more, as behind `os.chroot`: torch writes at once
        return 0
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
    background = BackgroundWriter()
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


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where one process trains and saves."""
    if not run.seams.get("torch:save"):
        return Unfit("nothing was saved by torch.save")
    ranks = run.header.world_size
    return ({},) if ranks == 1 else Unfit(f"{ranks} ranks train: another one may read a file before it is written")


FIX = Fix(
    name="async-checkpoint",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.CHECKPOINT,),
    patch=patch,
    choices=choices,
    addresses=("EP003",),
    switchable=True,
    edit=(Unwritten(reason="the thread that writes, and what waits for it, cannot be written as lines of a script"),),
)
