"""Whether the time account is right: training scripts with known waits, and what `flatout diagnose` says of them.

Each case is a small training script in which one phase is made to take a given share of the step by a sleep or a busy
loop. The script holds a stopwatch around every statement of its own loop and writes the readings to a file of its own;
that is the truth, so that a slow moment of the machine falls on both sides. Compared are the shares of *all* phases
over the same steps, not only of the one that was made slow.

    python benchmarks/account.py [--quick] [--only PHASE]
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from flatout.engine.diagnose import Limits, diagnose
from flatout.engine.process.target import parse_target
from flatout.machine import processor_name
from flatout.schema.finding import Breakdown
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run

SHARES = (0.05, 0.20, 0.50, 0.80, 0.95)
QUICK_SHARES = (0.20, 0.80)
GOAL = 0.02  # of the step, or of the recording without start-up
CLOSED = 0.01
STEP_S = 0.020  # a step without probes and without the machine's own noise
USUAL = ("input", "forward", "backward", "optimizer", "host")  # phases that share what the slow one leaves

SCRIPT = '''
import atexit, json, os, sys, time
from time import perf_counter_ns as now
import torch

KIND, WORK = sys.argv[1], json.loads(sys.argv[2])  # seconds by phase
torch.set_num_threads(1)
readings = []  # one step: nanoseconds by phase, in the order of NAMES
outside = {"validation": [], "epoch_gap": []}
NAMES = ("input", "transfer", "forward", "backward", "optimizer", "sync", "checkpoint")


def work(name):
    seconds = WORK.get(name, 0.0)
    if "busy" in KIND:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass
    elif seconds:
        time.sleep(seconds)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return WORK["batches"]

    def __getitem__(self, index):
        work("input")
        return torch.randn(8)


def batches_by_hand():
    for _ in range(WORK["batches"]):
        work("input")
        yield torch.randn(4, 8)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x):
        work("forward")
        return Slow.apply(self.linear(x))


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        work("backward")
        return gradient


class SGD(torch.optim.SGD):
    def step(self, closure=None):
        work("optimizer")
        return super().step(closure)


class OnDevice(torch.Tensor):
    """Stands for a tensor on an accelerator whose copies and reads take their time."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.to:
            work("transfer")
            return torch.empty(4, 8, device="meta").as_subclass(OnDevice)
        if function.__name__ == "item":
            work("sync")
            return 0.0
        return super().__torch_function__(function, types, args, kwargs or {})


class Snapshot:
    def __reduce__(self):
        work("checkpoint")
        return list, ()


def save():
    with open(os.path.join(os.environ["ACCOUNT_TRUTH"], f"{os.getpid()}.json"), "w") as file:
        json.dump({"steps": readings, "outside": outside}, file)


atexit.register(save)
model = Net()
optimizer = SGD(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=int("worker" in KIND))
held_out = torch.utils.data.DataLoader(torch.randn(8, 8), batch_size=4)
on_device = torch.empty(4, 8, device="meta").as_subclass(OnDevice)


def validate():
    with torch.no_grad():
        for x in held_out:
            model(x)
            time.sleep(WORK["validation"] / 2)


def train(x, begin):
    at = [begin, now()]
    batch = x.as_subclass(OnDevice)
    sent = now()
    if "transfer" in WORK:
        batch.to("meta")
    at.append(now())
    work("host")
    lead = now()
    out = model(x)
    at.append(now())
    loss = out.mean()
    back = now()
    loss.backward()
    at.append(now())
    optimizer.step()
    optimizer.zero_grad()
    at.append(now())
    if "sync" in WORK:
        on_device.item()
    at.append(now())
    if "checkpoint" in WORK:
        torch.save(Snapshot(), os.path.join(os.environ["ACCOUNT_TRUTH"], f"{os.getpid()}.pt"))
    at.append(now())
    work("host")
    spent = dict(zip(NAMES, [end - start for start, end in zip(at, at[1:])]))
    spent["transfer"] -= sent - at[1]
    spent["forward"] -= lead - at[2]
    spent["backward"] -= back - at[3]
    return spent


while True:
    iterator = batches_by_hand() if "by hand" in KIND else iter(loader)
    while True:
        begin = now()
        try:
            x = next(iterator)
        except StopIteration:
            break
        spent = train(x, begin)
        readings.append((begin, now(), spent))
    if "validation" in WORK:
        begin = now()
        validate()
        outside["validation"].append((begin, now()))
    if "epoch_gap" in WORK:
        begin = now()
        work("epoch_gap")
        outside["epoch_gap"].append((begin, now()))
