"""One script on two ranks by flatout, by DistributedDataParallel written by hand, and in one process: seconds of each.

Five trainings of 320 steps, of benchmarks/ranks/ddp: the plain script in one process with two threads, the same one on
two ranks of one thread, and its version for DistributedDataParallel on two ranks of one thread, one after the other,
the order drawn by lot in each round. Time is that of the loop from its first step on, proofs and the trial of shared
input included. `beside`: how many other processes wanted a core when a round began, by the system's load.
"""

import os
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

from record import record

SCRIPTS = Path(__file__).resolve().parent / "ranks" / "ddp"
NAMES = ["mlp", "cnn", "transformer", "contrastive", "tabular"]
WAYS = {
    "one process": lambda name: [str(SCRIPTS / f"{name}.py")],
    "flatout": lambda name: ["-m", "flatout", "run", "--nproc-per-node", "2", str(SCRIPTS / f"{name}.py")],
    "by hand": lambda name: [
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        str(SCRIPTS / f"{name}_ddp.py"),
    ],
}


def seconds(name: str, way: str) -> tuple[float, str]:
    """Return what a training took, and what was said of it besides."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2" if way == "one process" else "1"}
    words = [sys.executable, *WAYS[way](name)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    found = re.search(r"seconds ([\d.]+)", done.stdout)
    if done.returncode or found is None:
        sys.exit(f"{name}, {way}\n{done.stdout}{done.stderr}")
    told = re.search(r"[\d.]+ s to prove it", done.stdout + done.stderr)
    return float(found[1]), told[0] if told else ""


def compare(names: list[str], rounds: int, *, recorded: bool) -> None:
    """Print for each training how fast it is on ranks, against one process and against what is written by hand."""
    for name in names:
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        told, beside = "", []
        for _ in range(rounds):
            beside.append(os.getloadavg()[0])
            for way in random.sample(list(WAYS), len(WAYS)):
                second, words = seconds(name, way)
                took[way].append(second)
                told = words or told
        print(f"{name:12} n={rounds} " + "  ".join(f"{way} {spread(of, 's')}" for way, of in took.items()), told)
        for other in ("one process", "by hand"):
            ratios = [theirs / ours for theirs, ours in zip(took[other], took["flatout"], strict=True)]
            print(f"{'':12} against {other}: {spread(ratios, 'x')}")
            if recorded:
                value, low, high = statistics.median(ratios), min(ratios), max(ratios)
                record("ranks_ddp", f"{name} against {other}", value, low=low, high=high, n=rounds,
                       n_of="pairs of runs", unit="x")  # fmt: skip
        print(f"{'':12} load beside {min(beside):.1f} to {max(beside):.1f}", flush=True)


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.2f}{unit} ({min(values):.2f} to {max(values):.2f})"
