"""One script on two ranks against the same script in one process: what it prints, its weights, and how long it takes.

Every training of benchmarks/ranks runs in one process with two threads and on two ranks of one thread each, one after
the other, the order drawn by lot in each round. Equality is of printed figures and of final weights; time is that of
the script without its start (imports, starting ranks), the proof on copies included. Only the long ones have work
enough to be shared; the others are there for equality. `read` is how many samples of loaders without workers rank 0 has
read, of all that the script has asked for: where each is read by one rank only, that is half of them.

    python benchmarks/ranks.py [--quick] [--record] [NAME...]
    python benchmarks/ranks.py --ddp [--quick] [--record] [NAME...]     against DistributedDataParallel: ranks_ddp.py
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import ranks_ddp
from record import record

HERE = Path(__file__).resolve().parent / "ranks"
NAMES = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "each")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def run(names: list[str], folder: Path, ranks: int) -> None:
    under = [] if ranks == 1 else ["-m", "flatout", "run", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [sys.executable, *under, str(HERE / "each.py"), str(folder), *names], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def apart(one: Path, two: Path) -> tuple[float, float]:
    """Return the largest differences of printed figures and of weights, relative to the largest of each."""
    import torch

    texts = [(folder / "out.txt").read_text() for folder in (one, two)]
    if NUMBER.sub("#", texts[0]) != NUMBER.sub("#", texts[1]) or "Traceback" in texts[0]:
        sys.exit(f"{two}: other words\n{texts[0]}\n{texts[1]}")
    figures = [[float(number) for number in NUMBER.findall(text)] for text in texts]
    printed = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(*figures, strict=True))
    weights = [torch.load(folder / "weights.pt", weights_only=True) for folder in (one, two)]
    largest = [float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) for a, b in zip(*weights, strict=True)]
    return printed, max(largest)


def read_by_rank_0(inputs: list[dict]) -> str:
    samples = sum(one["samples"] for one in inputs)
    return f"read {samples - sum(one['shared'] - one['own'] for one in inputs):5,} of {samples:5,}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rounds = 1 if options.quick else 5
    if options.ddp:
        ranks_ddp.compare(options.names or ranks_ddp.NAMES, rounds, recorded=options.record)
        return
    options.names = options.names or NAMES
    ratios: dict[str, list[float]] = {name: [] for name in options.names}
    with tempfile.TemporaryDirectory() as top:
        for number in range(rounds):
            folders = {ranks: Path(top, f"{number}-{ranks}") for ranks in (1, 2)}
            for ranks in random.sample([1, 2], 2):
                run(options.names, folders[ranks], ranks)
            for name in options.names:
                took = [float((folders[ranks] / name / "seconds.txt").read_text()) for ranks in (1, 2)]
                ratios[name].append(took[0] / took[1])
        for name in options.names:
            printed, weights = apart(folders[1] / name, folders[2] / name)
            found = json.loads((folders[2] / name / "modules.json").read_text())
            cut, whole = (sum(one["cut"] for one in found.values()),
                          sum(sum(one["whole"].values()) + one["few"] for one in found.values()))  # fmt: skip
            told = f"{statistics.median(ratios[name]):.2f}x ({min(ratios[name]):.2f} to {max(ratios[name]):.2f})"
            read = read_by_rank_0(json.loads((folders[2] / name / "inputs.json").read_text()))
            print(
                f"{name:18} cut {cut:4} whole {whole:3}  printed {printed:.1e}  weights {weights:.1e}  {read}  {told}"
            )
            if options.record and name.startswith("long_"):
                speed, low, high = statistics.median(ratios[name]), min(ratios[name]), max(ratios[name])
                record("ranks", name, speed, low=low, high=high, n=rounds, n_of="pairs of runs", unit="x")


main()
