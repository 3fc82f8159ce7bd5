"""A small process that holds unwritten checkpoints, and writes them when the training is gone.

A training can end in ways that it cannot notice: SIGKILL, a crash, `_exit` of the C library. This process is started
at the first save, by itself and not as a fork: it imports nothing but the standard library, and torch only where it has
something to write. It is told of each file, with the memory that its tensors were copied into, and of each that is
written. It ends with the training. Run as a program: `python -I -S rescuer.py SOCKET PID`.
"""

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["Rescuer", "wait_for_rescuers"]

_LOCK = "rescuer-"  # and the number of the training's process: in the folder of the order, locked while we live
_FILES_AT_ONCE = 4
_MESSAGE_BYTES = 64 * 1024
_LOOK_AGAIN_MS = 500  # where the system does not tell of the end of a process


class Rescuer:
    """The training's end of it. What does not work here is not used: files are written all the same."""

    def __init__(self, folder: str = "") -> None:
        """Start nothing yet; `folder`: where whoever started the training can see that it is still at work."""
        self._folder = folder
        self._line: socket.socket | None = None
        self._is_lost = not hasattr(os, "memfd_create") or not hasattr(socket, "send_fds")
        self._number = 0
        os.register_at_fork(after_in_child=self._forget)

    def hold(self, told: dict[str, Any], memory: int) -> int:
        """Hand over what a file needs; return its number, 0 where nobody holds it. The memory may be closed then."""
        if self._is_lost:
            return 0
        try:
            self._line = self._line or self._start()
            self._number += 1
            body = json.dumps({**told, "number": self._number}).encode("utf-8", "surrogatepass")
            socket.send_fds(self._line, [body], [memory])
        except (OSError, ValueError, subprocess.SubprocessError):
            self._forget()
            return 0
        return self._number

    def let_go(self, number: int) -> None:
        """Say that a file is written, or will never be."""
        if not number or self._line is None:
            return
        try:
            self._line.send(json.dumps({"done": number}).encode())
        except OSError:
            self._forget()

    def _start(self) -> socket.socket:
        """Start the process under nobody: the script's own waiting for children must not see it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        handed = [theirs.fileno()]
        try:
            handed += _locked(self._folder)
            program = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(theirs.fileno()), str(os.getpid())]
            shell = ["/bin/sh", "-c", '"$@" &', "sh", *program, json.dumps([path for path in sys.path if path])]
            subprocess.run(
                shell,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=handed,
                start_new_session=True,
                cwd="/",
                check=False,
            )
        finally:
            theirs.close()
            for each in handed[1:]:
                os.close(each)
        return ours

    def _forget(self) -> None:
        """Do without it: it is gone, or this is another process."""
        self._is_lost = True
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(OSError):  # the script may have closed every file that it has
                line.close()


def wait_for_rescuers(folder: Path, limit_s: float = 600.0) -> None:
    """Wait until the processes that hold checkpoints of trainings, started with an order in `folder`, have ended."""
    until = time.monotonic() + limit_s
    for place in folder.glob(f"{_LOCK}*"):
        with contextlib.suppress(OSError), place.open("rb") as file:
            while time.monotonic() < until:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.005)


def _locked(folder: str) -> list[int]:
    """Return a file in `folder` that is locked as long as anybody has it open."""
    if not folder:
        return []
    try:
        place = os.path.join(folder, f"{_LOCK}{os.getpid()}")
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return []
    return [file]


# -- the process itself ---------------------------------------------------------------------------------------------


def _main() -> None:
    line, pid = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    held: dict[int, tuple[dict[str, Any], int]] = {}
    ended, waiting = select.poll(), select.poll()
    waiting.register(line, select.POLLIN)
    with contextlib.suppress(OSError, AttributeError):
        process = os.pidfd_open(pid)
        ended.register(process, select.POLLIN)
        waiting.register(process, select.POLLIN)
    while True:
        ready = {file for file, _ in waiting.poll(_LOOK_AGAIN_MS)}
        if line.fileno() in ready:
            if not _hear(line, held):
                break
        elif ready or not os.path.exists(f"/proc/{pid}"):  # children of it may still hold its end of the line
            break
    while held and not ended.poll(_LOOK_AGAIN_MS) and os.path.exists(f"/proc/{pid}"):
        pass  # it lives, lets go of us, and writes by itself
    if held:
        _write(held)


def _hear(line: socket.socket, held: dict[int, tuple[dict[str, Any], int]]) -> bool:
    """Take one message; return whether there was one."""
    try:
        body, files, _, _ = socket.recv_fds(line, _MESSAGE_BYTES, _FILES_AT_ONCE)
    except OSError:
        return False
    if not body:
        return False
    told = json.loads(body.decode("utf-8", "surrogatepass"))
    if "done" in told:
        _, file = held.pop(told["done"], ({}, -1))
        with contextlib.suppress(OSError):
            os.close(file)
    elif files:
        held[told["number"]] = told, files[0]
    return True


def _write(held: dict[int, tuple[dict[str, Any], int]]) -> None:
    """Write what the process that is gone has left, in order, and say so."""
    sys.path[:] = json.loads(sys.argv[3])
    from flatout.fixes.checkpoint.background_writer import PendingWrite
    from flatout.fixes.checkpoint.snapshot import SavedMemory, write_described

    for told, file in held.values():
        if not os.path.lexists(told["made"]):  # it is in its place, or was removed
            continue
        write = partial(write_described, SavedMemory(file), told["start"])
        writing = PendingWrite(told["target"], told["made"], write, saved_ns=told["saved_ns"])
        try:
            writing.run()
            said = "is whole: it was written after the end of the process that saved it"
        except Exception as error:
            said = f"could not be written after the end of the process that saved it: {type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(2, f"flatout: {told['target']} {said}\n".encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    _main()
