"""The classic MNIST guide's script, untouched: `flatout tune`, then whole trainings by hand and under `flatout run`.

The script is `mnist_guide/train.py`, copied as a user's file beside generated files in MNIST's own format. (It starts
with a few lines that let torchvision load beside a CPU build of torch, which every CPU-only user needs.) Trainings
follow each other in rounds, every variant once a round; a ratio is taken within its round, on the time from the first
step to the last. Resident batches are the ceiling for anything that changes the input only: the same loop over a batch
that is there already. Losses and weights are compared with the first plain training, to the last bit.

    python benchmarks/mnist_guide.py [--quick] [--rounds N] [--budget S] [--out FILE]
"""

import argparse
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

SCRIPT = Path(__file__).resolve().parent / "mnist_guide" / "train.py"
PLAIN, BITWISE, ROUNDING = "python train.py", "flatout run, BITWISE", "flatout run, ROUNDING"
CEILING = "resident batch"
GOALS = {BITWISE: 5.5, ROUNDING: 7.5}
SHARE = 0.93

LOADER = "loader = DataLoader(dataset, batch_size=64, shuffle=True)"
ADAM = "optim.Adam(model.parameters(), lr=1e-3)"
RESIDENT = (LOADER, f"{LOADER}\n    loader = [next(iter(loader))] * len(loader)")
KEPT = (LOADER, f"{LOADER}\n    loader = list(loader)")
GATHERED = (
    LOADER,
    """pixels = dataset.data.unsqueeze(1).float().div_(255).sub_(0.1307).div_(0.3081)

    class Loader:
        def __len__(self):
            return -(-len(pixels) // 64)

        def __iter__(self):
            for rows in torch.randperm(len(pixels)).split(64):
                yield pixels.index_select(0, rows), dataset.targets.index_select(0, rows)

    loader = Loader()""",
)
FUSED = (ADAM, "optim.Adam(model.parameters(), lr=1e-3, fused=True)")
THREAD = ("torch.manual_seed(1)", "torch.manual_seed(1)\n    torch.set_num_threads(1)")
WORKERS = (LOADER, LOADER.replace("shuffle=True", "shuffle=True, num_workers=2, persistent_workers=True"))
BY_HAND = {
    CEILING: (RESIDENT,),
    "first pass's batches kept": (KEPT,),
    "2 workers": (WORKERS,),
    "gather of prepared images": (GATHERED,),
    "resident batch, fused Adam": (RESIDENT, FUSED),
    "resident batch, fused Adam, 1 thread": (RESIDENT, FUSED, THREAD),
}


@dataclass
class Trainings:
    """The trainings of one variant: total seconds, seconds from first to last step, losses, weights of the last."""

    total_s: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    losses: list[list[str]] = field(default_factory=list)
    weights: list[dict[str, torch.Tensor]] = field(default_factory=list)


def write_mnist(folder: Path, number: int) -> None:
    """Write `number` images that can be learned, in the idx format that torchvision's MNIST reads."""
    draw = np.random.RandomState(0)
    patterns = draw.randint(0, 200, (10, 28, 28))
    raw = folder / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, length in (("train", number), ("t10k", 64)):
        labels = draw.randint(0, 10, length).astype(np.uint8)
        noise = draw.randint(-120, 121, (length, 28, 28))
        images = (patterns[labels] + noise).clip(0, 255).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
            (raw / f"{name}-{kind}-ubyte").write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def write_scripts(folder: Path) -> dict[str, list[str]]:
    """Write the user's script and its variants; return the command of each."""
    text = SCRIPT.read_text(encoding="utf-8")
    (folder / "train.py").write_text(text, encoding="utf-8")
    commands = {PLAIN: [sys.executable, "train.py"]}
    for place, (name, changes) in enumerate(BY_HAND.items()):
        changed = text
        for old, new in changes:
            if old not in changed:
                raise SystemExit(f"{SCRIPT} has no line {old!r} any more: {name} cannot be made of it")
            changed = changed.replace(old, new)
        (folder / f"by_hand_{place}.py").write_text(changed, encoding="utf-8")
        commands[name] = [sys.executable, f"by_hand_{place}.py"]
    return commands


def tune(folder: Path, name: str, budget: str) -> tuple[str, list[dict[str, Any]]]:
    """Tune the script for one class of equality; return what was said and the fixes that were kept."""
    equal, recipe = name.rsplit(" ", 1)[1].lower(), recipe_of(name)
    command = [sys.executable, "-m", "flatout", "tune", "--budget", budget, "--equal", equal, "--recipe", recipe]
    start = time.monotonic()
    done = subprocess.run([*command, "train.py"], cwd=folder, capture_output=True, text=True, check=False)
    said = f"flatout tune --equal {equal}, {time.monotonic() - start:.0f} s:\n{done.stdout}"
    said += done.stderr[-2000:] if done.returncode else ""
    found = folder / recipe
    return said, tomllib.loads(found.read_text(encoding="utf-8")).get("fix", []) if found.exists() else []


