"""Samples a second from a container that is opened anew for each sample: plain, by hand, and under flatout, in turns.

    python benchmarks/containers.py [--samples 2000] [--seconds 2] [--rounds 5] [--only WORD] [--record]

Each in a process of its own, a `DataLoader` without workers, batches of 32, shuffled, the file in the page cache. A
sample is one row of 256 floats. `by hand`: the container is opened once and kept in the data set, as its library
advises. `kept-directories`: the script as it is under that fix. `compile_loader`: samples that are the same each time
are kept in memory from the second pass on. The first pass ends after so many seconds, too. HDF5, LMDB and NIfTI
are measured where h5py, lmdb and nibabel are installed. `by CPU s`: of the process's own processor time, since other
programs use the cores, too; how much of them is shown.
"""

import argparse
import importlib.util
import io
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from record import record

WIDTH, BATCH = 256, 32
CONTENDERS = ("plain", "by hand", "kept-directories", "compile_loader")
GOAL = 0.9  # of the speed by hand, from the untouched script


def row(number: int) -> Any:
    return np.random.default_rng(number).random(WIDTH, dtype=np.float32)


# -- containers: how one is written, opened, and asked for a row -----------------------------------------------------


def write_zip(path: Path, samples: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(samples):
            archive.writestr(f"{number}.bin", row(number).tobytes())


def write_tar(path: Path, samples: int) -> None:
    with tarfile.open(path, "w") as archive:
        for number in range(samples):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = 4 * WIDTH
            archive.addfile(info, io.BytesIO(row(number).tobytes()))


def write_npz(path: Path, samples: int) -> None:
    np.savez_compressed(path, **{f"r{number}": row(number) for number in range(samples)})


def write_hdf5(path: Path, samples: int) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=np.stack([row(number) for number in range(samples)]))


def write_sqlite(path: Path, samples: int) -> None:
    with sqlite3.connect(path) as base:
        base.execute("create table samples (number integer primary key, value blob)")
        base.executemany("insert into samples values (?, ?)", ((at, row(at).tobytes()) for at in range(samples)))
    base.close()


def write_lmdb(path: Path, samples: int) -> None:
    import lmdb

    with lmdb.open(str(path), map_size=1 << 28, subdir=False) as base, base.begin(write=True) as write:
        for number in range(samples):
            write.put(str(number).encode(), row(number).tobytes())


def write_nifti(path: Path, samples: int) -> None:
    import nibabel

    nibabel.save(nibabel.Nifti1Image(np.stack([row(number) for number in range(samples)]), np.eye(4)), path)


def of_bytes(content: bytes) -> Any:
    return np.frombuffer(bytearray(content), np.float32)


def sqlite_row(base: Any, at: int) -> Any:
    return of_bytes(base.execute("select value from samples where number = ?", (at,)).fetchone()[0])


def lmdb_row(base: Any, at: int) -> Any:
    with base.begin() as read:
        return of_bytes(read.get(str(at).encode()))


def open_hdf5(path: Path) -> Any:
    import h5py

    return h5py.File(path, "r")


def open_lmdb(path: Path) -> Any:
    import lmdb

    return lmdb.open(str(path), readonly=True, lock=False, subdir=False)


class Nifti:
    """A volume of which rows are read from the file; it has no handle to close."""

    def __init__(self, path: Path) -> None:
        import nibabel

        self.image = nibabel.load(path)

    def close(self) -> None:
        pass


KINDS: dict[str, tuple[str, Callable[..., None], Callable[[Path], Any], Callable[[Any, int], Any], str]] = {
    "zip": ("a.zip", write_zip, zipfile.ZipFile, lambda one, at: of_bytes(one.read(f"{at}.bin")), ""),
    "tar": ("a.tar", write_tar, tarfile.open, lambda one, at: of_bytes(one.extractfile(f"{at}.bin").read()), ""),
    "npz": ("a.npz", write_npz, np.load, lambda one, at: one[f"r{at}"], ""),
    "HDF5": ("a.h5", write_hdf5, open_hdf5, lambda one, at: one["rows"][at], "h5py"),
    "SQLite": ("a.db", write_sqlite, sqlite3.connect, sqlite_row, ""),
    "LMDB": ("a.lmdb", write_lmdb, open_lmdb, lmdb_row, "lmdb"),
    "NIfTI": ("a.nii", write_nifti, Nifti, lambda one, at: np.array(one.image.dataobj[at]), "nibabel"),
}


class Samples:
    """The data set; `kept`: the container stays open."""

    def __init__(self, kind: str, path: Path, samples: int, *, kept: bool) -> None:
        self.path, self.samples = path, samples
        _, _, self.open, self.read, _ = KINDS[kind]
        self.one = self.open(path) if kept else None

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, at: int) -> Any:
        import torch

        if self.one is not None:
            return torch.from_numpy(self.read(self.one, at))
        one = self.open(self.path)
        try:
            return torch.from_numpy(self.read(one, at))
        finally:
            one.close()


