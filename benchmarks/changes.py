"""Changes unseen: whether a compiled loader gives what the plain one gives while a script changes what it trains on.

Scripts do ordinary things to their data set, loader or batches while they train. Some are written by hand
(`changes/*_changes.py`), some composed by a seeded generator: where state lives, how it is changed, by whom, when, by
which loader, with how many workers. Each runs plain twice and compiled once, in processes of their own. Batches (bits,
strides, types, shared memory), order, random streams, counters, files and exceptions have to be equal. Where the data
set does not change it is told, too, whether batches came from memory. `--show` prints what was composed.

    python benchmarks/changes.py [--quick] [--only NAME] [--seed N] [--composed N] [--verbose] [--out FILE]
"""

import argparse
import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: a forked process has none of its threads
HERE = Path(__file__).resolve().parent
FOLDER = HERE / "changes"
sys.path.insert(0, str(FOLDER))

import torch
from composed import composed
from script_list import SCRIPTS
from verdicts import DIFFERS, LOUD, ORDER, SAME, TIMEOUT, UNSURE, verdicts

SERVED_GOAL, LOUD_GOAL = 0.75, 0.05


def written():
    """Return the scripts that are written by hand."""
    for path in sorted(FOLDER.glob("*_changes.py")):
        import_module(path.stem)
    return list(SCRIPTS.values())


def main() -> int:
    options = arguments()
    scripts = written() + composed(options.seed, options.composed)
    if options.show:
        print("\n".join(script.source or script.name for script in scripts if options.show in script.name))
        return 0
    if options.only:
        scripts = [script for script in scripts if any(name in script.name for name in options.only)]
    elif options.quick:
        scripts = scripts[::3]
    torch.set_num_threads(1)
    start = time.monotonic()
    lines, found = [f"{'script':44} {'verdict':17} {'served':10} {'plain, compiled':11}  what explain() says"], []
    print(lines[0], flush=True)
    for verdict in verdicts(scripts, options.jobs):
        found.append(verdict)
        lines.append(verdict.line())
        print(lines[-1], flush=True)
        for line in verdict.details() if options.verbose else ():
            print(f"    {line}", flush=True)
    lines += ["", *table(found), "", *totals(found)]
    where = f"torch {version('torch')}, {platform.machine()}, {os.cpu_count()} cores"
    lines.append(f"{time.monotonic() - start:.0f} s, seed {options.seed}; Python {platform.python_version()}, {where}")
    print("\n".join(lines[len(found) + 1 :]))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if all(line.endswith("met") for line in totals(found)) else 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every third script")
    parser.add_argument("--only", action="append", default=[], help="scripts whose name contains this")
    parser.add_argument("--seed", type=int, default=0, help="another seed composes other scripts")
    parser.add_argument(
        "--composed", type=int, default=180, help="scripts to compose, and a third more without a change"
    )
    parser.add_argument("--jobs", type=int, default=2, help="scripts that run at a time")
    parser.add_argument("--verbose", action="store_true", help="show the first record that differs")
    parser.add_argument("--show", help="print the source of composed scripts whose name contains this, and run nothing")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    return parser.parse_args()


def table(found):
    """Return counts by kind."""
    lines = [f"{'kind':34} {'scripts':>7} {'same':>5} {'differ':>6} {'loud':>5} {'other':>5} {'served':>9}"]
    for kind in sorted({verdict.script.kind for verdict in found}):
        of_kind = [verdict for verdict in found if verdict.script.kind == kind]
        num = {word: sum(verdict.verdict == word for verdict in of_kind) for word in ORDER}
        still = [verdict for verdict in of_kind if not verdict.script.changes]
        served = f"{sum(verdict.served for verdict in still)} of {len(still)}" if still else ""
        other = num[UNSURE] + num[TIMEOUT]
        lines.append(f"{kind:34} {len(of_kind):7} {num[SAME]:5} {num[DIFFERS]:6} {num[LOUD]:5} {other:5} {served:>9}")
    return lines


def totals(found):
    """Return each goal, with what came out."""
    num = {word: sum(verdict.verdict == word for verdict in found) for word in ORDER}
    still = [verdict for verdict in found if not verdict.script.changes]
    served = sum(verdict.served and verdict.verdict == SAME for verdict in still)
    rows = [
        (f"{num[DIFFERS]} of {len(found)} scripts differ without a word; goal 0", num[DIFFERS] == 0),
        (
            f"{num[LOUD]} of {len(found)} are late and loud; goal at most {LOUD_GOAL:.0%}",
            num[LOUD] <= LOUD_GOAL * len(found),
        ),
        (
            f"{served} of {len(still)} that do not change are served from memory, and the same; goal {SERVED_GOAL:.0%}",
            served >= SERVED_GOAL * len(still),
        ),
        (f"{num[UNSURE]} are not the same when run plain twice; goal 0", num[UNSURE] == 0),
        (f"{num[TIMEOUT]} took longer than the limit; goal 0", num[TIMEOUT] == 0),
    ]
    return [f"{text}: {'met' if met else 'MISSED'}" for text, met in rows]


if __name__ == "__main__":
    sys.exit(main())
