"""Whether a ceiling that flatout measures by holding the batch is what a script without input really comes to.

Each script is ordinary but for its input, which takes a stated share of the step. `flatout diagnose` holds the batch in
turns with the script as it is. The truth: the same script with its loader replaced, by hand, by one batch in a list,
timed by the script's own stopwatch against the script as it is, in processes that follow each other in turns.

    python benchmarks/headroom.py [--quick] [--rounds N]
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flatout.engine.diagnose import Limits, diagnose
from flatout.engine.target import parse_target

GOAL = "goal: the ceiling within 10% of the truth in the median, within 25% in nine cases of ten"
STEP_S = 0.012
SHARES, QUICK_SHARES = (0.1, 0.3, 0.5, 0.8), (0.3, 0.8)
KINDS = {  # name: (loader workers, what a sample does, what collate does)
    "samples wait": (0, "time.sleep(SPENT / 16)", ""),
    "samples compute": (0, "spin(SPENT / 16)", ""),
    "collate computes": (0, "", "spin(SPENT)"),
    "one worker, waits": (1, "time.sleep((SPENT + REST) / 16)", ""),
    "one worker, computes": (1, "spin((SPENT + REST) / 16)", ""),
}
"""With a worker the input takes as long as the rest of the step besides: the training waits for the stated share."""

_SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

SPENT, REST, WORKERS, SECONDS = {spent}, {rest}, {workers}, float(sys.argv[1]) if sys.argv[1:] else 1e9


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Rows(Dataset):
    def __len__(self):
        return 16 * 200

    def __getitem__(self, index):
        {sample}
        return torch.full((8,), float(index)), torch.ones(1)


def collate(rows):
    {collate}
    return default_collate(rows)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = DataLoader(Rows(), batch_size=16, shuffle=True, collate_fn=collate, num_workers=WORKERS)
    {held}
    times, begin = [], time.perf_counter()
    while True:
        for x, y in loader:
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
_HELD = "loader = [next(iter(loader))] * 200"


@dataclass(frozen=True)
class Row:
    """What one script showed: the ceiling by flatout and by hand."""

    name: str
    found: float
    truth: float
    pairs: int

    @property
    def error(self) -> float:
        return abs(self.found / self.truth - 1)


def write(folder: Path, kind: str, share: float) -> None:
    workers, sample, collate = KINDS[kind]
    fields = {"spent": share * STEP_S, "rest": (1 - share) * STEP_S, "workers": workers}
    fields |= {"sample": sample or "pass", "collate": collate or "pass"}
    (folder / "train.py").write_text(_SCRIPT.format(**fields, held="pass"))
    (folder / "held.py").write_text(_SCRIPT.format(**fields, held=_HELD))


def stopwatch(folder: Path, name: str, seconds: float) -> float:
    done = subprocess.run([sys.executable, name, str(seconds)], cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def judge(kind: str, share: float, rounds: int) -> Row | None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, kind, share)
        limits = Limits(budget_s=120, headroom=True)
        target = parse_target([str(folder / "train.py")])
        report = diagnose(target, limits=limits, out=folder / "run", watch=lambda progress: None, echo=None)
        ratios = []
        for number in range(rounds):
            order = ("train.py", "held.py") if number % 2 == 0 else ("held.py", "train.py")
            ms = {script: stopwatch(folder, script, 4.0) for script in order}
            ratios.append(ms["train.py"] / ms["held.py"])
        if not report.headroom:
            return None
        ceiling = report.headroom[0]
        return Row(f"{kind}, {share:.0%}", ceiling.speedup, statistics.median(ratios), ceiling.num_pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two shares of each kind, one round")
    parser.add_argument("--rounds", type=int, default=0, help="of the truth, in turns; 2 where none is given")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 2)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, torch {version('torch')}; {GOAL}\n")
    print(f"{'input':28}{'flatout':>9}{'by hand':>9}{'error':>8}   pairs")
    rows = []
    for kind in KINDS:
        for share in QUICK_SHARES if options.quick else SHARES:
            row = judge(kind, share, rounds)
            if row is None:
                print(f"{kind}, {share:.0%}: no ceiling was measured", flush=True)
                continue
            rows.append(row)
            print(f"{row.name:28}{row.found:8.2f}x{row.truth:8.2f}x{row.error:8.1%}{row.pairs:8}", flush=True)
    errors = sorted(row.error for row in rows)
    if errors:
        worst = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
        print(
            f"\nerror: median {statistics.median(errors):.1%}, nine in ten within {worst:.1%}, n={len(errors)} scripts"
        )


if __name__ == "__main__":
    main()
