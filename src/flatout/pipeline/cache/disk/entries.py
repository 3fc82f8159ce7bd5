"""Prepared samples kept on disk between runs and processes: written whole or not at all, checked before they are used.

An entry is one file (`disk_format`), written beside, made durable, renamed. `load` reads all of it once and compares
the checksums: 0.7 s per GB and core (0.65 to 0.80, n=6, from the page cache, one core of an AMD EPYC with
zlib 1.2.13), spread over up to 8 threads, or as long as the disk takes; then it maps the file, so that
processes share its pages. Damage of any kind makes the entry absent, and it is removed.

Processes find each other through `flock`: on `.lock` while the folder is looked at or changed, on an entry being
written, and on an entry for as long as anything of it is mapped. What a killed process left is not locked any more; the
next `save` removes it. Entries in use are not evicted: unlinking them would free nothing before the last user ends.

A file that is cut off after it was mapped ends the process that touches what is gone (SIGBUS). flatout never changes
an entry that has its name: entries are replaced by rename and removed by unlink, and a mapping outlives both. What is
left: other programs that cut off or overwrite files in the folder while they are mapped, a disk that fails when pages
come back after they were dropped from memory, and a network file system whose entry is removed from another machine
where it does not pass locks on. A file system without `flock` is not used.
"""

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from flatout.pipeline.cache.disk.entry_format import BadEntry, EntryPlan, StoredArray, lay_out, read, write
from flatout.units import format_bytes
from flatout.watch.script_signals import any_but_signals

__all__ = ["Stored", "load", "save"]

_ENTRY, _PARTIAL = ".samples", ".partial"
_PATIENCE_S = 10.0  # for the folder: it is held for milliseconds, unless its holder is stopped
_ENTRY_PATIENCE_S = 0.5
_POLL_S = 0.005
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,100}")
_OPEN = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
# Linux counts a private writable mapping as memory that may be needed, and refuses one larger than the machine's.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


@dataclass(frozen=True, slots=True)
class Stored:
    """What `save` was given: `arrays` are views of the file, and what is written to them stays in this process."""

    arrays: dict[str, torch.Tensor]
    facts: dict[str, object]


# -- saving -----------------------------------------------------------------------------------------------------


def save(
    folder: Path,
    key: str,
    arrays: Mapping[str, torch.Tensor],
    facts: Mapping[str, object],
    *,
    max_bytes: int,
    pace: Callable[[], None] | None = None,
) -> str:
    """Keep `arrays` and `facts` under `key` in `folder`; return why not, an empty string when they are kept.

    All entries of `folder` together take at most `max_bytes`: those that were not used for longest go first. `facts`
    are what JSON holds (tuples come back as lists). Strides are kept; a view with gaps is closed up. Whatever the disk
    does is a reason, never an exception. `pace` as in `disk_format.write`; an OSError that it raises is a reason, too.
    """
    try:
        plan = lay_out(key, arrays, facts)
        if plan.num_bytes > max_bytes:
            return f"they take {format_bytes(plan.num_bytes)}, and {format_bytes(max_bytes)} may be used"
        folder.mkdir(parents=True, exist_ok=True)
        return _save(plan, folder, max_bytes, pace)
    except any_but_signals(OSError) as error:
        return f"{folder} cannot be written ({error.strerror or type(error).__name__})"
    except (ValueError, MemoryError, RuntimeError) as error:
        return str(error) or type(error).__name__


def _save(plan: EntryPlan, folder: Path, max_bytes: int, pace: Callable[[], None] | None) -> str:
    path = folder / _name(plan.key)
    partial = path.with_suffix(_PARTIAL)
    with _held(folder):
        _remove_left_over(folder)
        if partial.exists():
            return "another process is writing the same samples"
        reason = _make_room(folder, path, plan.num_bytes, max_bytes)
        if reason:
            return reason
        file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o666)
        with _unlinked_on_failure(partial, file):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, plan.num_bytes)  # what the others see as taken
    with _unlinked_on_failure(partial, file):
        write(plan, file, pace)
        with _held(folder):
            os.rename(partial, path)
    _release(file)
    _sync(folder)
    return ""


