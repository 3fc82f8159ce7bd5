"""A small process between flatout and the script, so that neither a killed parent nor a killed script leaves anything.

It starts the script in a session of its own, keeps its output within bounds, and adopts whatever the script leaves
behind. When its parent goes away, or asks, it ends every descendant; in the end it throws the script's private copy of
the file system away, or, where there could be none, puts the user's files back and names what wrote past it.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from flatout.engine.process.aftermath import NOTES_FILE, Aftermath
from flatout.engine.process.journal_claims import LOCK_FILE
from flatout.schema.order import ORDER_VARIABLE

__all__ = ["GUARD_LOCK", "NOTES_FILE", "adopt_orphans", "end_left_over", "end_processes", "main"]

GUARD_LOCK = "guard.lock"
"""Says that a guard of a run's folder lives, removed by it in the end; its lock is beside the journal."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_HEAD_BYTES = 8 * 1024 * 1024
_TAIL_BYTES = 2 * 1024 * 1024
_POLITE_S = 2.0


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process (Linux); elsewhere do nothing."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_processes(processes: Sequence[psutil.Process], polite_s: float = _POLITE_S) -> None:
    """Ask `processes` to end, and kill what is left after `polite_s` seconds."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=polite_s)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=2)


def end_left_over(folder: Path) -> None:
    """End what an execution recorded in `folder` left behind when its guard was killed: it carries our variable."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            order = process.environ().get(ORDER_VARIABLE, "")
            if process.pid != os.getpid() and order.startswith(os.path.join(folder, "")):
                found.append(process)
    end_processes(found, polite_s=0.5)


def _end_descendants(polite_s: float) -> None:
    """End all descendants, those too that they start meanwhile."""
    for _ in range(5):
        left = psutil.Process().children(recursive=True)
        if not left:
            break
        end_processes(left, polite_s)
        polite_s = 0.0


class _Output:
    """Copies the script's output to a log: the first 8 MiB and the last 2, whatever it prints."""

    def __init__(self, stream: int, log: Path) -> None:
        self._stream = stream
        self._log = log
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(timeout=2)

    def _copy(self) -> None:
        written, left_out, tail = 0, 0, bytearray()
        with contextlib.suppress(OSError), self._log.open("wb", buffering=0) as file:
            while chunk := os.read(self._stream, 1 << 16):
                if written < _HEAD_BYTES:
                    with contextlib.suppress(OSError):  # a full disk must not block the script
                        file.write(chunk)
                    written += len(chunk)
                    continue
                tail += chunk
                if len(tail) > 2 * _TAIL_BYTES:
                    left_out += len(tail) - _TAIL_BYTES
                    del tail[:-_TAIL_BYTES]
            if tail:
                file.write(f"\n[... {left_out} bytes of output left out ...]\n".encode())
                file.write(tail)


def main() -> None:
    """Run the command that the specification in `argv[1]` names; report on stdout, listen on stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = Path(sys.argv[1])
    spec = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()  # it holds the user's environment
    folder = Path(spec["folder"])
    adopt_orphans()
    with open(os.open(Path(spec["journal"]) / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pwrite(lock.fileno(), str(os.getpid()).encode(), 0)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(folder / GUARD_LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _run(spec, folder)
        (folder / GUARD_LOCK).unlink(missing_ok=True)


def _run(spec: dict[str, Any], folder: Path) -> None:
    aftermath = Aftermath(spec["working"], spec["session"], folder, spec["journal"], spec["command"])
    read_end, write_end = os.pipe()
    try:
        process = aftermath.start(lambda enter: _start(spec, write_end, enter))
    except OSError as error:
        aftermath.end()
        _say({"failed": error.strerror or str(error)})
        return
    os.close(write_end)
    output = _Output(read_end, folder / spec["log"])
    _say({"pid": process.pid})
    asked = _wait(process)
    if asked:
        _end_descendants(_POLITE_S)
    process.wait()
    _end_descendants(0.5)
    output.join()
    restored, private = aftermath.end(), aftermath.private
    _say({"exit_code": process.returncode, "stopped": asked, "restored": restored, "private": private})


def _start(spec: dict[str, Any], output: int, enter: Callable[[], None] | None) -> subprocess.Popen[bytes]:
    def before_exec() -> None:
        if enter is not None:
            enter()
        if sys.platform == "linux":  # last: another user namespace forgets it
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return subprocess.Popen(
        spec["command"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=spec["working"],
        env=spec["environment"],
        start_new_session=True,
        preexec_fn=before_exec,
    )


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait until the script ends (False), or the parent asks for its end or is gone (True)."""
    pause = 0.01
    while process.poll() is None:
        with contextlib.suppress(InterruptedError):
            ready, _, _ = select.select([0], [], [], pause)
            if ready:
                os.read(0, 64)
                return True
        pause = min(0.1, pause * 1.5)
    return False


def _say(message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")
