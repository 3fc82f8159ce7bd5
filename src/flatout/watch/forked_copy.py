"""Looking at a data set in a forked copy of the process, in which nothing that is done leaves a trace.

A fork has a copy of every object, generator, counter and stream for nothing. What it must not share is taken away from
it first: files open for writing, sockets and pipes become /dev/null, and the file systems become read-only where the
kernel allows that, so that what a data set writes raises there. Only what the function returns comes back, by a pipe.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pickle
import platform
import resource
import select
import signal
import stat
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flatout.watch.no_collection import no_collection
from flatout.watch.refused_writes import in_words
from flatout.watch.script_signals import any_but_signals

__all__ = ["Answer", "ask_a_copy", "in_a_copy"]

_LONGEST_S = 60.0
_ERRORS = 2  # standard error: what goes there is no result
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_MOUNT_SETATTR = 442
_CLONE = {"x86_64": 56, "aarch64": 220}
_PR_SET_PDEATHSIG = 1
_FIXED, _MOST_COPIED = 0x10, 64 * 1024**2
_OF_MEMORY = ("/dev/shm/", "/dev/zero")
_RECURSIVE, _FROM_HERE, _READ_ONLY, _PRIVATE = 0x8000, -100, 1, 1 << 18

_NO_ANSWER = "a copy of the process ended without an answer"

_in_a_copy = False


@dataclass(frozen=True)
class Answer:
    """What a copy found.

    Attributes:
        value: what the function returned; None where there is no answer.
        failed: why there is none, an empty string where there is.
        wrote: what it wrote to that is not its own, an empty string for nothing.
    """

    value: Any = None
    failed: str = ""
    wrote: str = ""


def in_a_copy() -> bool:
    """Tell whether this process is such a copy."""
    return _in_a_copy


def ask_a_copy(function: Callable[[], Any], longest_s: float = _LONGEST_S) -> Answer:
    """Return what `function` gives in a forked copy of this process; it must give plain values.

    A copy that does not answer in `longest_s` is ended.
    """
    if not hasattr(os, "fork"):
        return Answer(failed="this system cannot copy a process")
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which the copy has none
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or there is none
                stream.flush()
        process = os.fork()
    if not process:
        _answer(function, theirs)
    os.close(theirs)
    try:
        found = _received(ours, time.monotonic() + longest_s)
    finally:
        os.close(ours)
        ended = _end(process)
    if found is not None and ended and found.failed == _NO_ANSWER:
        return Answer(failed=f"{_NO_ANSWER} ({ended})")
    if found is None:
        return Answer(failed=f"a copy of the process gave no answer in {longest_s:.0f} s")
    return found


def _end(process: int) -> str:
    """End a copy; return the signal that it had ended by before, an empty string for none."""
    try:
        ended, status = os.waitpid(process, os.WNOHANG)
        if not ended:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return ""
    except (ProcessLookupError, ChildProcessError):
        return ""
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""


def _received(pipe: int, until: float) -> Answer | None:
    parts = bytearray()
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        part = os.read(pipe, 1 << 20)
        if not part:
            break
        parts += part
    if len(parts) < 8 or len(parts) != 8 + struct.unpack_from("Q", parts)[0]:
        return Answer(failed=_NO_ANSWER)
    try:
        found: Answer = pickle.loads(bytes(parts[8:]))  # what our own copy has just sent
    except any_but_signals() as error:  # torch cannot read back tensors of some of its types, as uint16
        return Answer(failed=f"its answer cannot be read: {in_words(error)}")
    return found


# -- in the copy ------------------------------------------------------------------------------------------------


def _answer(function: Callable[[], Any], pipe: int) -> None:
    """Send what `function` gives, and end: no handler, no `finally` of the script's runs here."""
    global _in_a_copy
    try:
        _in_a_copy = True
        answer = _answered(function, pipe)
        _send(pipe, answer)
    except BaseException as error:  # whatever it is, the script must not go on twice
        _send(pipe, Answer(failed=f"it {in_words(error)}"))
    finally:
        os._exit(0)


def _answered(function: Callable[[], Any], pipe: int) -> Answer:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.modules["torch"].set_num_threads(1)  # others would wait for threads that are not here
    outside = _Outside(pipe)
    value = function()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    return Answer(value, wrote=outside.written())


