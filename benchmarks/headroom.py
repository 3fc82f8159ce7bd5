"""Whether the ceilings that flatout measures by holding the input are what scripts without that work really come to.

Each script is ordinary but for its input, which takes a stated share of the step: in reading, in transforms that are
always the same, in random ones, in the collate function. `flatout diagnose` holds the input at one place after the
other in turns with the script as it is, and draws from the loader alone. The truth: the same script, changed by hand so
that it does without the work before that place (or without the training), timed by its own stopwatch against the script
as it is, in processes that follow each other in turns.

    python benchmarks/headroom.py [--quick] [--rounds N] [--only KIND]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flatout.analysis.headroom_stages import left_between
from flatout.engine.diagnose import Limits, diagnose
from flatout.engine.process.target import parse_target
from flatout.machine import processor_name
from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_RAW, HELD_SAMPLES, LOADER_ALONE

GOAL = "goal: the ceiling within 10% of the truth in the median, within 25% in nine cases of ten"
STEP_S = 0.012
SHARES, QUICK_SHARES = (0.1, 0.3, 0.5, 0.8), (0.3, 0.8)
KINDS = {  # name: (loader workers, how time is spent, parts of it: reading, fixed, random transforms, collate)
    "samples wait": (0, "time.sleep", (1, 0, 0, 0)),
    "samples compute": (0, "spin", (1, 0, 0, 0)),
    "mostly reading": (0, "spin", (0.6, 0.1, 0.2, 0.1)),
    "mostly fixed transforms": (0, "spin", (0.1, 0.6, 0.2, 0.1)),
    "mostly random transforms": (0, "spin", (0.1, 0.2, 0.6, 0.1)),
    "mostly collate": (0, "spin", (0.2, 0.1, 0.1, 0.6)),
    "collate computes": (0, "spin", (0, 0, 0, 1)),
    "one worker, waits": (1, "time.sleep", (1, 0, 0, 0)),
    "one worker, computes": (1, "spin", (1, 0, 0, 0)),
    "a stream that waits": (0, "time.sleep", (1, 0, 0, 0)),
    "a stream of one worker": (1, "spin", (1, 0, 0, 0)),
}
"""With a worker the input takes as long as the rest of the step besides: the training waits for the stated share.
Nobody knows how long a stream is.
"""

BY_HAND = {  # ceiling: from which part on work is left, and another line
    HELD_RAW: (1, "pass"),
    HELD_FIXED: (2, "pass"),
    HELD_SAMPLES: (3, "pass"),
    HELD_INPUT: (0, "loader = [next(iter(loader))] * 200"),
    LOADER_ALONE: (0, "ALONE = True"),
}

_SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

READING, FIXED, RANDOM, COLLATE = {parts}
REST, WORKERS, STREAMS, SECONDS = {rest}, {workers}, {streams}, float(sys.argv[1]) if sys.argv[1:] else 1e9
ALONE = False


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def spend(seconds):
    if seconds:
        {spends}(seconds)


class Fixed:
    def __call__(self, row):
        spend(FIXED / 16)
        return row + 1


class Random:
    def __call__(self, row):
        spend(RANDOM / 16)
        return row + torch.rand(())


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, row):
        for transform in self.transforms:
            row = transform(row)
        return row


class Rows(Dataset):
    def __init__(self):
        self.transform = {transform}

    def __len__(self):
        return 16 * 200

    def __getitem__(self, index):
        spend(READING / 16)
        row = torch.full((8,), float(index))
        return (self.transform(row) if self.transform else row), torch.ones(1)


class Stream(IterableDataset):
    def __iter__(self):
        rows = Rows()
        return (rows[index] for index in range(len(rows)))


def collate(rows):
    spend(COLLATE)
    return default_collate(rows)


def main():
    global ALONE
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    data = Stream() if STREAMS else Rows()
    loader = DataLoader(data, batch_size=16, shuffle=not STREAMS, collate_fn=collate, num_workers=WORKERS)
    {line}
    times, begin = [], time.perf_counter()
    while True:
        for x, y in loader:
            if not ALONE:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                spin(REST)
            times.append(time.perf_counter())
            if times[-1] - begin > SECONDS and len(times) > 60:
                gaps = [after - before for before, after in zip(times[10:], times[11:])]
                print("ms", 1e3 * sum(gaps) / len(gaps))
                return


if __name__ == "__main__":
    main()
"""