'''


@dataclass(frozen=True)
class Case:
    """One script: how its slow phase is made slow, and what share of the time it is to take."""

    kind: str  # what the script's functions look for: "sleep", "busy", "worker", "by hand"
    phase: Phase
    share: float
    work: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.phase}, {self.kind}, {self.share:.0%}"


def in_step(kind: str, phase: Phase, share: float) -> Case:
    """Give `share` of the step to `phase`, and the rest to the usual phases in equal parts."""
    usual = [name for name in USUAL if name != phase]
    work = {name: (1 - share) * STEP_S / len(usual) for name in usual} | {phase.value: share * STEP_S, "batches": 20}
    if phase is Phase.HOST:
        work["host"] /= 2  # before the forward pass and after the optimizer
    elif "host" in work:
        work["host"] /= 2
    if kind == "worker":  # it is waited for as long as the training's own work does not cover its own; in one epoch
        work |= {"input": STEP_S, "batches": 1000}
    return Case(kind, phase, share, work)


def outside(phase: Phase, share: float) -> Case:
    """Let `phase` take `share` of the time between the starts of two epochs."""
    batches, step_s = 6, STEP_S / 2
    work = {name: step_s / len(USUAL) for name in USUAL} | {"batches": batches}
    work |= {phase.value: share / (1 - share) * batches * step_s, "host": step_s / len(USUAL) / 2}
    return Case("sleep", phase, share, work)


def cases(quick: bool, only: str) -> list[Case]:
    shares = QUICK_SHARES if quick else SHARES
    kinds = [("sleep", phase) for phase in STEP_PHASES]
    kinds += [("busy", Phase.INPUT), ("by hand", Phase.INPUT), ("worker", Phase.INPUT), ("busy", Phase.HOST)]
    found = [in_step(kind, phase, share) for kind, phase in kinds for share in shares]
    found += [outside(phase, share) for phase in (Phase.VALIDATION, Phase.EPOCH_GAP) for share in shares]
    return [case for case in found if only in case.name]


@dataclass(frozen=True)
class Row:
    """Shares of one case, as the script's stopwatch and as flatout have them."""

    case: Case
    truth: float
    measured: float
    worst: float  # the largest difference over all phases
    where: str  # the phase it is in
    whole: float  # sum of the phases' shares
    steps: int


def judge(case: Case, folder: Path) -> Row:
    """Run one case and compare."""
    script = folder / "case.py"
    script.write_text(SCRIPT)
    os.environ["ACCOUNT_TRUTH"] = str(folder)
    steps = 60 if case.phase in STEP_PHASES else 30
    if case.kind == "by hand":  # how host time divides is known from samples: it takes many
        steps = 400
    report = diagnose(
        parse_target([str(script), case.kind, json.dumps(case.work)]),
        limits=Limits(steps=steps, budget_s=120, all_devices=True),
        out=folder / "run",
        watch=lambda _: None,
        echo=None,
    )
    truth = json.loads((folder / f"{report.run.header.pid}.json").read_text())
    if case.phase in STEP_PHASES:
        return in_step_row(case, truth, report.run, report.breakdown)
    return outside_row(case, truth, report.run, report.breakdown)


def in_step_row(case: Case, truth: dict, run: Run, breakdown: Breakdown) -> Row:
    first = run.steps[breakdown.warmup].start_ns
    last = run.steps[-1].start_ns
    steps = [(end - begin, spent) for begin, end, spent in truth["steps"] if first <= begin <= last + 1_000_000]
    wall = sum(length for length, _ in steps)
    shares = {name: sum(spent[name] for _, spent in steps) / wall for name in steps[0][1]}
    shares["host"] = 1 - sum(shares.values())
    worst, where = max((abs(breakdown.share(phase) - shares[phase.value]), phase.value) for phase in STEP_PHASES)
    whole = sum(part.share for part in breakdown.phases)
    return Row(case, shares[case.phase.value], breakdown.share(case.phase), worst, where, whole, len(steps))


def outside_row(case: Case, truth: dict, run: Run, breakdown: Breakdown) -> Row:
    """Compare shares of the recording from the first step on; the truth counts what had ended by its end."""
    first, last = run.steps[0].start_ns, run.end.at_ns
    spans = [(begin, end) for begin, end in truth["outside"][case.phase.value] if first <= begin and end <= last]
    true = sum(end - begin for begin, end in spans) / (last - first)
    measured = breakdown.outside_s(case.phase) / ((last - first) / 1e9)
    whole = sum(breakdown.outside_s(part.phase) for part in breakdown.outside) + sum(s.wall_ns for s in run.steps) / 1e9
    worst = abs(true - measured)
    return Row(case, true, measured, worst, case.phase.value, whole / breakdown.wall_s, len(run.steps))


def show(row: Row) -> None:
    closed = abs(row.whole - 1) <= CLOSED
    verdict = "" if row.worst <= GOAL and closed else "   MISSED"
    print(
        f"{row.case.name:<24} {row.truth:7.1%} {row.measured:9.1%} {(row.measured - row.truth) * 100:+8.2f}"
        f" {row.worst * 100:8.2f} {row.where:<11} {row.whole:6.3f} {row.steps:4}{verdict}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two shares a phase instead of five")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {version('torch')}, {processor_name()}, {os.cpu_count()} cores")
    print(f"goal: every phase within {GOAL * 100:.0f} points of the script's stopwatch, shares sum to 1 +- {CLOSED}\n")
    print(f"{'case':<24} {'truth':>7} {'measured':>9} {'points':>8} {'worst':>8} {'in':<11} {'sum':>6} {'n':>4}")
    rows = []
    for case in cases(options.quick, options.only):
        with tempfile.TemporaryDirectory(prefix="flatout-account-") as folder:
            rows.append(judge(case, Path(folder)))
            show(rows[-1])
    worst = [row.worst * 100 for row in rows]
    met = sum(row.worst <= GOAL and abs(row.whole - 1) <= CLOSED for row in rows)
    print(f"\nlargest difference of a case: median {statistics.median(worst):.2f} points, max {max(worst):.2f}")
    print(f"{met} of {len(rows)} cases within the goal")
    sys.exit(met < len(rows))


if __name__ == "__main__":
    main()
