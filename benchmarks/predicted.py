"""Random samples made by worker processes from predicted states of the random streams, against the plain loader.

A data set augments images in plain Python and draws from three streams; the training step may draw, too. The same
training is done plain and with predicted batches, in turns and in one process; a ratio is taken within its round, over
the whole training: looking at the data set, starting processes and learning are part of it; one of later epochs stands
beside it. Batches, weights and all streams are compared. What failing predictions cost is shown by a step that draws
another number each time. The last table simulates more processes than this machine has cores for, from the costs
measured here.

    python benchmarks/predicted.py [--quick] [--rounds N] [--record]
    python benchmarks/predicted.py --data-sets [--record]

`--data-sets`: the data sets of tests/unit/torch_loader/predicted instead, each trained plain and predicted, 3 epochs.
"""

import argparse
import os
import random
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from record import record
from torch import nn
from torch.utils.data import DataLoader, Dataset

from flatout.torch_loader.handover import Handover, HandoverPlan
from flatout.torch_loader.predicted.batch_transport import BatchArena, bytes_of

WORKERS, BATCH, SIDE = 2, 32, 48
SAMPLES, EPOCHS, SENT = 1000, 3, 15
SHARE_GOAL, SPEED_GOAL, INPUT_SHARE = 0.9, 1.5, 0.6


class Noisy(Dataset):
    """Images augmented pixel by pixel; `varied`: some samples draw one number more."""

    def __init__(self, samples: int, varied: float = 0.0, times: int = 1):
        self.samples, self.varied, self.times = samples, varied, times

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = np.full((SIDE, SIDE), index / self.samples, np.float32)
        gain, bias = random.uniform(0.8, 1.2), np.random.uniform(-0.1, 0.1)
        for _ in range(self.times):
            rows = [[min(max(value * gain + bias, 0.0), 1.0) for value in row] for row in image.tolist()]
        image = np.array(rows, np.float32)
        if self.varied and random.random() < self.varied:
            image += np.float32(random.uniform(0, 0.01))
        return torch.from_numpy(image) + 0.01 * torch.rand(SIDE, SIDE), index % 10


@dataclass(frozen=True)
class Workload:
    """A data set and a training step; `times` says how dear a sample is, `hidden` how dear a step."""

    varied: float = 0.0
    times: int = 1
    hidden: int = 1024
    dropout: float = 0.0
    odd_step: bool = False  # the step draws another number of words each time


WORKLOADS = {
    "fixed draws": Workload(),
    "fixed draws, dropout in the step": Workload(dropout=0.5),
    "fixed draws, dear samples": Workload(times=3),
    "one sample in 500 draws more": Workload(varied=0.002),
    "half of the samples draw more": Workload(varied=0.5),
    "the step draws another number each time": Workload(odd_step=True),
}
FAILS = "the step draws another number each time"


@dataclass(frozen=True)
class Training:
    """One training: what it took, all of it and without its first epoch, and what came of it."""

    seconds: float
    later_s: float
    waits: list[float]
    taken: int
    results: tuple[int, ...]

    @property
    def input_s(self) -> float:
        """Return what all batches were waited for."""
        return sum(self.waits)

    @property
    def batches(self) -> int:
        """Return how many there were."""
        return len(self.waits)


