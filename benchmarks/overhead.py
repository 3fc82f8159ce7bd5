"""What the light probes cost: the same training, in one process, with and without them in alternating blocks.

Blocks of about 0.1 s alternate (with, without, without, with) inside one process, so that drift of the machine cancels;
the statistic is the median of the ratios (and, for very short steps, of the differences) of pairs of blocks, with its
95% interval by order statistics. A block's figure is the median of chunks of its steps, each chunk longer than the
20 ms after which the probes work out what they noted, so that this is part of the cost. Also counted: graph breaks and
recompiles that the probes add to a compiled model.

    python benchmarks/overhead.py [--quick] [--record]
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flatout.machine import processor_name

WORKLOADS = {  # name: (hidden units, batch, steps a block, chunks of the block, loader)
    "0.3 ms, no loader": (32, 16, 240, 3, False),
    "0.6 ms, DataLoader": (32, 16, 180, 3, True),
    "10 ms, DataLoader": (1024, 144, 12, 3, True),
}
GOALS = "goal: <= 1% at 10 ms steps; <= 20 us a step at 0.3 ms steps; 0 graph breaks, 0 recompiles"


def training(hidden: int, batch: int, loader: bool):
    """Yield after each step of an ordinary training loop, forever."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)  # a second thread would measure the other jobs of a shared machine
    layers = [torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()
    data = torch.utils.data.TensorDataset(torch.randn(100_000, 64), torch.randint(0, 10, (100_000,)))
    batches = torch.utils.data.DataLoader(data, batch_size=batch)
    fixed = (data.tensors[0][:batch], data.tensors[1][:batch])
    while True:
        for inputs, targets in batches if loader else (fixed for _ in range(1000)):
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            loss.item()
            yield


def measure(name: str, num_blocks: int) -> None:
    """Run one workload in this process and print its block medians as JSON."""
    import torch

    from flatout.probe import recorder as recording
    from flatout.probe.core import enough as span
    from flatout.schema.order import Order

    hidden, batch, steps, chunks, loader = WORKLOADS[name]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "parts").mkdir()
        order = Order(
            mode="timed", folder=folder, script="overhead", max_s=1e9, protect_files=False,
            launched_unix_s=time.time(),
        )  # fmt: skip
        medians: dict[bool, list[float]] = {True: [], False: []}
        loop = training(hidden, batch, loader)
        for _ in range(2 * steps):
            next(loop)
        span.enough = lambda *_: False  # never stop; all else as in a timed run
        recorder = recording.Recorder(order)
        recorder.attach()
        for _ in range(2 * steps):  # outermost modules are found here
            next(loop)
        attached = True
        for block in range(4 * num_blocks):
            wanted = block % 4 in (0, 3)
            if wanted != attached:
                (recorder.attach_again if wanted else recorder.detach)()
                attached = wanted
            for _ in range(5):
                next(loop)
            walls = []
            for _ in range(chunks):
                start = time.perf_counter_ns()
                for _ in range(steps // chunks):
                    next(loop)
                walls.append((time.perf_counter_ns() - start) / (steps // chunks))
            medians[wanted].append(statistics.median(walls) / 1e3)
        hits = recorder.probes.seams.hits()["torch.autograd:backward"]
        recorder.detach()
        os.write(1, (json.dumps({"with": medians[True], "without": medians[False], "hits": hits}) + "\n").encode())
        recorder.done = "benchmark"
    del torch


COMPILED = """
import json, sys, torch
import torch._dynamo.utils as u
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)
    def forward(self, x):
        return self.second(self.first(x).relu())
model = Net()
how = sys.argv[1]
if how == "wrapper": model = torch.compile(model, backend="eager")
elif how == "in place": model.compile(backend="eager")
call = torch.compile(lambda x: model(x), backend="eager") if how == "function" else model
optimizer = torch.optim.Adam(model.parameters())
for step in range(60):
    loss = call(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
stats = u.counters
print(json.dumps({"breaks": sum(stats["graph_break"].values()), "graphs": stats["stats"]["unique_graphs"],
                  "calls": stats["stats"]["calls_captured"]}))
"""


def compiled(how: str, folder: Path, *, observed: bool) -> dict[str, int]:
    """Train a compiled model for 60 steps, plain or observed, and return Dynamo's counters."""
    import flatout

    script = folder / "compiled.py"
    script.write_text(COMPILED)
    environment = dict(os.environ)
    if observed:
        run = folder / how.replace(" ", "-")
        (run / "parts").mkdir(parents=True)
        order = {"mode": "timed", "folder": str(run), "script": "compiled.py", "steps": 1000, "max_s": 1e9}
        (run / "order.json").write_text(json.dumps(order | {"launched_unix_s": time.time(), "protect_files": False}))
        inject = Path(flatout.__file__).parent / "inject"
        environment |= {"PYTHONPATH": str(inject), "FLATOUT_ORDER": str(run / "order.json")}
    done = subprocess.run(
        [sys.executable, str(script), how], env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    return json.loads(done.stdout.splitlines()[-1])


def around_median(values: list[float]) -> tuple[float, float]:
    """Return the values between which the median lies with 95% (binomial, normal approximation)."""
    away = 0.98 * len(values) ** 0.5
    ordered = sorted(values)
    middle = (len(values) - 1) / 2
    return ordered[max(0, math.floor(middle - away))], ordered[min(len(values) - 1, math.ceil(middle + away))]


def main() -> None:
    """Print the cost of each workload, and the counters of compiled models."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a third of the blocks")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    blocks = options.blocks or (20 if options.quick else 75)
    if options.one:
        measure(options.one, blocks)
        return
    import torch

    print(f"light probes, {processor_name()}, {os.cpu_count()} CPUs, "
          f"Python {platform.python_version()}, torch {torch.__version__}")  # fmt: skip
    print(GOALS)
    for name in WORKLOADS:
        command = [sys.executable, __file__, "--one", name, "--blocks", str(blocks)]
        got = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        ratios = [a / b for a, b in zip(got["with"], got["without"], strict=True)]
        extra = [a - b for a, b in zip(got["with"], got["without"], strict=True)]
        low, high = around_median(extra)
        print(f"{name:20s} without {statistics.median(got['without']):9.1f} us  "
              f"added {statistics.median(extra):6.1f} us a step (95% {low:.1f} to {high:.1f})  "
              f"{(statistics.median(ratios) - 1) * 100:+.2f}%  n={len(ratios)} pairs of blocks of "
              f"{WORKLOADS[name][2]} steps")  # fmt: skip
        if options.record:
            keep(name, ratios, extra, "`--quick`" if options.quick else "")
    added = []
    with tempfile.TemporaryDirectory() as folder:
        for how in ("wrapper", "in place", "function"):
            plain = compiled(how, Path(folder), observed=False)
            seen = compiled(how, Path(folder), observed=True)
            print(f"torch.compile, {how:9s} graph breaks added {seen['breaks'] - plain['breaks']}, "
                  f"graphs (recompiles) added {seen['graphs'] - plain['graphs']}  (plain: {plain})")  # fmt: skip
            added.append(seen["breaks"] - plain["breaks"] + seen["graphs"] - plain["graphs"])
    if options.record:
        from record import record

        record("overhead", "graph breaks and recompiles added", sum(added), n=len(added), n_of="ways to compile")


def keep(name: str, ratios: list[float], extra: list[float], note: str = "") -> None:
    """Add the cost in us and in percent to the history."""
    from record import record  # not at the top: run_overhead.py imports this file into what it measures

    more = {"n": len(ratios), "n_of": "pairs of blocks", "note": note}
    for metric, values, unit in (
        ("added to a step, us", extra, "us"),
        ("added to a step", [100 * (ratio - 1) for ratio in ratios], "%"),
    ):
        low, high = around_median(values)
        record("overhead", f"{name}: {metric}", statistics.median(values), low=low, high=high, unit=unit, **more)


if __name__ == "__main__":
    main()