@dataclass(frozen=True)
class Row:
    """What one script showed at one place: the ceiling by flatout and by hand."""

    name: str
    place: str
    found: float
    low: float
    high: float
    truth: float
    pairs: int

    @property
    def error(self) -> float:
        return abs(self.found / self.truth - 1)


def write(folder: Path, kind: str, share: float) -> None:
    """Write the script of a kind as `train.py`, and as it is changed by hand for each place."""
    workers, spends, parts = KINDS[kind]
    rest = (1 - share) * STEP_S
    spent = [part * (share * STEP_S + (rest if workers else 0)) for part in parts]
    transform = "Compose([Fixed(), Random()])" if any(parts[1:3]) else "None"
    fields = {"streams": "stream" in kind, "rest": rest, "workers": workers, "spends": spends, "transform": transform}
    for name, (first, line) in {"train": (0, "pass"), **BY_HAND}.items():
        left = [0.0 if place < first else part for place, part in enumerate(spent)]
        (folder / f"{name}.py").write_text(_SCRIPT.format(**fields, parts=left, line=line))


def stopwatch(folder: Path, name: str, seconds: float) -> float:
    """Return the milliseconds of a step, by the script's own clock."""
    command = [sys.executable, f"{name}.py", str(seconds)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def judge(kind: str, share: float, rounds: int) -> Iterator[Row]:
    """Yield a row for each ceiling that was measured on a script."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, kind, share)
        limits = Limits(budget_s=300, headroom=True)
        target = parse_target([str(folder / "train.py")])
        report = diagnose(target, limits=limits, out=folder / "run", watch=lambda progress: None, echo=None)
        places = [each.ceiling for each in report.headroom]
        ratios: dict[str, list[float]] = {place: [] for place in places}
        for number in range(rounds if places else 0):
            scripts = ["train", *places]
            ms = {script: stopwatch(folder, script, 4.0) for script in (scripts if number % 2 == 0 else scripts[::-1])}
            for place in places:
                ratios[place].append(ms["train"] / ms[place])
        for each in report.headroom:
            truth = statistics.median(ratios[each.ceiling])
            least, most = left_between(each)
            low, high = 1 / max(most, 1e-3), 1 / max(least, 1e-3)
            yield Row(f"{kind}, {share:.0%}", each.ceiling, each.speedup, low, high, truth, each.num_pairs)


def main() -> None:
    """Print a row for each ceiling of each script, and the errors of all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two shares of each kind, one round")
    parser.add_argument("--rounds", type=int, default=0, help="of the truth, in turns; 2 where none is given")
    parser.add_argument("--only", action="append", choices=list(KINDS), metavar="KIND", help="may be repeated")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 2)
    print(f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}; {GOAL}\n")
    print(f"{'input':30}{'held':24}{'flatout':>9} {'95% interval':16}{'by hand':>8}{'error':>8}  pairs")
    found = []
    for kind in options.only or KINDS:
        for share in QUICK_SHARES if options.quick else SHARES:
            rows = list(judge(kind, share, rounds))
            found += rows
            if not rows:
                print(f"{kind}, {share:.0%}: no ceiling was measured", flush=True)
            for row in rows:
                interval = f"{row.low:.2f} to {row.high:.2f}"
                figures = f"{row.found:8.2f}x {interval:16}{row.truth:7.2f}x{row.error:8.1%}{row.pairs:7}"
                print(f"{row.name:30}{row.place:24}{figures}", flush=True)
    print()
    for place in BY_HAND:
        summarize(place, [row for row in found if row.place == place])
    summarize("all", found)


def summarize(name: str, rows: list[Row]) -> None:
    """Print how far off the ceilings of one place are, and how often the truth lies in the interval."""
    if not rows:
        return
    errors = sorted(row.error for row in rows)
    worst = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    inside = sum(row.low <= row.truth <= row.high for row in rows)
    print(
        f"{name:24} error: median {statistics.median(errors):.1%}, nine in ten within {worst:.1%}; "
        f"truth in the interval {inside} of {len(rows)}"
    )


if __name__ == "__main__":
    main()
