"""Whether anything that a measured script writes is left in its user's files: 70 and more ways to write x 4 ends.

A script writes in every way at once (Python, C, shell, children, links, other places than the project) and then
trains. It is diagnosed, tuned, interrupted with Ctrl-C, and flatout is killed with -9, each once with a private copy of
the file system and once without, as where the kernel allows none. Counted: ways that left something changed; and
without a private copy, those that left something changed that no note names. A way that does nothing when the script
runs plain is an error.

    python benchmarks/files.py [--quick]        # --quick: without tune
"""

import argparse
import hashlib
import os
import platform
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from files_ways import WAYS, Way

GOAL = "goal: 0 ways changed where a private copy is allowed, 0 unnamed elsewhere"
ENDS = ("diagnose", "Ctrl-C", "kill -9", "tune")
PLACES = ("project", "home", "temporary", "sibling", "disk")
HEAD = """
import ctypes, logging, mmap, multiprocessing, os, pathlib, pickle, shutil, sqlite3, subprocess, sys, time, zipfile
import numpy, torch
try:
    import h5py
except ImportError:
    h5py = None
try:
    import safetensors.torch
except ImportError:
    safetensors = None
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fputs.argtypes = ctypes.c_char_p, ctypes.c_void_p
libc.fclose.argtypes = ctypes.c_void_p,
p = os.fsencode


def overwrite(d):
    open(d + "/a.txt", "w").write("new")

"""
TRAIN = """

def train(seconds):
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for x, y in torch.utils.data.DataLoader(data, batch_size=8):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.003)


if __name__ == "__main__":
    for number, way in enumerate(ways):
        try:
            way()
        except Exception as error:
            print("WAY", number, type(error).__name__, error)
    print("ALL WRITTEN", flush=True)
    train(float(os.environ.get("TRAIN_S", "100")))
"""


class House:
    """A user with a project, a home, a temporary folder, another folder beside them, and another disk."""

    def __init__(self, top: Path, ways: list[Way]) -> None:
        self.top, self.ways = top, ways
        self.folders = {place: top / place for place in PLACES}
        for number, way in enumerate(ways):
            folder = self.folder(number)
            (folder / "sub").mkdir(parents=True)
            for name in ("a.txt", "b.txt", "sub/c.txt"):
                (folder / name).write_text("mine")
            np.save(folder / "data.npy", np.zeros(9))
            with sqlite3.connect(folder / "data.db") as database:
                database.execute("create table t (n)")
            database.close()
            if way.kind == "link":
                for name in ("outside", "same.txt"):
                    far = self.folders["sibling"] / f"{name}-{number}"
                    far.parent.mkdir(exist_ok=True)
                    far.write_text("mine")
                    (os.symlink if name == "outside" else os.link)(far, folder / name)
        (self.folders["project"] / "train.py").write_text(self._script())

    def folder(self, number: int) -> Path:
        return self.folders[self.ways[number].place] / f"way-{number}"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folders["home"]), "TMPDIR": str(self.folders["temporary"])}

    def picture(self) -> dict[str, object]:
        """Return everything in all places but what is flatout's own, the system's caches, and byte code."""
        found: dict[str, object] = {}
        for top in self.folders.values():
            for folder, folders, names in os.walk(top):
                hidden = [name for name in folders if name.startswith(".") or name == "__pycache__"]
                folders[:] = [name for name in folders if name not in hidden]
                for name in [*folders, *names]:
                    path = Path(folder, name)
                    found[str(path)] = _looks(path)
        return found

    def way_of(self, path: str) -> int | None:
        for part in (*Path(path).parts, path.rpartition("-")[2]):
            number = part.removeprefix("way-")
            if number.isdecimal() and (part.startswith("way-") or "sibling" in path):
                return int(number)
        return None

    def _script(self) -> str:
        lines = [HEAD]
        for number, way in enumerate(self.ways):
            lines.append(f"def way_{number}():\n    d = {str(self.folder(number))!r}\n    {way.code}\n")
        lines.append(f"ways = [{', '.join(f'way_{number}' for number in range(len(self.ways)))}]")
        return "\n".join(lines) + TRAIN


