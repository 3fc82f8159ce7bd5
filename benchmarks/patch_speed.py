"""Whether a script that `flatout patch` has written into is as fast as the untouched one under the recipe.

For each script, the fixes of one class that can be written into it are written (the sets of patches.py). Then two
processes train side by side, in turns, as in a trial: the untouched script under these fixes, and the patched one
without flatout. The figure is the time of a patched step over that of one under the recipe; its interval is over pairs
of blocks. A script with a loader is recorded before, as a tune does: `flatout patch` leaves worker processes out where
the recorded passes are short beside what starting them takes. That is said. Where a fix did not act under the recipe
(each decides on the spot whether it pays), the two train differently: that is said, and not counted. What no seam tells
of (the allocator, the number of threads) is left out. Two plain processes of each script, one in a folder of its own,
show what the method can tell. Where the program has no workers, both train on one core, in short blocks
(`engine/compare_versions.py`). What comes out above the goal is started again, and the interval is over starts:
three to six, until it lies on one side of the goal. If their mean stays above, the untouched script under the fixes is
held against itself without, with starts in the same way: what is slower there beyond noise stands in no recipe, is
marked so, and is not counted. Both sides train as a training does, first passes over the data included (a trial shows
later ones at once, by repeating rows). The trainings of honest/, most of which end within a second or two, have 20
times their epochs on both sides.

    python benchmarks/patch_speed.py [--quick] [--only SCRIPT] [--out FILE]
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from patches import NEEDS, NO_TRAINING, SETTINGS, TOGETHER, is_run, patched, scripts, source_of

from flatout.analysis.breakdown import account
from flatout.analysis.judge import compare
from flatout.cli.recordings import find_recording
from flatout.cli.source_changes import recorded_loaders
from flatout.engine.compare_versions import target_in
from flatout.engine.trial.block_results import Measured, enough
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.timing import Bench
from flatout.schema.codec import read_run
from flatout.schema.trial import Pair, Selection

GOAL, FEWEST = 1.05, 3  # fewer pairs of blocks say nothing
UNSEEN = ("allocator", "cpu-threads")
MAX_S, STARTS = 20.0, (3, 6)  # of one comparison; starts of one that is made again, at least and at most
PACE, PAIRS = Pace(step_s=0.02, skip=8), 12
ON_ONE_CORE, SHORT_PAIRS = Pace(step_s=0.02, block_s=0.1, turn_s=0.1, cores=tuple(os.sched_getaffinity(0))), 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the twelve scripts that patches.py --quick runs")
    parser.add_argument("--only", action="append", default=[], help="scripts of this name")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lines = [f"{'script':22} {'class':24} {'patched / recipe':>16}  95% interval  n         fixes"]
    print(lines[0])
    found = []
    for name, entry, root in scripts():
        wanted = name in options.only if options.only else is_run(name, entry, quick=options.quick)
        if not wanted or entry.parent.name in NO_TRAINING or entry.name == "__main__.py":
            continue
        for line, told in measured_of(name, entry, root):
            lines.append(line)
            print(line, flush=True)
            if told is not None:
                found.append(told)
    slow = sum(told.low > GOAL for told in found)
    ratios = [told.speedup for told in found]
    middle = f"median {statistics.median(ratios):.3f}, largest {max(ratios):.3f}" if found else "nothing measured"
    above = f"above {GOAL}: {sum(ratio > GOAL for ratio in ratios)}, beyond its interval: {slow}"
    where = f"Python {platform.python_version()}, torch {version('torch')}, {platform.machine()}, {os.cpu_count()} CPUs"
    lines.append(f"{len(found)} comparisons, {middle}; {above}. {where}")
    print(lines[-1])
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if slow else 0


def measured_of(name, entry, root):
    """Yield a line and what is counted of it: not plain processes, too few pairs, or fixes that did not act."""
    yield line_of(name, "plain beside plain", entry, root, (), ())[0], None
    known = ()
    for kind, names in TOGETHER.items():
        applied = [fix for fix in names if fix not in UNSEEN and re.search(NEEDS[fix], source_of(entry, root))]
        if "loader-workers" in applied and not known:
            known = recorded(entry)
        outcomes = patched(entry, root, applied, *known)[2]
        used = [outcome.label.split()[0] for outcome in outcomes if outcome.changed]
        for short in (left for outcome in outcomes for left in outcome.left if "a pass takes" in left):
            yield f"{name:22} {kind:24} {'-':>16}  not written: {short.partition(': ')[2]}", None
        if used:
            fixes = [Selection(fix, SETTINGS.get(fix, {})) for fix in used]
            yield line_of(name, kind, entry, root, used, fixes, known)


def recorded(entry):
    """Return what a recording of a script says of its loaders, and how long a step takes; nothing where it fails."""
    with tempfile.TemporaryDirectory(prefix="patch-speed-") as top:
        command = ["-m", "flatout", "diagnose", "--budget", "20s", "--out", top, str(entry)]
        done = subprocess.run([sys.executable, *command], cwd=top, capture_output=True, text=True, timeout=120)
        if done.returncode:
            return ()
        run = read_run(find_recording(Path(top)))
        return recorded_loaders(run), account(run).median_ms / 1e3


def line_of(name, kind, entry, root, used, fixes, known=()):
    """Return the line of one comparison, and its ratio and interval where it counts."""
    with tempfile.TemporaryDirectory(prefix="patch-speed-") as top:
        sides = []
        for side, fixes_in in (("untouched", ()), ("patched", used)):
            _, after, _, _ = patched(entry, root, fixes_in, *known)
            folder = Path(top) / side
            for source in after.sources:
                place = folder / source.path.relative_to(root.resolve())
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(lengthened(source.code) if root.name == "honest" else source.code)
            sides.append(target_in(folder, (entry.name,)))
        has_workers = "loader-workers" in used or re.search(r"num_workers=[1-9]", source_of(entry, root))
        pace, pairs = (PACE, PAIRS) if has_workers else (ON_ONE_CORE, SHORT_PAIRS)
        bench = Bench(sides[1], Path(top) / "trials", lambda steps: None, pace, other=sides[0], as_trained=True)
        plain = Bench(sides[0], Path(top) / "plain", lambda steps: None, pace, other=sides[0], as_trained=True)
        starts = timed(bench, fixes, pairs, GOAL, lambda first: not (used and is_slow([first], used)))
        slow = used and is_slow(starts, used)
        gain = of_starts(timed(plain, fixes, pairs, 1.0, lambda first: False)) if slow else None
    if not starts[0].pairs:
        failure = starts[0].failure
        reason = failure.reason if failure else starts[0].reason or "no pair in time"
        return f"{name:22} {kind:24} {'-':>16}  {reason}", None
    told = of_starts(starts)
    words = [fix if acted_in(starts[0], [fix]) else f"{fix} (did not act)" for fix in used]
    interval = f"{told.low:.3f} to {told.high:.3f}"
    number = f"{len(starts)} starts" if len(starts) > 1 else f"{len(told.pairs)} pairs"
    line = f"{name:22} {kind:24} {told.speedup:16.3f}  {interval:14} {number:8}  {', '.join(words)}"
    kept = gain is None or gain.high > 1
    line += "" if kept else f" (in no recipe: {gain.speedup:.2f}x, {gain.low:.2f} to {gain.high:.2f})"
    return line, told if acted_in(starts[0], used) and len(told.pairs) >= FEWEST and kept else None


def lengthened(code):
    """Return the script with 20 times the epochs (or steps) of its training loop."""
    return re.sub(rb"(?m)^( *for (?:epoch|step) in range\()(\d\d+)\):", rb"\g<1>20 * \2):", code)


def timed(bench, fixes, pairs, goal, one_is_enough):
    """Return what each start measured: the first where `one_is_enough`, else so many that the mean is on one side."""
    starts = []
    while len(starts) < STARTS[1]:
        measured, swap = Measured(), len(starts) % 2 == 1
        bench.side_by_side((), fixes, measured, looks=(pairs,), decide=enough(pairs), max_s=MAX_S, swap=swap)
        starts.append(measured)
        if len(starts) == 1 and (not measured.pairs or one_is_enough(measured)):
            break
        told = of_starts([each for each in starts if each.pairs])
        if len(starts) >= STARTS[0] and not told.low <= goal <= told.high:
            break
    return [each for each in starts if each.pairs] or starts[:1]


def of_starts(starts):
    """Return how many times as long as the second side's a step of the first takes; several starts are one value each.

    Starts of one program differ by more than their blocks do: 0.92, 1.00 and 1.10 of intervals of 0.04 (n=3).
    """
    if len(starts) == 1:
        return compare(starts[0].pairs, alpha=0.05, looks=())
    ratios = [compare(each.pairs, alpha=0.05, looks=()).speedup for each in starts]
    return compare([Pair(ratio, 1.0) for ratio in ratios], alpha=0.05, looks=())


def is_slow(starts, used):
    """Return whether a patched step takes longer than the goal allows, where the fixes acted."""
    return acted_in(starts[0], used) and of_starts(starts).speedup > GOAL


def acted_in(measured, used):
    """Return whether there are pairs, and all of these fixes did something in them."""
    acted = {hit.partition(":")[0] for hit, number in measured.hits.items() if number}
    return bool(measured.pairs) and acted.issuperset(used)


if __name__ == "__main__":
    raise SystemExit(main())