def train(load: Workload, *, predicted: bool, epochs: int = EPOCHS, pause_s: float = 0.0) -> Training:
    """Train; `pause_s`: the step sleeps in place of computing."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    loader = DataLoader(Noisy(SAMPLES, load.varied, load.times), BATCH, shuffle=True)
    model = nn.Sequential(
        *(nn.Flatten(), nn.Linear(SIDE * SIDE, load.hidden), nn.ReLU(), nn.Dropout(load.dropout)),
        *(nn.Linear(load.hidden, load.hidden), nn.ReLU(), nn.Linear(load.hidden, 10)),
    )
    optimizer, hits = torch.optim.SGD(model.parameters(), lr=0.1), []
    plan = HandoverPlan(workers=WORKERS, predict=True, hit=lambda: hits.append(1))
    check, waits, began = 0, list[float](), time.perf_counter()
    later = began
    for epoch in range(epochs):
        later = time.perf_counter() if epoch == 1 else later
        for images, labels, waited_s in timed(iterator(loader, plan if predicted else None)):
            check = zlib.crc32(images.numpy().tobytes(), check)
            waits.append(waited_s)
            if pause_s:
                time.sleep(pause_s)
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if load.odd_step:
                torch.rand(len(waits) % 17)
    seconds, later_s = time.perf_counter() - began, time.perf_counter() - later
    weights = zlib.crc32(b"".join(each.detach().numpy().tobytes() for each in model.parameters()))
    streams = repr((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()))
    return Training(seconds, later_s, waits, len(hits), (check, weights, zlib.crc32(streams.encode())))


def iterator(loader: DataLoader, plan: HandoverPlan | None) -> Iterator:
    """Return the iterator of a pass."""
    found = iter(loader)
    if plan is not None:
        Handover(found, loader, plan)
    return found


def timed(batches: Iterator) -> Iterator:
    """Yield the batches, each with the seconds that it was waited for."""
    while True:
        began = time.perf_counter()
        batch = next(batches, None)
        if batch is None:
            return
        yield *batch, time.perf_counter() - began


def compare(name: str, rounds: int, *, keep: bool) -> tuple[Training, Training]:
    """Train in turns, print a row, and return the last two trainings."""
    ratios, later, shares, ours, plain = [], [], [], None, None
    for _ in range(rounds):
        order = [False, True]
        random.Random().shuffle(order)
        done = {way: train(WORKLOADS[name], predicted=way) for way in order}
        plain, ours = done[False], done[True]
        if plain.results != ours.results:
            sys.exit(f"{name}: batches, weights or streams DIFFER")
        ratios.append(plain.seconds / ours.seconds)
        later.append(plain.later_s / ours.later_s)
        shares.append(plain.input_s / plain.seconds)
    taken, ratio = ours.taken / ours.batches, statistics.median(ratios)
    print(
        f"{name:42s} input {statistics.median(shares):4.0%} of {plain.seconds / plain.batches * 1e3:5.1f} ms; "
        f"{ours.taken:4d} of {ours.batches} batches from workers ({taken:4.0%}); "
        f"{ratio:5.2f}x ({min(ratios):.2f} to {max(ratios):.2f}, n={rounds}), "
        f"later epochs {statistics.median(later):5.2f}x; bits, weights, streams the same",
        flush=True,
    )
    if keep:
        ends = {"low": min(ratios), "high": max(ratios), "n": rounds, "n_of": "rounds", "unit": "x"}
        record("predicted", f"{name}: plain over predicted, whole training", ratio, **ends)
        ends = {"low": min(later), "high": max(later), "n": rounds, "n_of": "rounds", "unit": "x"}
        record("predicted", f"{name}: plain over predicted, later epochs", statistics.median(later), **ends)
        record("predicted", f"{name}: batches from workers", 100 * taken, n=ours.batches, n_of="batches", unit="%")
        record("predicted", f"{name}: input of a plain step", 100 * statistics.median(shares), n=rounds, unit="%")
    return plain, ours


def overhead_s() -> float:
    """Return what a batch costs the training process that workers have ready (median): looks, copies, jobs."""
    load = WORKLOADS["fixed draws"]
    each_s = statistics.median(train(load, predicted=False, epochs=1, pause_s=1e-6).waits)
    return statistics.median(train(load, predicted=True, epochs=3, pause_s=2 * each_s).waits)


def simulated(workers: int, make_s: float, step_s: float, own_s: float, *, batches: int = 100) -> float:
    """Return the speed-up of a pass with `workers` processes, each on a core of its own.

    The first batch is made in the training process. A worker may have four batches in work, as under the fix.
    """
    now, free, ready, given = 0.0, [0.0] * workers, dict[int, float](), 1
    for number in range(batches):
        while given < batches and given <= number + 4 * workers:
            start = max(now, free[given % workers])
            free[given % workers] = ready[given] = start + make_s
            given += 1
        now = now + make_s if number == 0 else max(now, ready[number]) + own_s
        now += step_s
    return batches * (make_s + step_s) / now


def scaling(plain: Training, own_s: float, *, keep: bool) -> None:
    """Print what more processes would give."""
    make_s = plain.input_s / plain.batches
    print(f"\nsimulated: a batch made in {make_s * 1e3:.1f} ms, {own_s * 1e3:.2f} ms in the training process")
    for share in (0.6, 0.9, 0.97):
        step_s = make_s * (1 - share) / share
        gains = {count: simulated(count, make_s, step_s, own_s) for count in (1, 2, 4, 8, 16)}
        print(f"input {share:.0%} of a step: " + ", ".join(f"{count}: {gain:.1f}x" for count, gain in gains.items()))
        if keep:
            record("predicted", f"simulated, 16 workers, input {share:.0%}", gains[16], unit="x", note="100 batches")
    if keep:
        record("predicted", "a ready batch in the training process", own_s * 1e3, unit="ms")


def sent(batch: list[torch.Tensor], ways: tuple[Callable, Callable], pipes: tuple) -> float:
    """Return the seconds that the receiver takes for a batch that is there, read once; median of some."""
    put, take = ways
    ours, theirs = pipes
    if not (process := os.fork()):
        for number in range(SENT):
            put(number, [part.clone() for part in batch])
            theirs.recv()
        os._exit(0)
    took = []
    for number in range(SENT):
        time.sleep(0.1)
        began = time.perf_counter()
        sum(float(part.max()) for part in take(number))
        took.append(time.perf_counter() - began)
        ours.send(None)
    os.waitpid(process, 0)
    return statistics.median(took)


def transports(*, keep: bool) -> None:
    """Print what the receiver of a batch takes by the arena, and by torch's queue as its own workers use it."""
    for name, shape in {"74 KB": (32, 24, 24), "19 MB": (32, 3, 224, 224)}.items():
        batch, context = [torch.rand(shape), torch.arange(32)], torch.multiprocessing.get_context("fork")
        arena, pipes, queue = BatchArena(3, bytes_of(batch)), context.Pipe(), context.Queue()
        by_arena = (
            lambda number, each, arena=arena, pipe=pipes[1]: pipe.send(arena.put(number, each)),
            lambda number, arena=arena, pipe=pipes[0]: arena.take(number, pipe.recv()),
        )
        by_queue = (lambda _, each, queue=queue: queue.put(each), lambda _, queue=queue: queue.get())
        own_s, torch_s = sent(batch, by_arena, pipes), sent(batch, by_queue, pipes)
        print(f"a batch of {name}, received and read: {own_s * 1e3:.2f} ms; by torch's queue {torch_s * 1e3:.2f} ms")
        if keep:
            more = {"n": SENT, "n_of": "batches", "unit": "ms"}
            record("predicted", f"a batch of {name} received and read", own_s * 1e3, **more)
            record("predicted", f"a batch of {name} received and read, torch's queue", torch_s * 1e3, **more)


