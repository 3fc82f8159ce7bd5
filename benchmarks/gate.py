"""How sound `flatout compare A B --limit` is: equal programs compared, and ones that are slower by 3, 5 and 10 %.

Code against code (`flatout compare A B -- train.py`): in each round every variant is started once beside A, in an order
drawn by lot, as the command starts them. Comparisons are then drawn from these starts: the first look at some of them,
the second at more where the first did not tell, as in the command. With --recordings, recordings against recordings:
each is a process of its own, made by `flatout diagnose --whole`; K of A against K others, all within neighbouring
rounds. Comparisons share starts or recordings; their number says how many were drawn, not how many are independent:
that is the number of starts or recordings, printed beside it.

    python benchmarks/gate.py [--quick] [--rounds N] [--only SCRIPT] [--recordings [--each K]]
"""

import argparse
import datetime
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from flatout.analysis.difference import difference, judge_limit
from flatout.analysis.judge import compare
from flatout.analysis.start_comparison import Start, of_starts
from flatout.cli.recordings import find_recording, read_report
from flatout.engine.compare_versions import LOOKS, are_enough, pace_of, pairs_in, target_in
from flatout.engine.trial.block_results import Measured, enough
from flatout.engine.trial.timing import Bench
from flatout.machine import processor_name
from flatout.schema.difference import Difference
from flatout.schema.report import Report

SLOWER = {"A": 0.0, "A again": 0.0, "+3%": 0.03, "+5%": 0.05, "+10%": 0.1}
GOALS = {"A again": (0.0, 0.01), "+3%": (0.5, 1.0), "+5%": (0.85, 1.0), "+10%": (0.99, 1.0)}  # share called slower
LIMIT = 0.01  # the finest: what is within it passes, the rest is for noise to hide
EPOCHS = 40  # where code stands beside code: a start needs longer than a recording
NEIGHBOURS = 2  # comparisons are drawn from so many times the recordings that they need

SCRIPTS = {  # name: (hidden units, batch, milliseconds of NumPy work a batch in the data set, steps)
    "compute": (512, 128, 0, 600),
    "input": (128, 64, 8, 250),
}

TRAINING = """
import sys
import time
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

HIDDEN, BATCH, INPUT_MS, STEPS, EPOCHS = {values}
SLOWER = float(sys.argv[1])


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Rows(Dataset):
    def __init__(self):
        self.rows = numpy.random.default_rng(0).standard_normal((BATCH * STEPS, 64)).astype("float32")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if INPUT_MS:
            before = time.perf_counter()
            while time.perf_counter() - before < INPUT_MS / 1e3 / BATCH:
                numpy.sort(self.rows[index])
        return torch.from_numpy(self.rows[index]), index % 10


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Rows(), batch_size=BATCH, shuffle=True)
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            spin(SLOWER * (time.perf_counter() - start))
            start = time.perf_counter()


if __name__ == "__main__":
    main()
"""


# -- code against code ----------------------------------------------------------------------------------------------


def write_checkout(folder: Path, script: str, slower: float) -> Path:
    """Write one version of the program; return its folder."""
    folder.mkdir()
    text = TRAINING.format(values=(*SCRIPTS[script], EPOCHS))
    (folder / "train.py").write_text(text.replace("float(sys.argv[1])", str(slower)))
    return folder


def record_starts(script: str, rounds: int) -> tuple[Difference, dict[str, list[Start]]]:
    """Return what a recording says of A, and the starts of A beside every variant, one a round."""
    made: dict[str, list[Start]] = {name: [] for name in GOALS}
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "recorded").mkdir()
        report = record(top / "recorded", script, 0.0)
        before = target_in(write_checkout(top / "A", script, 0.0), ("train.py",))
        after = {
            variant: target_in(write_checkout(top / f"B{number}", script, SLOWER[variant]), ("train.py",))
            for number, variant in enumerate(GOALS)
        }
        pace = pace_of([report, report])
        pairs = pairs_in(pace)
        for number in range(rounds):
            for variant in generator.sample(list(GOALS), len(GOALS)):
                bench = Bench(before, top / "starts", lambda steps: None, pace, other=after[variant])
                measured, swap = Measured(), number % 2 == 1
                bench.side_by_side((), (), measured, looks=(pairs,), decide=enough(pairs), max_s=120, swap=swap)
                if measured.failure:
                    raise SystemExit(f"{script}, {variant}: {measured.failure.reason}")
                made[variant].append(Start(tuple(measured.pairs), tuple(measured.phases)))
        return difference([report], [report]), made


def draw_starts(described: Difference, starts: list[Start], generator: random.Random) -> tuple[bool | None, float]:
    """Return the verdict and the ratio of one comparison, as `flatout compare` comes to it."""
    drawn = generator.sample(starts, min(max(LOOKS), len(starts)))
    number = next(look for look in LOOKS if are_enough(described, drawn[:look], LIMIT))
    found = of_starts(described, drawn[:number], looks=len(LOOKS))
    return judge_limit(found, LIMIT).passed, found.ratio


