"""Checkpoints written under fixes, taken up by the plain script.

Each of three small trainings runs plainly and under every fix alone and under random combinations of them, through the
same order that `flatout run` gives a script. Then the plain script loads what was saved. Asked of every checkpoint:

- it loads (`weights_only=True`), and the model saved whole loads too
- keys, shapes, types, strides, devices and everything that is no tensor (optimizer flags, learning rates, counters of
  the scheduler) equal those of the plain script's own checkpoint
- training goes on from it; where every fix of a combination promises BITWISE, the checkpoint and the one that is
  reached from it equal the plain script's to the last bit, the state of the random generator included

What a fix did is read from what the process wrote: a fix that could not act in any of the three trainings (nothing to
do on this machine) is listed as such and tests nothing.

    python benchmarks/checkpoints.py --quick
    python benchmarks/checkpoints.py --out FILE
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "checkpoints" / "train.py"
SOURCE = HERE.parent / "src"
KINDS = ("images", "tables", "sequences")
SETTINGS: dict[str, tuple[dict[str, object], ...]] = {  # of each fix that has some; the others are tried as they are
    "compiled-module": ({"mode": "default"},),
    "core-split": ({"workers": 1, "threads": 1},),
    "cpu-threads": ({"threads": 2},),
    "fused-optimizer": ({"implementation": "fused"}, {"implementation": "foreach"}),
    "loader-workers": ({"workers": 2}, {"workers": 2, "persistent": True}),
}
LIMIT_S = 600
ACTS = "acts.jsonl"


@dataclass
class Case:
    """One training under some fixes, and what was found."""

    kind: str
    selections: tuple[tuple[str, dict[str, object]], ...]
    bitwise: bool
    folder: Path
    problems: list[str] = field(default_factory=list)
    acted: set[str] = field(default_factory=set)
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        named = [
            " ".join([fix, *(f"{key}={value}" for key, value in settings.items())]) for fix, settings in self.selections
        ]
        return f"{self.kind:9} {' + '.join(named) or 'plain'}"


def run(case: Case) -> None:
    """Train under the fixes of `case` and save."""
    from flatout.fixes.core.catalog import find_fix
    from flatout.schema.codec import write_order
    from flatout.schema.order import ORDER_VARIABLE, Order
    from flatout.schema.trial import Selection

    (case.folder / "parts").mkdir(parents=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}
    if case.selections:
        selections = tuple(Selection(fix, settings) for fix, settings in case.selections)
        order = Order(mode="run", folder=str(case.folder), script="train.py", protect_files=False, fixes=selections)
        write_order(order, case.folder / "order.json")
        for fix, _ in case.selections:
            environment = {**find_fix(fix).environment, **environment}
        environment["PYTHONPATH"] = os.pathsep.join((str(SOURCE / "flatout" / "inject"), str(SOURCE)))
        environment[ORDER_VARIABLE] = str(case.folder / "order.json")
    command = [sys.executable, str(SCRIPT), "train", case.kind, str(case.folder)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        case.problems.append(f"ran longer than {LIMIT_S} s")
        return
    if done.returncode:
        case.problems.append(f"exit status {done.returncode}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    note_acts(case)


def note_acts(case: Case) -> None:
    """Read which fixes did something, and which were dropped."""
    acts = case.folder / ACTS
    for line in acts.read_text().splitlines() if acts.exists() else ():
        for site in json.loads(line)["sites"]:
            name = site["fix"].split()[0]
            if site["hits"]:
                case.acted.add(name)
            if site["failure"]:
                case.dropped[name] = site["failure"]


def alone(folder: Path, only: str) -> list[Case]:
    """Return the plain trainings and every fix alone."""
    from flatout.fixes.core.catalog import fixes

    tried = [fix for fix in fixes() if only in fix.name and not fix.on_request]  # those make another training
    chosen = [(fix.name, settings) for fix in tried for settings in SETTINGS.get(fix.name, ({},))]
    plan = [(kind, each) for each in [(), *((one,) for one in chosen)] for kind in KINDS]
    return [case(kind, each, folder / f"alone{number:03}") for number, (kind, each) in enumerate(plan)]


def combined(folder: Path, number: int, acted: list[str], seed: int) -> list[Case]:
    """Return random combinations of two to five fixes of those that `acted` alone, in turn for each training."""
    draw = random.Random(seed)
    found = []
    for at in range(number if len(acted) > 1 else 0):
        names = draw.sample(acted, min(len(acted), draw.randint(2, 5)))
        each = tuple((name, draw.choice(SETTINGS.get(name, ({},)))) for name in names)
        found.append(case(KINDS[at % len(KINDS)], each, folder / f"combined{at:03}"))
    return found


def case(kind: str, selections: tuple[tuple[str, dict[str, object]], ...], folder: Path) -> Case:
    """Return one case; it is held to the last bit where every one of its fixes promises that."""
    from flatout.fixes.core.catalog import find_fix
    from flatout.schema.trial import Equivalence

    bitwise = all(find_fix(name).equivalence is Equivalence.BITWISE for name, _ in selections)
    return Case(kind, selections, bitwise, folder)


def run_all(group: list[Case], jobs: int) -> list[Case]:
    """Run `group`, several at a time, and say on standard error how it goes."""
    with ThreadPoolExecutor(jobs) as pool:
        for number, _ in enumerate(pool.map(run, group)):
            one = group[number]
            print(f"{number + 1:3}/{len(group)} {one.label}  {'; '.join(one.problems)}", file=sys.stderr, flush=True)
    return group


def go_on(kind: str, group: list[Case]) -> None:
    """Let the plain script load the checkpoints of `group`, the plain one first, and train on from each."""
    folders = [str(case.folder) for case in group]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, str(SCRIPT), "compare", kind, *folders]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(found) != len(group):
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        group[min(len(found), len(group) - 1)].problems.append(f"the plain script failed: {last}")
    for case, one in zip(group, found, strict=False):
        case.problems += one["form"]
        if case.bitwise:
            case.problems += one["bits"]


def report(done: list[Case], wall_s: float) -> str:
    """Return the result as text."""
    acted = {name for case in done for name in case.acted}
    tried = {name for case in done for name, _ in case.selections}
    alone = [case for case in done if len(case.selections) == 1]
    combined = [case for case in done if len(case.selections) > 1]
    bitwise = [case for case in done if case.bitwise and case.selections]
    idle = [case for case in done if case.selections and not case.acted]
    lines = [
        f"machine    {platform.machine()}, {os.cpu_count()} cores, torch {metadata.version('torch')}, "
        f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d', time.gmtime())}",
        f"trainings  n = {len(done)}: {len(done) - len(alone) - len(combined)} plain, {len(alone)} under one fix, "
        f"{len(combined)} under two to five; {len(bitwise)} of them BITWISE; in {len(idle)} no fix had anything to do",
        f"fixes      {len(tried)}, of which acted here: {', '.join(sorted(acted)) or 'none'}",
        f"           did not act here: {', '.join(sorted(tried - acted)) or 'none'}",
        f"failures   {sum(bool(case.problems) for case in done)} of {len(done)}   ({wall_s:.0f} s)",
    ]
    for case in done:
        lines += [f"  {case.label}: {problem}" for problem in case.problems[:4]]
    dropped = {f"{name}: {why}" for case in done for name, why in case.dropped.items()}
    return "\n".join(lines + [f"  dropped: {each}" for each in sorted(dropped)])


def main() -> int:
    """Run all cases and print what was found."""
    parser = argparse.ArgumentParser(description="Checkpoints written under fixes, taken up by the plain script.")
    parser.add_argument("--quick", action="store_true", help="5 combinations in place of 50")
    parser.add_argument("--only", default="", help="fixes whose name contains this, and no combinations")
    parser.add_argument("--seed", type=int, default=0, help="of the combinations")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--out", type=Path, help="file for the result")
    options = parser.parse_args()
    sys.path.insert(0, str(SOURCE))
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        done = run_all(alone(Path(name), options.only), options.jobs)
        acted = sorted({name for each in done for name in each.acted})
        number = 0 if options.only else 5 if options.quick else 50
        done += run_all(combined(Path(name), number, acted, options.seed), options.jobs)
        for kind in KINDS:
            go_on(kind, [each for each in done if each.kind == kind and not each.problems])
    text = report(done, time.monotonic() - start)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return int(any(case.problems for case in done))


if __name__ == "__main__":
    raise SystemExit(main())
