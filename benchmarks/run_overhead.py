"""What `flatout run` costs: the same training by hand and under it, side by side, block by block.

Two processes of one script wait for their turn on stdin (which passes through `flatout run`) and time one block of
steps each time they are asked; which of the two goes first is drawn by lot for each pair. Both train on the same core,
so that one core's neighbours are not taken for a cost. One start gives one ratio, the mean over its pairs, since what
is done twice a second is in a third of the blocks; two processes of the very same command differ a little by where
their memory lies, so the interval is over starts, and a pair of plain processes shows what the method itself can tell.
Besides an empty recipe, with which nothing is attached, a recipe with one fix that does nothing shows what being
attached costs.

    python benchmarks/run_overhead.py [--quick] [--record]
"""

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from record import record

from flatout.analysis.judge import t_quantile
from flatout.engine.recipe import RECIPE_FILE, write_recipe
from flatout.machine import processor_name
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection

WORKLOADS = {"0.3 ms, no loader": (32, 16, 600, False), "10 ms, DataLoader": (1024, 144, 30, True)}
WAYS = ("by hand", "empty recipe", "idle fix")
GOAL = "goal: <= 0.5% with an empty recipe"

SCRIPT = """
import os, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path.append(sys.argv[1])
from overhead import training
hidden, batch, steps, loader = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "True"
loop = training(hidden, batch, loader)
for _ in range(2 * steps):
    next(loop)
print("ready", flush=True)
for line in sys.stdin:
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(steps):
        next(loop)
    wall, cpu = time.perf_counter_ns() - start, time.process_time_ns() - cpu
    print(wall / steps / 1e3, cpu / steps / 1e3, flush=True)
"""

IDLE = """
from flatout.fixes.core.fix import Fix
from flatout.schema.trial import Equivalence
def patch(site): ...
FIX = Fix(name="idle", equivalence=Equivalence.BITWISE, phases=(), patch=patch)
"""


def make_project(folder: Path) -> None:
    """Write the script, a fix that does nothing, and a recipe without and with it."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "idle_fix.py").write_text(IDLE)
    proof = Proof(date="", flatout="", python="", torch="", device="")
    idle = (Kept(selection=Selection("idle"), equivalence=Equivalence.BITWISE),)
    for name, fixes in (("empty recipe", ()), ("idle fix", idle)):
        (folder / name).mkdir()
        write_recipe(Recipe(script="train.py", fixes=fixes, proof=proof), folder / name / RECIPE_FILE)


def start(folder: Path, way: str, workload: str) -> subprocess.Popen[str]:
    """Start the script one of three ways and wait until it is warm."""
    arguments = [str(Path(__file__).parent), *(str(value) for value in WORKLOADS[workload])]
    under = [] if way == "by hand" else ["-m", "flatout", "run", "--recipe", f"{way}/{RECIPE_FILE}"]
    process = subprocess.Popen(
        [sys.executable, *under, "train.py", *arguments],
        cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"FLATOUT_EXTRA_FIXES": "idle_fix", "PYTHONPATH": str(folder)},
    )  # fmt: skip
    if process.stdout.readline() != "ready\n":
        sys.exit(f"{way}: {process.communicate()[1]}")
    return process


def block(process: subprocess.Popen[str]) -> tuple[float, ...]:
    """Let one block run; return the microseconds a step on the wall and on the processor."""
    process.stdin.write("go\n")
    process.stdin.flush()
    return tuple(map(float, process.stdout.readline().split()))


def one_start(folder: Path, way: str, workload: str, num_pairs: int, begin: Callable) -> tuple[float, float, float]:
    """Return the log ratios of `way` to the script by hand, wall and processor, and the latter's us a step."""
    by_hand, other = begin(folder, "by hand", workload), begin(folder, way, workload)
    ratios: tuple[list[float], list[float]] = ([], [])
    baseline = []
    try:
        for _ in range(num_pairs):
            order = [by_hand, other] if random.random() < 0.5 else [other, by_hand]
            took = {process.pid: block(process) for process in order}
            baseline.append(took[by_hand.pid][0])
            for found, one, two in zip(ratios, took[other.pid], took[by_hand.pid], strict=True):
                found.append(math.log(one / two))
    finally:
        for process in (by_hand, other):
            process.communicate()
    return statistics.mean(ratios[0]), statistics.mean(ratios[1]), statistics.median(baseline)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the mean of log ratios in percent, and its interval over starts."""
    mean = statistics.mean(ratios)
    width = t_quantile(0.975, len(ratios) - 1) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    low, middle, high = (100 * math.expm1(mean + sign * width) for sign in (-1, 0, 1))
    return middle, low, high


def told(ratios: list[float], step_us: float) -> str:
    """Return the mean of log ratios in percent and in us, with its interval over starts."""
    mean, low, high = interval(ratios)
    spread, us = statistics.stdev(ratios), step_us * mean / 100
    return f"{mean:+6.2f}% ({low:+.2f} to {high:+.2f}, spread {100 * spread:.2f}, {us:+.1f} us)"


def keep(case: str, walls: list[float], step_us: float, note: str = "") -> None:
    """Add what the wall shows to the history of the benchmark that was started."""
    name, more = Path(sys.argv[0]).stem, {"n": len(walls), "n_of": "starts", "note": note}
    mean, low, high = interval(walls)
    record(name, f"{case}: added to a step", mean, low=low, high=high, unit="%", **more)
    us, ends = step_us * mean / 100, {"low": step_us * low / 100, "high": step_us * high / 100}
    record(name, f"{case}: added to a step, us", us, **ends, unit="us", **more)


def main() -> None:
    compare_ways(WAYS, GOAL, start)


def compare_ways(ways: Sequence[str], goal: str, begin: Callable, note: Callable[[], str] = str) -> None:
    """Print a line for each workload and way; `note` adds what is known of the processes of the last line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="3 starts of 8 pairs in place of 12 of 30")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    options = parser.parse_args()
    starts, pairs = (3, 8) if options.quick else (12, 30)
    print(f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}")
    print(f"{starts} starts x {pairs} pairs of blocks; in brackets 95% interval over starts; {goal}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_project(folder)
        for workload in WORKLOADS:
            for way in ways:
                walls, cpus, steps_us = zip(
                    *(one_start(folder, way, workload, pairs, begin) for _ in range(starts)), strict=True
                )
                us = statistics.median(steps_us)
                print(f"{workload:18} {way:13} wall {told(list(walls), us)}  processor {told(list(cpus), us)}"
                      f"  n={starts}, {us:.0f} us a step{note()}", flush=True)  # fmt: skip
                if options.record:
                    keep(f"{workload}, {way}", list(walls), us, "`--quick`" if options.quick else "")


if __name__ == "__main__":
    main()
