"""A small ResNet on 32x32 images on the CPU: `flatout tune` and `run` against each change that is made by hand.

Whole trainings follow each other in rounds, every variant once a round, so that a drift of the machine falls on all;
the figure is a training's median step after its first quarter. The ratio is taken within a round.

    python benchmarks/cpu_resnet.py [--quick] [--out FILE]
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from trainings import step_ms, tell

from flatout.machine import processor_name

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "cpu_resnet" / "train.py"
BY_HAND = {
    "untouched": (),
    "one thread": ("--threads", "1"),
    "channels_last": ("--channels-last",),
    "bf16": ("--bf16",),
    "channels_last + bf16": ("--channels-last", "--bf16"),
    "compile": ("--compile",),
}
GOAL = "goal: faster than the best single change by hand, and at least 1.6x the untouched script"


def main() -> None:
    """Tune, then time every variant in rounds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds, without compile by hand")
    parser.add_argument("--budget", default="6m", help="of the tune")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    lines = [
        f"ResNet on 32x32, batch 64, CPU training, {processor_name()}, "
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, torch {torch.__version__}",
        GOAL,
    ]
    rounds = 2 if options.quick else 3
    variants = {name: args for name, args in BY_HAND.items() if not (options.quick and name == "compile")}
    with tempfile.TemporaryDirectory() as folder:
        tune = [sys.executable, "-m", "flatout", "tune", "--budget", options.budget, str(SCRIPT), "--steps", "100000"]
        told = subprocess.run(tune, cwd=folder, capture_output=True, text=True, check=False)
        lines += ["", "flatout tune says:", told.stdout, told.stderr[-2000:] if told.returncode else ""]
        walls: dict[str, list[float]] = {name: [] for name in (*variants, "flatout run")}
        for _ in range(rounds):
            for name, args in variants.items():
                walls[name].append(step_ms([sys.executable, str(SCRIPT), *args], folder))
            run = [sys.executable, "-m", "flatout", "run", str(SCRIPT), "--steps", "60"]
            walls["flatout run"].append(step_ms(run, folder))
    lines.append(f"n={rounds} trainings of 60 steps each, in rounds")
    for name, values in walls.items():
        ratios = [base / value for base, value in zip(walls["untouched"], values, strict=True)]
        lines.append(
            f"{name:22s} {statistics.median(values):8.2f} ms a step  {statistics.median(ratios):5.2f}x  "
            f"(from {min(ratios):.2f} to {max(ratios):.2f})"
        )
    tell(lines, options.out)


if __name__ == "__main__":
    main()