def show_starts(script: str, rounds: int, number: int) -> None:
    """Print how often the gate says what of code beside code."""
    described, made = record_starts(script, rounds)
    pairs = statistics.median(len(start.pairs) for start in made["A again"])
    ratios = [1 / compare(start.pairs, alpha=0.01, looks=()).speedup for start in made["A again"]]
    print(
        f"\n{script}, code beside code: a step takes {described.before_ms:.2f} ms, ratios of equal programs scatter by "
        f"{statistics.stdev(ratios):.1%} from start to start (n={rounds}), up to {max(LOOKS)} starts of {pairs} pairs "
        f"a comparison, n={number} comparisons",
        flush=True,
    )
    generator = random.Random(1)
    show(number, lambda name: draw_starts(described, made[name], generator))


# -- recordings against recordings ----------------------------------------------------------------------------------


def record(folder: Path, script: str, slower: float) -> Report:
    """Return the recording of one whole training."""
    file = folder / "train.py"
    file.write_text(TRAINING.format(values=(*SCRIPTS[script], 1)))
    out = folder / "out" / str(time.monotonic_ns())
    command = [sys.executable, "-m", "flatout", "diagnose", "--whole", "--out", str(out), "train.py", str(slower)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return read_report(find_recording(out))


def recordings(script: str, rounds: int) -> dict[str, list[Report]]:
    """Return the recordings of every variant, one a round."""
    made: dict[str, list[Report]] = {name: [] for name in SLOWER}
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name in generator.sample(list(SLOWER), len(SLOWER)):
                made[name].append(record(Path(folder), script, SLOWER[name]))
    return made


def draw(made: dict[str, list[Report]], name: str, each: int, generator: random.Random) -> tuple[bool | None, float]:
    """Return the verdict and the ratio of one comparison: of equal programs, both sides come from either variant."""
    rounds = len(made["A"])
    width = min(rounds, NEIGHBOURS * each)
    first = generator.randrange(rounds - width + 1)
    before = made["A"][first : first + width]
    if name == "A again":
        both = generator.sample(before + made[name][first : first + width], 2 * each)
        sides = both[:each], both[each:]
    else:
        sides = generator.sample(before, each), generator.sample(made[name][first : first + width], each)
    found = difference(*sides)
    return judge_limit(found, LIMIT).passed, found.ratio


def spread(reports: list[Report]) -> float:
    """Return the standard deviation of the recordings' mean steps, as a share of their mean."""
    means = [report.breakdown.mean_ms for report in reports]
    return statistics.stdev(means) / statistics.fmean(means)


def show_recordings(script: str, rounds: int, each: int, number: int) -> None:
    """Print how often the gate says what of recordings."""
    made = recordings(script, rounds)
    usual = made["A"] + made["A again"]
    middle_ms = statistics.median(report.breakdown.mean_ms for report in usual)
    print(
        f"\n{script}, recordings: a step takes {middle_ms:.2f} ms, "
        f"recordings scatter by {spread(usual):.1%} (n={len(usual)}), {each} on each side, n={number} comparisons",
        flush=True,
    )
    generator = random.Random(1)
    show(number, lambda name: draw(made, name, each, generator))


def show(number: int, compared: Callable[[str], tuple[bool | None, float]]) -> None:
    """Print a line for each variant: what `number` comparisons said, beside the goal."""
    for name, (low, high) in GOALS.items():
        drawn = [compared(name) for _ in range(number)]
        told = Counter(verdict for verdict, _ in drawn)
        ratios = [ratio for _, ratio in drawn]
        word = "met" if low <= told[False] / number <= high else "MISSED"
        print(
            f"  {name:8s} red {told[False] / number:6.1%}  green {told[True] / number:6.1%}  "
            f"cannot be told {told[None] / number:6.1%}   red {low:.0%} to {high:.0%} asked: {word}   "
            f"ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}",
            flush=True,
        )


def main() -> None:
    """Print the verdicts on equal and on slower programs beside their goals."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one script, 14 rounds; of recordings 6, 2 on each side")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", choices=SCRIPTS, action="append", help="this script")
    parser.add_argument("--recordings", action="store_true", help="compare recordings, in place of code")
    parser.add_argument("--each", type=int, default=0, help="recordings on each side of a comparison")
    options = parser.parse_args()
    print(
        f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}, "
        f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}, limit {LIMIT:.0%}"
    )
    for script in options.only or list(SCRIPTS)[: 1 if options.quick and not options.recordings else None]:
        if options.recordings:
            each = options.each or (2 if options.quick else 5)
            show_recordings(script, options.rounds or (6 if options.quick else 40), each, 200)
        else:
            show_starts(script, options.rounds or (14 if options.quick else 30), 200)


if __name__ == "__main__":
    main()