def _looks(path: Path) -> object:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return os.readlink(path)
    content = hashlib.sha1(path.read_bytes()).hexdigest() if stat.S_ISREG(found.st_mode) else ""
    return content, found.st_mode, found.st_mtime_ns if content else 0


def build(top: Path, ways: list[Way], disk: Path | None) -> House:
    if disk is not None:
        for left in disk.iterdir():
            shutil.rmtree(left)
        (top / "disk").symlink_to(disk)
    house = House(top, ways)
    for place in ("home", "temporary"):
        house.folders[place].mkdir(exist_ok=True)
    if disk is not None:
        house.folders["disk"] = disk
    return house


def check_plain(top: Path, ways: list[Way], disk: Path | None) -> None:
    """Run the script by itself: every way has to change something, else the benchmark says nothing of it."""
    house = build(top, ways, disk)
    before = house.picture()
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=house.folders["project"], env={**house.environment(), "TRAIN_S": "0"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    changed = {house.way_of(path) for path in _changed(before, house.picture())}
    idle = [f"{way.kind}: {way.name}" for number, way in enumerate(ways) if number not in changed]
    if idle or done.returncode:
        sys.exit(f"these ways do nothing: {idle}\n{done.stdout}{done.stderr}")


def _changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [path for path in {**before, **after} if before.get(path) != after.get(path)]


def run_to(end: str, house: House, *, private: bool) -> tuple[set[int], str, str]:
    """Let flatout come to `end`; return the ways that are left changed, what it said, and what it wrote of files."""
    before = house.picture()
    environment = {**house.environment(), **({} if private else {"FLATOUT_WORLD": "off"})}
    words = ["tune", "--budget", "180s"] if end == "tune" else ["diagnose", "--steps", "20"]
    out = house.top / "out.txt"
    with out.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "flatout", *words, "train.py"], env=environment, stdout=file,
                                   cwd=house.folders["project"], stderr=subprocess.STDOUT)  # fmt: skip
    if end in ("Ctrl-C", "kill -9"):
        _wait_for(house, process)
        process.send_signal(signal.SIGINT if end == "Ctrl-C" else signal.SIGKILL)
    process.wait()
    _wait_for_guards(house)
    changed = {house.way_of(path) for path in _changed(before, house.picture())}
    recordings = house.folders["project"] / ".flatout"
    names = ["*/*/files/notes.txt", "*/*/files/past-the-guard.txt"]
    told = "".join(path.read_text() for name in names for path in recordings.glob(name))
    log = "".join(path.read_text(errors="replace") for path in recordings.glob("*/*/output-timed.log"))
    if "ALL WRITTEN" not in log:
        sys.exit(f"{end}: the script did not come to its training\n{out.read_text()}\n{log}")
    trouble = [line for line in log.splitlines() if line.startswith("WAY ")]
    return {one for one in changed if one is not None}, told + out.read_text(), "\n".join(trouble)


