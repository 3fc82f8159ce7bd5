"""How often a tune keeps what brings nothing: real tunes in which every candidate does nothing and claims hits.

Two candidates a tune, or more, half of them switched inside one process, half between processes, on ordinary scripts
and with whatever else this machine is doing. A tune counts as a false win when its recipe holds any of them.

    python benchmarks/false_wins.py [--quick] [--tunes N] [--budget SECONDS] [--candidates N]
"""

import argparse
import datetime
import os
import statistics
from collections import Counter
from importlib.metadata import version
from itertools import cycle, islice

from tunes import SCRIPTS, bounds, tune

from flatout.machine import processor_name

GOAL = "goal: a recipe with any fix kept in <= 2% of >= 60 tunes"
FIXES = """
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


PHASES = (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.HOST)


def patch(site):
    site.outermost.each(lambda module: site.hit("module"), lambda module: None)


FIXES = tuple(
    Fix(name=name, equivalence=Equivalence.BITWISE, phases=PHASES, patch=patch, switchable=number % 2 == 0)
    for number, name in enumerate({names})
)
"""


def main() -> None:
    """Tune again and again, and count."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 tunes in place of 60")
    parser.add_argument("--tunes", type=int, default=0)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--candidates", type=int, default=2, help="of each tune; they share its error budget")
    options = parser.parse_args()
    number = options.tunes or (3 if options.quick else 60)
    names = [f"nothing-{each}" for each in range(options.candidates)]
    print(f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}, "
          f"{datetime.date.today()}, budget {options.budget:.0f} s, "
          f"{options.candidates} candidates a tune; {GOAL}")  # fmt: skip
    verdicts: Counter[str] = Counter()
    speedups: list[float] = []
    wins = failed = 0
    for count, script in enumerate(islice(cycle(SCRIPTS), number), start=1):
        tuned = tune(script, FIXES.format(names=names), names, options.budget)
        wins += bool(tuned.kept)
        failed += bool(tuned.error)
        verdicts.update(tuned.verdicts)
        speedups += tuned.speedups
        load = os.getloadavg()[0]
        print(f"{count:3d} {script:20s} {tuned.seconds:5.0f} s  load {load:.1f}  kept {tuned.kept or 'nothing'}  "
              f"{dict(Counter(tuned.verdicts))} {tuned.error}", flush=True)  # fmt: skip
    sound = number - failed
    low, high = bounds(wins, sound) if sound else (0.0, 1.0)
    print(f"\nfalse wins: {wins} of {sound} tunes, {100 * wins / max(1, sound):.1f}% "
          f"(95% interval {100 * low:.1f} to {100 * high:.1f}%); {failed} tunes failed")  # fmt: skip
    print(f"trials: {dict(verdicts)}")
    if len(speedups) > 1:
        logs = [abs(speedup - 1) for speedup in speedups]
        print(f"measured speed-up of nothing: median {statistics.median(speedups):.4f}, "
              f"median distance from 1: {100 * statistics.median(logs):.2f}%, largest {100 * max(logs):.1f}%, "
              f"n={len(speedups)} trials")  # fmt: skip


if __name__ == "__main__":
    main()
