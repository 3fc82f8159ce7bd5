"""The real command line in a process of its own, on scripts as people write them."""

import contextlib
import functools
import hashlib
import os
import stat
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from flatout.schema.codec import RUN_FILE, read_run

MARK = "E2E_MARK"
TRY_A_WORLD = """
import os, subprocess, tempfile
from flatout.engine.process.private_world import Refused, World
with tempfile.TemporaryDirectory() as folder:
    session, journal = os.path.join(folder, "session"), os.path.join(folder, "journal")
    os.mkdir(session), os.mkdir(journal)
    try:
        world = World(folder, session, journal)
    except Refused as refused:
        print(refused)
    else:
        try:
            subprocess.run(["true"], preexec_fn=world.enter)
        except subprocess.SubprocessError:
            print(world.report().get("error"))
        world.remove()
"""
PATIENCE_S = 15.0


def training(*, before="", each_step="", each_epoch="", after="", steps=1_000_000, workers=0, step_s=0.003):
    """Return an ordinary training script of short steps with `before`, `each_step`, ... put into it."""
    return f"""
import os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(64, 8), torch.randn(64, 1)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.x[index], self.y[index]


done = 0
{before}


def step(x, y):
    global done
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done += 1
    time.sleep({step_s})
    return loss


def main():
    data = DataLoader(Data(), batch_size=8, shuffle=True, num_workers={workers})
    while True:
        for x, y in data:
            loss = step(x, y)
{_indented(each_step, 12)}
            if done >= {steps}:
                return
{_indented(each_epoch, 8)}


if __name__ == "__main__":
    main()
{_indented(after, 4)}
"""


def _indented(text, columns):
    return "\n".join(" " * columns + line for line in text.strip("\n").splitlines())


@dataclass
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def recording(self):
        """The folder of the newest recording."""
        return max(self.folder.glob("*/*/parts"), key=lambda parts: parts.stat().st_mtime_ns).parent

    @property
    def run(self):
        return read_run(self.recording / RUN_FILE)

    def log(self, mode="timed"):
        return (self.recording / f"output-{mode}.log").read_text(errors="replace")


@dataclass
class Flatout:
    """Starts `flatout` in `folder`, with a mark in the environment by which all it leaves is found."""

    folder: Path
    environment: dict = field(default_factory=dict)

    def __post_init__(self):
        self.mark = uuid.uuid4().hex
        self.running = []

    def write(self, text, name="train.py"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *words, **environment):
        """Start and return the process; its streams go to files in `.flatout`'s neighbour folder."""
        streams = self.folder.parent / f"{self.folder.name}-streams"
        streams.mkdir(exist_ok=True)
        out, err = (streams / f"{len(self.running)}.{kind}" for kind in ("out", "err"))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "flatout", *words],
                cwd=self.folder,
                env={**inherited, "PATH": path, "PYTHONUNBUFFERED": "1", MARK: self.mark}
                | self.environment
                | environment,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
            )
        process.out_path, process.err_path = out, err
        self.running.append(process)
        return process

    def wait(self, process, timeout=280):
        code = process.wait(timeout)
        texts = (path.read_text(errors="replace") for path in (process.out_path, process.err_path))
        return Ended(code, *texts, self.folder / ".flatout")

    def __call__(self, *words, **environment):
        return self.wait(self.start(*words, **environment))

    def diagnose(self, *words, steps=20, **environment):
        return self("diagnose", "--steps", str(steps), *words, **environment)

    def processes(self):
        """Every process that carries the mark, zombies left out."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def left_behind(self):
        """What still runs after a while; it is ended, so that only one test fails."""
        wait_until(lambda: not self.processes())
        left = [" ".join(process.cmdline()) for process in self.processes()]
        for process in self.processes():
            process.kill()
        return left

    def guard(self):
        return next(one for one in self.processes() if "flatout.engine.process.guard" in " ".join(one.cmdline()))

    def script(self, name="train.py"):
        """The first process that runs the script itself."""
        return min(
            (one for one in self.processes() if name in one.cmdline() and "flatout" not in one.cmdline()),
            key=lambda one: one.create_time(),
        )

    def wait_for_steps(self, mode="timed"):
        """Wait until steps of an execution are on disk."""

        def recorded():
            parts = self.folder.glob(f".flatout/*/*/parts/{mode}-rank*.jsonl")
            return any('"kind":"steps"' in part.read_text() for part in parts)

        assert wait_until(recorded, 60), f"no step of the {mode} run was seen"


@functools.cache
def why_no_private_world():
    """Why a measured run has no private copy of the file system on this machine; "" where it has."""
    tried = subprocess.run([sys.executable, "-c", TRY_A_WORLD], capture_output=True, text=True, check=False)
    return (tried.stdout + tried.stderr).strip()


def wait_until(condition, timeout=PATIENCE_S):
    """Return whether `condition()` came true in time."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def picture(top):
    """Everything below `top` but recordings and byte code: kinds, modes, contents, and the times of files."""
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in (".flatout", "__pycache__")]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):  # a running script has just removed it
                found[os.path.relpath(path, top)] = _looks(path)
    return found


def _looks(path):
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if stat.S_ISDIR(status.st_mode):
        return stat.S_IMODE(status.st_mode)
    content = hashlib.sha1(Path(path).read_bytes()).hexdigest()
    return content, stat.S_IMODE(status.st_mode), status.st_mtime_ns
