"""How often a true gain is kept: trials drawn from noise that this machine makes now, and real tunes with a known gain.

First, ordinary trainings run untouched in one process each, and every step's time is kept. Trials are then cut out of
these recordings: starting anywhere, blocks and looks as in a tune, the candidate's blocks made shorter by a true gain
(1.00 for none). They share the recording, so they tell of this machine in these minutes, no more. Second, real tunes of
scripts whose steps waste a share of their own work, of which a fix removes as much as makes the wanted gain.

    python benchmarks/power.py [--quick] [--no-tunes | --no-trials]
"""

import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

from overhead import WORKLOADS, training
from tunes import SCRIPTS, bounds, tune

from flatout.analysis.blocks import candidate_first, stretch
from flatout.analysis.judge import allocate, compare
from flatout.analysis.statistics import block_mean
from flatout.machine import processor_name
from flatout.schema.order import TimingOrder
from flatout.schema.trial import Pair

GOALS = {1.0: "<= 2%", 1.05: ">= 60%", 1.1: ">= 90%", 1.2: ">= 99%"}
LOOKS = TimingOrder().looks
CANDIDATES = 10  # a tune offers about so many, and each gets its share of the error budget
BLOCK_S, SKIP = 0.25, 2
WASTED = 0.3  # as in tunes.SCRIPTS

INJECTED = """
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


def patch(site, rest: float):
    def make(original):
        def spin(seconds):
            site.hit("waiting.spin")
            original(seconds * rest)
        return spin
    site.wrap("waiting:spin", make)


FIX = Fix(
    name="injected-gain", equivalence=Equivalence.BITWISE, phases=(Phase.HOST,), patch=patch, switchable={switchable},
    choices=lambda run: ({{"rest": {rest}}},),
)
"""


# -- trials out of recorded steps -----------------------------------------------------------------------------------


def record(name: str, seconds: float) -> None:
    """Train for a while and print every step's milliseconds as JSON."""
    import time

    hidden, batch, _, _, loader = WORKLOADS[name]
    loop = training(hidden, batch, loader)
    for _ in range(50):
        next(loop)
    walls, end = [], time.perf_counter() + seconds
    before = time.perf_counter()
    while before < end:
        next(loop)
        now = time.perf_counter()
        walls.append((now - before) * 1e3)
        before = now
    os.write(1, json.dumps([round(wall, 4) for wall in walls]).encode())


def trial(walls: Sequence[float], start: int, gain: float, alpha: float, seed: float) -> tuple[str, int]:
    """Return the decision of one trial that begins at step `start`, and its pairs; `walls` is the recording twice."""
    usual = max(4, round(BLOCK_S * 1e3 / statistics.median(walls[start : start + 50])))
    position, pairs = start, []
    for number in range(max(LOOKS)):
        steps = max(4, round(usual * stretch(number, seed)))
        means = []
        for _ in range(2):
            position = (position + SKIP) % (len(walls) // 2)
            means.append(block_mean(walls[position : position + steps]))
            position += steps
        first, second = means
        baseline, candidate = (second, first) if candidate_first(number, seed) else (first, second)
        pairs.append(Pair(baseline, candidate / gain))
        decision = compare(pairs, alpha=alpha, looks=LOOKS).decision
        if decision:
            return decision, len(pairs)
    return "undecided", len(pairs)


def trials(seconds: float, number: int) -> None:
    """Print how often a gain is kept in trials cut out of fresh recordings."""
    alpha = allocate([2.0] * CANDIDATES)[0]
    print(f"\ntrials out of {seconds:.0f} s of steps each, alpha {alpha}, n={number} trials a figure")
    for name in WORKLOADS:
        command = [sys.executable, __file__, "--record", name, "--seconds", str(seconds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent)
        walls = json.loads(done.stdout)
        block = max(4, round(BLOCK_S * 1e3 / statistics.median(walls)))
        means = [block_mean(walls[at : at + block]) for at in range(0, len(walls) - block, block)]
        spread = statistics.stdev(means) / statistics.mean(means)
        told, twice = [], [*walls, *walls]
        for gain, goal in GOALS.items():
            generator = random.Random(gain)
            results = [
                trial(twice, generator.randrange(len(walls)), gain, alpha, generator.random()) for _ in range(number)
            ]
            kept = 100 * sum(decision == "faster" for decision, _ in results) / len(results)
            pairs = statistics.mean(count for _, count in results)
            told.append(f"x{gain:.2f} kept {kept:5.1f}% ({goal}) after {pairs:.0f} pairs")
        print(f"{name:20s} block spread {100 * spread:4.1f}%  " + "  ".join(told), flush=True)


# -- real tunes -----------------------------------------------------------------------------------------------------


def tunes(number: int, budget_s: float) -> None:
    """Print how often a real tune keeps a fix with a known gain."""
    print(f"\nreal tunes, budget {budget_s:.0f} s")
    for gain in (1.05, 1.1, 1.2):
        kept, sound, measured = 0, 0, []
        for count, script in enumerate(islice(cycle(SCRIPTS), number)):
            rest = ((1 + WASTED) / gain - 1) / WASTED
            fixes = INJECTED.format(rest=rest, switchable=count % 2 == 0)
            tuned = tune(script, fixes, ["injected-gain"], budget_s)
            kept += bool(tuned.kept)
            sound += not tuned.error
            measured += tuned.speedups
            print(f"  x{gain:.2f} {script:20s} {'inside' if count % 2 == 0 else 'between'} {tuned.seconds:4.0f} s "
                  f"{tuned.verdicts} {[round(each, 3) for each in tuned.speedups]} {tuned.error}",
                  flush=True)  # fmt: skip
        low, high = bounds(kept, sound) if sound else (0.0, 1.0)
        middle = f", median measured x{statistics.median(measured):.3f}" if measured else ""
        print(f"x{gain:.2f} kept {kept} of {sound} ({GOALS[gain]}; 95% interval {100 * low:.0f} to {100 * high:.0f}%)"
              f"{middle}; {number - sound} tunes failed", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 s recordings, one tune a gain")
    parser.add_argument("--no-tunes", action="store_true")
    parser.add_argument("--no-trials", action="store_true")
    parser.add_argument("--number", type=int, default=0, help="real tunes a gain")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds a tune")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.record, options.seconds)
        return
    print(f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}, "
          f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    if not options.no_trials:
        trials(25.0 if options.quick else 240.0, 300 if options.quick else 2000)
    if not options.no_tunes:
        tunes(options.number or (1 if options.quick else 20), options.budget)


if __name__ == "__main__":
    main()