@contextlib.contextmanager
def _unlinked_on_failure(path: Path, file: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        _release(file)
        raise


def _name(key: str) -> str:
    plain = key if _PLAIN.fullmatch(key) else hashlib.blake2b(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return plain + _ENTRY


def _remove_left_over(folder: Path) -> None:
    """Remove what processes that were killed did not finish: nobody holds its lock."""
    for path in folder.glob(f"*{_PARTIAL}"):
        _remove_idle(path)


def _make_room(folder: Path, path: Path, num_bytes: int, max_bytes: int) -> str:
    """Remove idle entries, the longest unused first, until `num_bytes` fit; none at all where that is not enough."""
    found = dict(_entries(folder))
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize if disk.f_blocks else sys.maxsize
    missing = max(sum(facts.st_size for facts in found.values()) + num_bytes - max_bytes, num_bytes - free)
    idle = [(one != path, facts.st_mtime_ns, one, facts.st_size) for one, facts in found.items() if _is_idle(one)]
    most = num_bytes - missing + sum(size for *_, size in idle)  # room there can be
    if most >= num_bytes:
        for *_, one, size in sorted(idle):
            if missing > 0 and _remove_idle(one):
                missing -= size
    if missing <= 0:
        return ""
    needed = f"{format_bytes(num_bytes)} are needed"
    if num_bytes > free:
        return f"{needed}, and the disk of {folder} has {format_bytes(free)} left"
    left = format_bytes(max(0, most))
    return f"{needed}, and entries in use leave {left} of {format_bytes(max_bytes)}"


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.iterdir():
        if path.suffix in (_ENTRY, _PARTIAL):
            with contextlib.suppress(FileNotFoundError):
                yield path, path.lstat()


def _is_idle(path: Path) -> bool:
    with _alone(path) as alone:
        return alone


def _remove_idle(path: Path) -> bool:
    with _alone(path) as alone:
        if alone:
            path.unlink(missing_ok=True)
        return alone


def _sync(folder: Path) -> None:
    """Make the new name durable; a file system that cannot do that for folders has its own ways."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


# -- loading ----------------------------------------------------------------------------------------------------


def load(folder: Path, key: str) -> Stored | None:
    """Return what is kept under `key` in `folder`, None where there is nothing, or nothing whole.

    Every byte is read and checked first. The arrays are mapped; the entry counts as in use while one of them lives.
    """
    path = folder / _name(key)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OPEN)
    except any_but_signals(OSError) as error:
        if error.errno == errno.ELOOP:  # a link: none of ours
            _discard(path)
        return None
    try:
        return _load(path, file, key)
    except any_but_signals(OSError, MemoryError, RuntimeError):
        return None
    finally:
        os.close(file)  # the mapping has a descriptor of its own, and with it the lock


def _load(path: Path, file: int, key: str) -> Stored | None:
    if not _locked(file, fcntl.LOCK_SH, _ENTRY_PATIENCE_S):
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise BadEntry
        if found.st_uid not in (0, os.geteuid()):  # another user's: what it holds is theirs to change
            return None
        arrays, facts = read(file, key)
        mapped = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        if arrays and len(mapped) < arrays[-1].end:
            raise BadEntry
    except any_but_signals(BadEntry, ValueError, OSError) as error:  # ValueError: it is empty meanwhile
        if not isinstance(error, OSError) or error.errno == errno.EIO:
            _discard(path, file)
        return None
    with contextlib.suppress(OSError):
        os.utime(file)  # used now
    return Stored({array.name: _view(mapped, array) for array in arrays}, facts)


def _view(mapped: mmap.mmap, array: StoredArray) -> torch.Tensor:
    if not array.num_items:
        return torch.empty(array.shape, dtype=array.dtype)
    flat = torch.frombuffer(mapped, dtype=array.dtype, count=array.num_items, offset=array.offset)
    return flat.as_strided(array.shape, array.stride)


def _discard(path: Path, file: int | None = None) -> None:
    """Remove a bad entry, unless another process has put a new one in its place meanwhile."""
    with contextlib.suppress(OSError), _held(path.parent):
        if file is None or os.path.samestat(path.lstat(), os.fstat(file)):
            path.unlink()


# -- locks ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder against other processes.

    Raises:
        OSError: it cannot be written, or another process holds it for too long.
    """
    file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | _OPEN, 0o666)
    try:
        if not _locked(file, fcntl.LOCK_EX, _PATIENCE_S):
            raise OSError(errno.EWOULDBLOCK, f"another process has held it for {_PATIENCE_S:.0f} s")
        yield
    finally:
        _release(file)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Say whether nobody uses `path`, and keep it so meanwhile; what cannot be told counts as used."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NONBLOCK | _OPEN)  # network file systems lock only what may be written
    except OSError:
        yield False
        return
    try:
        yield _locked(file, fcntl.LOCK_EX, 0.0)
    finally:
        _release(file)


def _locked(file: int, kind: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _release(file: int) -> None:
    """Unlock before closing: a child that was forked meanwhile holds a copy of the descriptor."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)