def under_fix(name: str) -> None:
    """Switch a fix on in this process, as `flatout run` does."""
    from flatout.fixes.core.apply import install_fix
    from flatout.probe.core.event_log import EventLog
    from flatout.probe.core.seams import Seams
    from flatout.probe.model.modules import ModuleWatch
    from flatout.schema.trial import Selection

    log = EventLog(lambda step: None, lambda stretch: None)
    install_fix(Selection(name, {}), Seams(), ModuleWatch(log)).enable()


def measure(contender: str, kind: str, path: Path, samples: int, seconds: float) -> dict[str, float]:
    """Return samples a second of the first pass and of later ones, by the clock and by processor time."""
    import torch
    from torch.utils.data import DataLoader

    import flatout

    torch.manual_seed(0)
    random.seed(0)
    if contender == "kept-directories":
        under_fix(contender)
    loader = DataLoader(Samples(kind, path, samples, kept=contender == "by hand"), batch_size=BATCH, shuffle=True)
    if contender == "compile_loader":
        loader = flatout.compile_loader(loader)
    found: dict[str, float] = {}
    for when in ("first", "later"):
        system, own = psutil.cpu_times(), psutil.Process().cpu_times()
        begun, taken = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds and not (when == "first" and taken >= samples):
            for batch in loader:
                taken += len(batch)
                if time.perf_counter() - begun >= seconds and contender != "compile_loader":
                    break
        spent = time.perf_counter() - begun
        now, now_own = psutil.cpu_times(), psutil.Process().cpu_times()
        own_s = sum(now_own[:4]) - sum(own[:4])
        found |= {when: taken / spent, f"{when}_cpu": taken / max(own_s, 1e-2)}
        found["foreign"] = (sum(now[:3]) - sum(system[:3]) - own_s) / spent
    return found


def in_process(contender: str, kind: str, path: Path, options: argparse.Namespace) -> dict[str, float] | None:
    words = [sys.executable, "-W", "ignore", __file__, "--contender", contender, kind, str(path)]
    words += ["--samples", str(options.samples), "--seconds", str(options.seconds)]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        print(f"{kind}, {contender} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="containers whose name has this word")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    parser.add_argument("--contender", nargs=3, metavar=("NAME", "KIND", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        contender, kind, path = options.contender
        print(json.dumps(measure(contender, kind, Path(path), options.samples, options.seconds)))
        return
    folder = Path(tempfile.gettempdir()) / f"flatout-containers-{options.samples}"
    folder.mkdir(exist_ok=True)
    kinds = [kind for kind in KINDS if options.only in kind and importlib.util.find_spec(KINDS[kind][4] or "numpy")]
    for kind in kinds:
        name, write, *_ = KINDS[kind]
        if not (folder / name).exists():
            write(folder / name, options.samples)
    time.sleep(4)  # a directory is kept once its file has rested for three seconds
    for kind in kinds:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
        for number in range(options.rounds):
            for name in CONTENDERS if number % 2 == 0 else reversed(CONTENDERS):
                one = in_process(name, kind, folder / KINDS[kind][0], options)
                found[name] += [one] if one is not None else []
        show(kind, found, options.record)


def show(kind: str, found: dict[str, list[dict[str, float]]], recorded: bool) -> None:
    print(f"{kind}: samples/s, medians of turns   first pass        later passes (range)   later, by CPU s   foreign")
    by_hand = statistics.median(one["later_cpu"] for one in found["by hand"])
    for name, each in found.items():
        if not each:
            continue
        first, later = statistics.median(one["first"] for one in each), sorted(one["later"] for one in each)
        middle, cpu = statistics.median(later), statistics.median(one["later_cpu"] for one in each)
        foreign = statistics.median(one["foreign"] for one in each)
        print(
            f"  {name:<18} {first:12,.0f} {middle:12,.0f} ({later[0]:,.0f} to {later[-1]:,.0f}, n={len(each)})"
            f" {cpu:12,.0f} ({cpu / by_hand:.2f} of by hand) {foreign:8.2f}",
            flush=True,
        )
        if recorded:
            more: dict[str, Any] = {"n": len(each), "n_of": "processes in turns", "unit": "samples/s"}
            cpus = sorted(one["later_cpu"] for one in each)
            note = f"{foreign:.1f} foreign cores"
            record(
                "containers",
                f"{kind}, {name}: later passes, by CPU s",
                cpu,
                low=cpus[0],
                high=cpus[-1],
                note=note,
                **more,
            )
    print(f"  goal: {GOAL:.0%} of by hand under flatout")


if __name__ == "__main__":
    main()