def recipe_of(name: str) -> str:
    return f"{name.rsplit(' ', 1)[1].lower()}.toml"


def train(command: list[str], folder: Path, into: Trainings) -> None:
    """Run one whole training and take down its times, losses and weights."""
    saved = folder / "mnist.pt"
    saved.unlink(missing_ok=True)
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    total_s = time.monotonic() - start
    steps = re.search(r"last step: ([\d.]+) s", done.stdout)
    if steps is None or not saved.exists():
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    into.total_s.append(total_s)
    into.steps_s.append(float(steps[1]))
    into.losses.append(re.findall(r"loss (\S+)", done.stdout))
    into.weights.append(torch.load(saved, weights_only=True))


def equality(trainings: Trainings, plain: Trainings) -> str:
    """Return how losses and weights of all trainings compare with the first plain one's."""
    losses, weights = plain.losses[0], plain.weights[0]
    if all(each == losses for each in trainings.losses) and all(
        torch.equal(other[key].view(torch.uint8), weights[key].view(torch.uint8))
        for other in trainings.weights
        for key in weights
    ):
        return "losses and weights the same to the last bit"
    furthest = max(
        abs(float(one) / float(two) - 1)
        for other in trainings.losses
        for one, two in zip(other, losses, strict=True)
    )  # fmt: skip
    return f"losses differ by up to {furthest:.1e}" if math.isfinite(furthest) else "losses are not finite"


def ratios(one: list[float], other: list[float]) -> str:
    """Return the median of `one / other` within rounds, and its range."""
    found = [left / right for left, right in zip(one, other, strict=True)]
    return f"{statistics.median(found):5.2f}x ({min(found):.2f} to {max(found):.2f})"


def table(variants: dict[str, Trainings]) -> list[str]:
    plain = variants[PLAIN]
    lines = [f"{'':38}{'total s':>9}{'steps s':>9}  {'steps, x plain':26}{'total, x plain':24}"]
    for name, each in variants.items():
        same = "" if name in BY_HAND else f"  {equality(each, plain)}"
        lines.append(
            f"{name:38}{statistics.median(each.total_s):9.2f}{statistics.median(each.steps_s):9.2f}  "
            f"{ratios(plain.steps_s, each.steps_s):26}{ratios(plain.total_s, each.total_s):24}{same}"
        )
    return lines


def verdicts(variants: dict[str, Trainings], kept: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return one line for each goal: reached or missed."""

    def verdict(reached: bool) -> str:
        return "reached" if reached else "missed"

    plain, ceiling = variants[PLAIN], variants[CEILING]
    lines = []
    for name, goal in GOALS.items():
        names = (
            ", ".join(f"{fix['name']} ({fix['equivalence']})" for fix in kept[name])
            or "nothing: its trainings are the plain ones"
        )
        lines.append(f"{name} keeps {names}")
        gain = statistics.median(p / o for p, o in zip(plain.steps_s, variants[name].steps_s, strict=True))
        lines.append(f"goal, {name}: >= {goal}x: {gain:.2f}x, {verdict(bool(kept[name]) and gain >= goal)}")
    if not kept[BITWISE]:
        return lines
    share = statistics.median(c / o for c, o in zip(ceiling.steps_s, variants[BITWISE].steps_s, strict=True))
    lines.append(f"goal, {BITWISE}: >= {SHARE:.0%} of the ceiling ({CEILING}): {share:.0%}, {verdict(share >= SHARE)}")
    same = equality(variants[BITWISE], plain)
    lines.append(f"goal, {BITWISE}: same losses and weights: {same}, {verdict('the same' in same)}")
    return lines


def main() -> None:
    """Tune for both classes of equality, train in rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="12,000 images, one round, 2 minutes a tune")
    parser.add_argument("--rounds", type=int, help="trainings of each variant, 5 where none is given")
    parser.add_argument("--budget", help="of each of the two tunes, 5m where none is given")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 5)
    number = 12_000 if options.quick else 60_000
    lines = [
        f"MNIST guide, {number:,} images, 5 epochs, {platform.processor() or platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} CPUs, Python {platform.python_version()}, torch {torch.__version__}, "
        f"torchvision {version('torchvision')}; n={rounds} trainings each, in rounds: medians, in brackets the range",
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_mnist(folder, number)
        commands, kept = write_scripts(folder), {}
        for name in (BITWISE, ROUNDING):
            said, kept[name] = tune(folder, name, options.budget or ("2m" if options.quick else "5m"))
            lines += [said]
            run = [sys.executable, "-m", "flatout", "run", "--recipe", recipe_of(name), "train.py"]
            commands[name] = run if (folder / recipe_of(name)).exists() else commands[PLAIN]
        variants = {name: Trainings() for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                train(command, folder, variants[name])
        lines += [*table(variants), *verdicts(variants, kept)]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