def _wait_for(house: House, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the script has written everything and trains."""
    until = time.monotonic() + 90
    while time.monotonic() < until and process.poll() is None:
        logs = house.folders["project"].glob(".flatout/*/*/output-timed.log")
        if any(b"ALL WRITTEN" in path.read_bytes() for path in logs):
            time.sleep(0.5)
            return
        time.sleep(0.1)


def _wait_for_guards(house: House) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and list(house.folders["project"].glob(".flatout/**/guard.lock")):
        time.sleep(0.1)


def _table(ways: list[Way], ends: list[str], cells: dict[tuple[str, bool], dict[int, str]]) -> None:
    heads = [f"{end}{' ' if private else ' (no copy)'}" for end in ends for private in (True, False)]
    print(f"{'way':42s}" + "".join(f"{head:>20s}" for head in heads))
    for number, way in enumerate(ways):
        row = [cells[end, private].get(number, "?") for end in ends for private in (True, False)]
        print(f"{way.kind + ': ' + way.name:42.42s}" + "".join(f"{cell:>20s}" for cell in row))


def _measure(top: Path, ways: list[Way], ends: list[str], disk: Path | None) -> None:
    cells: dict[tuple[str, bool], dict[int, str]] = {}
    trouble = []
    for end in ends:
        for private in (True, False):
            house = build(_fresh(top, f"{end}-{private}"), ways, disk)
            start = time.monotonic()
            changed, told, failed = run_to(end, house, private=private)
            trouble += [f"{end}, {'private' if private else 'no copy'}: {line}" for line in failed.splitlines()]
            named = {number for number in changed if _is_named(house, number, told)}
            states = {number: "named" if number in named else "CHANGED" for number in changed}
            cells[end, private] = {number: states.get(number, ".") for number in range(len(ways))}
            print(f"{end}, {'private' if private else 'no copy'}: {len(changed)} of {len(ways)} ways left something, "
                  f"{len(changed) - len(named)} unnamed ({time.monotonic() - start:.0f} s)", flush=True)  # fmt: skip
            if private and "no private copy" in told:
                print("  " + next(line for line in told.splitlines() if "no private copy" in line))
    print()
    _table(ways, ends, cells)
    print("\n. as it was before; named: changed, and a note says so; CHANGED: changed, and nothing says so")
    for line in trouble:
        print(f"the script met an error that it does not meet plain: {line}")
    left = sum(cell != "." for (_, private), row in cells.items() if private for cell in row.values())
    unnamed = sum(cell == "CHANGED" for (_, private), row in cells.items() if not private for cell in row.values())
    count = len(ways) * len(ends)
    print(f"\nchanged where namespaces are allowed: {left} of {count}\nunnamed where not: {unnamed} of {count}\n{GOAL}")


def _is_named(house: House, number: int, told: str) -> bool:
    way = house.ways[number]
    if way.kind == "link":
        return any(f"{name}-{number} (" in told for name in ("outside", "same.txt")) or f"/way-{number}/" in told
    return f"/way-{number}/" in told


def _fresh(top: Path, name: str) -> Path:
    folder = top / name.replace(" ", "")
    folder.mkdir()
    return folder


def _other_disk(top: Path) -> Path | None:
    """Mount a file system of its own, where root may; None elsewhere."""
    disk = top / "mounted"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=777", "flatout-benchmark", str(disk)]
    done = subprocess.run(command, capture_output=True, check=False) if os.geteuid() == 0 else None
    return disk if done is not None and done.returncode == 0 else None


def main() -> None:
    """Print the table and the two numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out tune")
    asked = parser.parse_args()
    system = f"Linux {platform.release()}, user {os.geteuid()}, {os.cpu_count()} cores"
    print(f"torch {version('torch')}, Python {platform.python_version()}, {system}")
    top = Path(tempfile.mkdtemp(prefix="files-", dir="/var/tmp" if os.path.isdir("/var/tmp") else None))
    disk = _other_disk(top)
    try:
        skipped = {name for name in ("h5py", "safetensors") if find_spec(name) is None}
        ways = [way for way in WAYS if way.name not in skipped and (way.place != "disk" or disk is not None)]
        for way in WAYS:
            if way not in ways:
                print(f"left out: {way.kind}: {way.name} ({'not root' if way.place == 'disk' else 'not installed'})")
        check_plain(_fresh(top, "plain"), ways, disk)
        _measure(top, ways, [end for end in ENDS if not (asked.quick and end == "tune")], disk)
    finally:
        if disk is not None:
            subprocess.run(["umount", str(disk)], check=False)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
