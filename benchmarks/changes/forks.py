"""Runs of scripts in forked processes of their own, each in an empty folder, with a limit on its time."""

import contextlib
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import weakref
from dataclasses import dataclass, field
from importlib import import_module

import torch
from recording import digest, seed

LIMIT_S = 20.0
LAST = 2  # loaders that are asked in the end what they have done


@dataclass
class Run:
    """What one run of a script gave."""

    records: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    raised: tuple[str, str, str] | None = None  # module, type, message
    trace: str = ""
    printed: str = ""
    ended: str = ""  # empty where the process came to its end
    seconds: float = 0.0


@dataclass
class Child:
    """A process that runs."""

    key: object
    pid: int
    pipe: int
    folder: str
    start: float
    data: bytearray = field(default_factory=bytearray)


def runs(tasks, jobs):
    """Run (key, script, compiled) each in a process, some at a time; yield key and run as they end."""
    import_module("torch._dynamo")  # which optimizers import: 2 s, here once and not in each process
    waiting, running = list(reversed(tasks)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                child = start(*waiting.pop())
                running[child.pipe] = child
            ready, _, _ = select.select(list(running), [], [], 0.5)
            for pipe in ready:
                part = os.read(pipe, 1 << 16)
                running[pipe].data += part
                if not part:
                    child = running.pop(pipe)
                    yield child.key, end(child)
            for child in [c for c in running.values() if time.monotonic() - c.start > LIMIT_S]:
                del running[child.pipe]
                yield child.key, end(child, f"no end within {LIMIT_S:.0f} s")
    finally:
        for child in running.values():
            end(child, "not waited for")


def start(key, script, compiled):
    folder = tempfile.mkdtemp(prefix="changes-")
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(ours)
        try:
            told = pickle.dumps(in_folder(script, compiled, folder))
            while told:
                told = told[os.write(theirs, told) :]
        finally:
            os._exit(0)
    os.close(theirs)
    return Child(key, pid, ours, folder, time.monotonic())


def end(child, reason=""):
    """Wait for a process, with all it started, and return what it told."""
    os.close(child.pipe)
    if reason:
        kill(child.pid)
    _, status = os.waitpid(child.pid, 0)
    kill(child.pid)  # what it has started, and left
    try:
        run = pickle.loads(bytes(child.data))
    except (EOFError, pickle.UnpicklingError):
        run = Run(ended=reason or f"died, status {status}")
    run.seconds = time.monotonic() - child.start
    with (
        contextlib.suppress(OSError),
        open(os.path.join(child.folder, ".printed"), encoding="utf-8", errors="replace") as file,
    ):
        run.printed = file.read()[-2000:]
    shutil.rmtree(child.folder, ignore_errors=True)
    return run


def kill(group):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def in_folder(script, compiled, folder):
    """Run a script as it is, or with its loaders compiled."""
    os.chdir(folder)
    printed = os.open(".printed", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seed()
    run, loaders = Run(), []

    def wrap(loader, **options):
        if not compiled:
            return loader
        import flatout

        loaders.append(flatout.compile_loader(loader, **options))
        for at in range(len(loaders) - LAST):  # earlier ones go when the script lets them go
            with contextlib.suppress(TypeError):
                loaders[at] = loaders[at] if isinstance(loaders[at], weakref.ref) else weakref.ref(loaders[at])
        return loaders[-1]

    try:
        script.function(wrap, lambda value: run.records.append(recorded(value)))
    except Exception as error:
        run.raised = type(error).__module__, type(error).__qualname__, spoken(error)
        run.trace = traceback.format_exc()[-3000:]
    held = [loader() if isinstance(loader, weakref.ref) else loader for loader in loaders]
    run.explained = [explained(loader) for loader in held if loader is not None]
    sys.stdout.flush()
    return run


def recorded(value):
    return value if isinstance(value, str) and "\n" not in value else digest(value)


def spoken(error):
    """Return an error's message; of one that came from a worker without the lines of its traceback."""
    lines = str(error).splitlines() or [""]
    return f"{lines[0]} ... {lines[-1]}" if len(lines) > 1 and "Original Traceback" in str(error) else str(error)


def explained(loader):
    """Return what a loader tells of itself; of files in the current folder their names alone."""
    tell = getattr(loader, "explain", None)
    try:
        return tell().replace(os.path.join(os.getcwd(), ""), "") if callable(tell) else "handed back as it is"
    except Exception as error:
        return f"explain raised {type(error).__name__}: {error}"