def data_sets(*, keep: bool) -> None:
    """Train on every data set of the tests, plain and predicted."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.unit.fixes.training import under
    from tests.unit.torch_loader.predicted.random_data_sets import CASES
    from tests.unit.torch_loader.predicted.test_thirty_data_sets import equal_streams, trained

    from flatout.watch.dataset_state import same

    equal, taken, asked = 0, 0, 0
    for case in CASES.values():
        plain, weights, streams = trained(case)
        with under("loader-workers", workers=WORKERS) as process:
            batches, own_weights, own_streams = trained(case)
            taken, asked = taken + process.site.hits.get("DataLoader", 0), asked + len(batches)
        alike = same([each.detach() for each in own_weights], [each.detach() for each in weights])
        equal += same(batches, plain) and alike and equal_streams(own_streams, streams)
    print(f"{equal} of {len(CASES)} data sets give equal batches, weights and streams over 3 epochs; ", end="")
    print(f"{taken} of {asked} batches from workers")
    if keep:
        record("predicted", "data sets with other bits", len(CASES) - equal, n=len(CASES), n_of="data sets")


def main() -> None:
    """Print a row for each workload, and the simulation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2 rounds in place of 5")
    parser.add_argument("--rounds", type=int, help="trainings of each workload and way")
    parser.add_argument("--data-sets", action="store_true", help="train on the data sets of the tests instead")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.data_sets:
        data_sets(keep=options.record)
        return
    rounds = options.rounds or (2 if options.quick else 5)
    print(f"torch {torch.__version__}, 1 thread a process, {WORKERS} workers, {EPOCHS} epochs a training, in turns")
    found = {name: compare(name, rounds, keep=options.record) for name in WORKLOADS}
    plain, ours = found["fixed draws"]
    print(f"goal: >= {SHARE_GOAL:.0%} of batches from workers where draws are fixed: {ours.taken / ours.batches:.0%}")
    print(f"goal: >= {SPEED_GOAL}x on 2 cores where input is >= {INPUT_SHARE:.0%} of the step")
    scaling(plain, overhead_s(), keep=options.record)
    transports(keep=options.record)


if __name__ == "__main__":
    main()