def _send(pipe: int, answer: Answer) -> None:
    data = pickle.dumps(answer)
    data = struct.pack("Q", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


class _Outside:
    """What is outside of a copy, shut off."""

    def __init__(self, pipe: int) -> None:
        """Shut it off; what is written to the terminal, to logs and to connections goes to memory, to be seen."""
        _read_only()
        with no_collection():  # memory that is listed must not go meanwhile
            _apart()
        self._memory, unseen = os.memfd_create("flatout"), os.memfd_create("flatout-errors")
        for number in _open_files():
            if number not in (pipe, self._memory, unseen) and _would_be_written(number):
                os.dup2(unseen if number == _ERRORS else self._memory, number)

    def written(self) -> str:
        """Return what was written to, in words."""
        return "its standard output, an open file or a connection" if os.fstat(self._memory).st_size else ""


def _open_files() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return list(range(3))


def _would_be_written(number: int) -> bool:
    """Tell whether a descriptor stands for something that a copy would share: a file, a terminal, a connection."""
    try:
        mode, flags = os.fstat(number).st_mode, fcntl.fcntl(number, fcntl.F_GETFL)
    except OSError:
        return False
    if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or number in (1, _ERRORS):
        return True
    return flags & os.O_ACCMODE != os.O_RDONLY and (stat.S_ISREG(mode) or os.isatty(number))


def _apart() -> None:
    """Have what is written to memory that processes share stay in this one: it becomes a copy, or cannot be written."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    for start, length in list(_shared_memory()):
        if length > _MOST_COPIED:
            libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.PROT_READ)
            continue
        content = _read(start, length)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED
        if libc.mmap(start, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == start:
            ctypes.memmove(start, content, len(content))


def _read(start: int, length: int) -> bytes:
    """Return what stands in memory, up to where it cannot be read: a file may be shorter by now than its map."""
    parts: list[bytes] = []
    try:
        memory = open("/proc/self/mem", "rb", buffering=0)  # noqa: SIM115 - closed below; here, failing says more
    except OSError:
        return ctypes.string_at(start, length)
    with memory, contextlib.suppress(OSError):
        memory.seek(start)
        while length > 0 and (part := memory.read(length)):
            parts.append(part)
            length -= len(part)
    return b"".join(parts)


def _shared_memory() -> Iterator[tuple[int, int]]:
    """Yield where memory is that may be written, and is shared with other processes; not that of devices."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            if " rw-s " not in line:  # of some thousand, few are
                continue
            place, _, _, _, _, *name = line.split()
            if not (name and name[0].startswith("/dev/") and not name[0].startswith(_OF_MEMORY)):
                start, end = (int(part, 16) for part in place.split("-"))
                yield start, end - start


def go_on_alone() -> bool:
    """Go on in a copy of this process that has the calling thread only; return whether that could be done.

    Once `torch.set_num_threads` was called, torch starts a thread in every child, at once, and only a process without
    threads gets a user namespace. What runs at a fork has run by now, so this copy is made by the system call itself.
    This process waits for the copy and ends as it does.
    """
    number = _CLONE.get(platform.machine())
    if number is None:
        return False
    before = os.getpid()
    library = ctypes.PyDLL(None)  # keeps the interpreter's lock: another thread would take it along
    copy = library.syscall(*(ctypes.c_long(each) for each in (number, signal.SIGCHLD, 0, 0, 0, 0)))
    if copy < 0:
        return False
    if copy:
        code = 255
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) & 0xFF
        finally:
            os._exit(code)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != before:
        os._exit(255)
    return True


def _read_only() -> bool:
    """Make all file systems read-only for this process; return whether the kernel allowed it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_MOUNTS):
        may = not libc.unshare(_NEW_USER | _NEW_MOUNTS)
        if not may and ctypes.get_errno() == errno.EINVAL and go_on_alone():
            may = not libc.unshare(_NEW_USER | _NEW_MOUNTS)
        if not may:
            return False
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    private = ctypes.create_string_buffer(struct.pack("QQQQ", _READ_ONLY, 0, _PRIVATE, 0), 32)
    return not libc.syscall(_MOUNT_SETATTR, _FROM_HERE, b"/", _RECURSIVE, private, 32)
